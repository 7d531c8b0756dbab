"""Transposes moved towards the results, where they meet their inverses.

An importer whose model is channels first puts transposes around each convolution and pool. What lies between
two of them does the same in any order of the axes: it is given that of its operand, and the transpose goes
behind it. In the end those are left that something does need: of inputs and outputs, and before a reshape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from teeny_embed.graph.node import Graph, Node, on_behalf_of, rebuild
from teeny_embed.graph.ops.reduction import normalized
from teeny_embed.graph.rewrite import transform
from teeny_embed.graph.tensor import Tensor, call

Axes = tuple[int, ...]
"""Of a transpose: source axis of each result axis."""


def channels_last(x: Tensor) -> Tensor:
    """[N, C, spatial...] as [N, spatial..., C]."""
    return x.transpose(0, *range(2, x.rank), 1)


def channels_first(x: Tensor) -> Tensor:
    """[N, spatial..., C] as [N, C, spatial...]."""
    return x.transpose(0, x.rank - 1, *range(1, x.rank - 1))


def sink_transposes(graph: Graph) -> Graph:
    """The same function, to be differentiated and lowered with less movement.

    The order of a sum over several axes is that of the operand's axes, so transposes move behind those only
    whose axes stay side by side and in order.
    """
    return transform(graph, _visit)


def _visit(node: Node, inputs: tuple[Node, ...]) -> Node:
    with on_behalf_of(node):
        moved = _moved(node, inputs)
    return rebuild(node, inputs) if moved is None else moved.node


def _moved(node: Node, inputs: tuple[Node, ...]) -> Tensor | None:
    """What stands for `node`, or None where it stays as it is."""
    name, attributes = node.op.name, dict(node.attributes)
    if name == "transpose":
        return _transposed(Tensor(inputs[0]), attributes["axes"])
    axes = next((i.attributes["axes"] for i in inputs if _whole_transpose(i, node)), None)
    if axes is None:
        return None
    if node.op.scalar is not None:
        operands = [_untransposed(Tensor(i), axes) for i in inputs]
        return _transposed(call(name, *operands, **attributes), axes)
    if name == "concat":
        attributes["axis"] = axes[attributes["axis"] % len(axes)]
        return _transposed(call(name, *(_untransposed(Tensor(i), axes) for i in inputs), **attributes), axes)
    move = _MOVES.get(name)
    return move(Tensor(inputs[0].inputs[0]), node, axes) if move is not None else None


def _whole_transpose(operand: Node, node: Node) -> bool:
    """Whether `operand` is a transpose that is not broadcast by `node`."""
    return operand.op.name == "transpose" and (
        node.op.scalar is None or operand.type.shape == node.type.shape
    )


def _transposed(x: Tensor, axes: Sequence[int]) -> Tensor:
    """One transpose of what is none; none at all where only axes of extent 1 change their place."""
    if x.node.op.name == "transpose":
        inner = x.node.attributes["axes"]
        return _transposed(Tensor(x.node.inputs[0]), [inner[a] for a in axes])
    kept = [a for a in axes if x.shape[a] != 1]
    if kept == sorted(kept):
        shape = tuple(x.shape[a] for a in axes)
        return x if shape == x.shape else x.reshape(shape)
    return x.transpose(*axes)


def _untransposed(x: Tensor, axes: Axes) -> Tensor:
    """An operand as it is beside the source of the transpose `axes`."""
    if x.type.count == 1:
        return x
    if x.rank < len(axes):
        x = x.reshape((1,) * (len(axes) - x.rank) + x.shape)
    return _transposed(x, [axes.index(a) for a in range(len(axes))])


# ---- Operators with axes: (source of the transpose, node, axes) -> what stands for the node, or None ------


def _along(x: Tensor, node: Node, axes: Axes) -> Tensor:
    """One axis, which the result has as well."""
    attributes = {**node.attributes, "axis": axes[node.attributes["axis"] % x.rank]}
    return _transposed(call(node.op.name, x, **attributes), axes)


def _reduced(x: Tensor, node: Node, axes: Axes) -> Tensor | None:
    gone = [axes[a] for a in normalized(node.attributes["axes"], x.rank)]
    if gone != list(range(gone[0], gone[0] + len(gone))):
        return None
    y = call(node.op.name, x, **{**node.attributes, "axes": tuple(gone)})
    if node.attributes["keepdims"]:
        return _transposed(y, axes)
    kept = [a for a in range(x.rank) if a not in gone]
    return _transposed(y, [kept.index(a) for a in axes if a not in gone])


def _per_axis(x: Tensor, node: Node, axes: Axes) -> Tensor:
    """Attributes with an entry per axis."""
    attributes = dict(node.attributes)
    for name, value in attributes.items():
        if isinstance(value, tuple | list):
            attributes[name] = tuple(value[axes.index(a)] for a in range(x.rank))
    return _transposed(call(node.op.name, x, **attributes), axes)


def _reshaped(x: Tensor, node: Node, axes: Axes) -> Tensor | None:
    """A reshape that takes or adds axes of extent 1 only."""
    shape = node.type.shape
    if [x.shape[a] for a in axes if x.shape[a] != 1] != [e for e in shape if e != 1]:
        return None
    sources = [a for a in axes if x.shape[a] != 1]
    places = {a: at for a, at in zip(sources, (at for at, e in enumerate(shape) if e != 1), strict=True)}
    units = [at for at, e in enumerate(shape) if e == 1]
    order = [*(places[a] for a in sorted(sources)), *units]
    y = x.reshape(tuple(shape[at] for at in order))
    return _transposed(y, [order.index(at) for at in range(len(shape))])


_MOVES: dict[str, Callable[[Tensor, Node, Axes], Tensor | None]] = {
    "softmax": _along, "log_softmax": _along, "sum": _reduced, "mean": _reduced, "max": _reduced,
    "slice": _per_axis, "pad": _per_axis, "reshape": _reshaped,
}  # fmt: skip
