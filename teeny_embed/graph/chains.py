"""Affine chains: what is multiplied and added per channel behind a convolution, as part of it.

conv(x, w) s + c, for constants w, s and c, is conv(x, w s) + c: the batch normalisation of a frozen net costs
nothing. Every fold is listed, for it changes bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from teeny_embed.graph.node import CONSTANT, Array, Graph, Node, make_node, on_behalf_of, rebuild
from teeny_embed.graph.rewrite import transform
from teeny_embed.graph.tensor import Tensor, constant

_FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
}  # fmt: skip


def fold_chains(graph: Graph, log: list[str]) -> Graph:
    """Each chain of constants per channel behind a convolution as its filter and one sum."""
    return transform(graph, _Chains(graph, log).visit)


class _Chains:
    """What is needed elsewhere, too, stays as it is: nothing is computed twice."""

    def __init__(self, graph: Graph, log: list[str]) -> None:
        self.log = log
        self.uses = Counter(graph.roots)
        for node in graph.nodes():
            self.uses.update(node.inputs)
        self.shared: set[Node] = set()

    def visit(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        new = self._folded(rebuild(node, inputs))
        if self.uses[node] > 1:
            self.shared.add(new)
        return new

    def _folded(self, node: Node) -> Node:
        value, number = _constant_operand(node)
        if value is None or number is None or value in self.shared:
            return node
        contraction, shift = _split(value)
        if contraction is None or contraction in self.shared:
            return node
        if shift is None and node.op.name in ("add", "subtract"):
            return node  # one sum behind the convolution: the form that everything is brought to
        return self._rewritten(node, contraction, shift, number)

    def _rewritten(self, node: Node, contraction: Node, shift: Array | None, number: Array) -> Node:
        """`node`, which applies `number` to contraction + shift."""
        x, weight = contraction.inputs
        w, apply = weight.attributes["value"], _FOLDED[node.op.name]
        with np.errstate(all="ignore"):
            if node.op.name in ("multiply", "divide"):
                w = apply(w, number.reshape(-1, *[1] * (w.ndim - 1)))
            if shift is not None:
                shift = apply(shift, number)
        if not (np.isfinite(w).all() and (shift is None or np.isfinite(shift).all())):
            return node
        self.log.append(f"{node.name} folded into {contraction.name}")
        with on_behalf_of(contraction):
            filter = constant(w, weight.type.dtype).node
            contraction = make_node(contraction.op, (x, filter), contraction.attributes)
        with on_behalf_of(node):
            return contraction if shift is None else (Tensor(contraction) + constant(shift)).node


def _constant_operand(node: Node) -> tuple[Node | None, Array | None]:
    """(other operand, constant per channel) of one operation of a chain."""
    if node.op.name not in _FOLDED or node.type.dtype != "float32" or node.type.rank == 0:
        return None, None
    a, b = node.inputs
    if a.op is CONSTANT and node.op.name in ("add", "multiply"):
        a, b = b, a
    return (a, _per_channel(b, node.type.shape[-1])) if a.type == node.type else (None, None)


def _split(node: Node) -> tuple[Node | None, Array | None]:
    """(convolution with a constant filter, constant per channel that is added to it)."""
    if node.op.name == "conv" and node.inputs[1].op is CONSTANT:
        return node, None
    value, shift = _constant_operand(node)
    if node.op.name not in ("add", "subtract") or value is None or shift is None:
        return None, None
    contraction = _split(value)[0] if value.op.name == "conv" else None
    return contraction, -shift if node.op.name == "subtract" else shift


def _per_channel(node: Node, channels: int) -> Array | None:
    """A constant as [channels], if it is the same for all samples and positions."""
    last = node.type.shape[-1] if node.type.shape else 1
    if node.op is not CONSTANT or node.type.count != last or last not in (1, channels):
        return None
    return np.broadcast_to(node.attributes["value"].reshape(-1), (channels,))
