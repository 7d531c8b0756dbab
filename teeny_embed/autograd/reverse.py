"""Reverse-mode differentiation, graph to graph.

Walks the nodes between output and operands backwards; every node hands its cotangent to its operands through
its operator's vjp, contributions add up in that order, and broadcasting is undone by summing over the
expanded axes. The result is graph, so it can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from teeny_embed.errors import GraphError, ShapeError
from teeny_embed.graph.node import Node, Variable, on_behalf_of, topological, user_line
from teeny_embed.graph.op import _NotDifferentiable
from teeny_embed.graph.tensor import Tensor, call, constant, read


def grad(output: Tensor, wrt: Sequence[Tensor | Variable], seed: Tensor | None = None) -> list[Tensor]:
    """Gradients of a rank-0 `output` (or of `seed` times `output`), one per entry of `wrt`, in its shape.

    An entry that the output does not depend on gets zeros. Integer and comparison results carry no gradient.
    """
    if seed is None:
        if output.shape != ():
            message = f"grad: the output is {output.type}, expected rank 0"
            raise ShapeError(message, user_line(), "take a mean or a sum, or give a seed")
        seed = constant(1.0, output.dtype)
    targets = [read(v) if isinstance(v, Variable) else v for v in wrt]
    cotangents = _backward(output.node, seed, [t.node for t in targets])
    return [cotangents[t.node] if t.node in cotangents else zeros_like(t) for t in targets]


def value_and_grad(
    function: Callable[..., Tensor], wrt: Sequence[Variable]
) -> Callable[..., tuple[Tensor, list[Tensor]]]:
    """`function` made to return (value, gradients for `wrt`)."""

    def both(*args: Any, **kwargs: Any) -> tuple[Tensor, list[Tensor]]:
        value = function(*args, **kwargs)
        return value, grad(value, wrt)

    return both


def zeros_like(x: Tensor) -> Tensor:
    """Zeros of the shape and dtype of `x`."""
    return call("expand", constant(0, x.dtype), shape=x.shape)


def _backward(output: Node, seed: Tensor, targets: list[Node]) -> dict[Node, Tensor]:
    order = topological((output,))
    depends = set(targets)
    for node in order:
        if any(i in depends for i in node.inputs):
            depends.add(node)
    cotangents = {output: seed}
    for node in reversed(order):
        if node in depends and node in cotangents and node.inputs:
            _pull_back(node, cotangents, depends)
    return cotangents


def _pull_back(node: Node, cotangents: dict[Node, Tensor], depends: set[Node]) -> None:
    """Adds the contributions of one node to the cotangents of its operands."""
    if isinstance(node.op.vjp, _NotDifferentiable):
        return
    operands = [Tensor(i) for i in node.inputs]
    with on_behalf_of(node, ".grad"):
        parts = node.op.vjp(cotangents[node], Tensor(node), *operands, **node.attributes)
        if len(parts) != len(operands):
            raise GraphError(
                f"vjp of {node.op.name} gave {len(parts)} cotangents for {len(operands)} operands"
            )
        for operand, part in zip(node.inputs, parts, strict=True):
            if part is not None and operand in depends:
                part = unbroadcast(part, operand.type.shape)
                before = cotangents.get(operand)
                cotangents[operand] = part if before is None else before + part


def unbroadcast(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`g` summed over the axes along which an operand of `shape` was expanded."""
    if g.shape == shape:
        return g
    lead = g.rank - len(shape)
    expanded = [a for a in range(g.rank) if a < lead or (shape[a - lead] == 1 and g.shape[a] != 1)]
    return (
        call("sum", g, axes=tuple(expanded), keepdims=True).reshape(shape) if expanded else g.reshape(shape)
    )
