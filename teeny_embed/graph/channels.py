"""Channels that are known, or read by nobody, leave a net of integers. No bit of a result changes.

Training leaves filters without weights: the result of such a filter is one number, whatever the input, and
what the next convolution makes of it is a part of its bias. The channels of tensors are their last axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from teeny_embed.graph import scalar as s
from teeny_embed.graph.interval import Interval, Intervals, is_integer, limits
from teeny_embed.graph.node import CONSTANT, Array, Graph, Node, make_node, on_behalf_of, rebuild
from teeny_embed.graph.op import REGISTRY
from teeny_embed.graph.rewrite import transform
from teeny_embed.graph.tensor import constant

_TOGETHER = 4
"""Kernels take as many channels at a time: the number of those that stay is a multiple of it."""


def drop_channels(graph: Graph) -> Graph:
    """The graph without the channels of activations that nothing needs."""
    nodes = graph.nodes()
    if not any(_mixes(node) for node in nodes):
        return graph
    groups = _Groups(graph, nodes)
    known = _intervals(nodes)
    groups.find_needed(known)
    return transform(graph, _Rewriting(groups, known).visit) if groups.any_dropped() else graph


# ---- What operators do to channels ------------------------------------------------------------------------


def _channels(node: Node) -> int:
    return node.type.shape[-1] if node.type.shape else 1


def _is_sum(node: Node) -> bool:
    """Whether it is a convolution of small integers whose filter is known."""
    if node.op.name != "conv" or node.inputs[1].op is not CONSTANT:
        return False
    return bool(node.attributes["accumulator"] == "int32" and node.attributes["zero_points"][1] == 0)


def _mixes(node: Node) -> bool:
    """Whether every channel of it is a sum over all channels of its input."""
    return _is_sum(node) and node.attributes["groups"] == 1


def _keeps(node: Node) -> bool:
    """Whether every channel of it is made of that channel of its operands."""
    if node.op.name == "conv":
        return _is_sum(node) and node.attributes["groups"] == _channels(node) == _channels(node.inputs[0]) > 1
    if node.op.name == "reshape":
        return _channels(node) == _channels(node.inputs[0])
    return node.op.scalar is not None or node.op.name == "sum_pool"


def _carried(node: Node) -> list[Node]:
    """The operands whose channels are those of `node`."""
    if not _keeps(node):
        return []
    return [i for i in node.inputs if i.op is not CONSTANT and _channels(i) == _channels(node)]


def _is_padded(node: Node) -> bool:
    return any(before or after for before, after in node.attributes["padding"] or ())


# ---- What channels can be ---------------------------------------------------------------------------------


def _intervals(nodes: list[Node]) -> dict[Node, Interval]:
    """Of integers: least and greatest of each channel, or of all alike, where there is one element."""
    found: dict[Node, Interval] = {}
    for node in nodes:
        if is_integer(node.type.dtype):
            found[node] = _interval(node, found)
    return found


def _interval(node: Node, known: Mapping[Node, Interval]) -> Interval:
    least, greatest = limits(node.type.dtype)
    if node.op is CONSTANT:
        return _of_constant(node)
    if _is_sum(node) and (_mixes(node) or _keeps(node)):
        low, high = _of_sum(node, known[node.inputs[0]])
        if low.min() >= least and high.max() <= greatest:
            return low, high
    elif node.op.name == "reshape" and _keeps(node):
        return known[node.inputs[0]]
    elif node.op.name == "sum_pool" and not _is_padded(node):
        count = prod(node.attributes["kernel"])
        return known[node.inputs[0]][0] * count, known[node.inputs[0]][1] * count
    elif node.op.scalar is not None:
        leaves = [s.var(f"x{i}", x.type.dtype) for i, x in enumerate(node.inputs)]
        of_leaves = {leaf: known[x] for leaf, x in zip(leaves, node.inputs, strict=True) if x in known}
        return Intervals(of_leaves).elements(node.op.scalar(*leaves, **node.attributes))
    return np.array([least]), np.array([greatest])


def _of_constant(node: Node) -> Interval:
    value = node.attributes["value"].astype(object if node.type.dtype.endswith("64") else np.int64)
    rows = value.reshape(-1, _channels(node)) if value.size else np.zeros((1, 1), np.int64)
    return rows.min(axis=0), rows.max(axis=0)


def _of_sum(node: Node, x: Interval) -> Interval:
    """Of the sums of a convolution; in the padding terms are absent."""
    w = node.inputs[1].attributes["value"].astype(np.int64)
    w = w.reshape(len(w), -1, w.shape[-1])
    if node.attributes["groups"] > 1:
        ends = [w[:, :, 0] * (end - node.attributes["zero_points"][0]).reshape(-1, 1) for end in x]
        axis: Any = 1
    else:
        ends, axis = [w * (end - node.attributes["zero_points"][0]) for end in x], (1, 2)
    low, high = np.minimum(*ends), np.maximum(*ends)
    if _is_padded(node):
        low, high = np.minimum(0, low), np.maximum(0, high)
    return low.sum(axis=axis), high.sum(axis=axis)


# ---- What channels are needed -----------------------------------------------------------------------------


class _Groups:
    """Tensors that keep the same channels, as operators carry them from one to the next."""

    def __init__(self, graph: Graph, nodes: list[Node]) -> None:
        self.nodes, self.parent = nodes, {node: node for node in nodes}
        for node in nodes:
            for operand in _carried(node):
                self.parent[self.of(operand)] = self.of(node)
        self.needed = {self.of(node): np.zeros(_channels(node), bool) for node in nodes}
        self.ends = [*graph.roots, *(n for n in nodes if not (_mixes(n) or _keeps(n)))]

    def of(self, node: Node) -> Node:
        while self.parent[node] is not node:
            node = self.parent[node]
        return node

    def kept(self, node: Node) -> Array:
        """Which channels of `node` stay."""
        return self.needed[self.of(node)]

    def any_dropped(self) -> bool:
        return not all(kept.all() for kept in self.needed.values())

    def find_needed(self, known: Mapping[Node, Interval]) -> None:
        """More channels from pass to pass, until all that the kept ones need are kept."""
        for node in self.ends:
            self._need(node, np.array(True))
        count = -1
        while count != (count := sum(int(kept.sum()) for kept in self.needed.values())):
            for node in reversed(self.nodes):
                carried = _carried(node)
                for operand in node.inputs:
                    if _mixes(node) and operand is node.inputs[0]:
                        self._need(operand, ~_droppable(node, known[operand], self.kept(node)))
                    elif operand not in carried:
                        self._need(operand, np.array(True))

    def _need(self, node: Node, channels: Array) -> None:
        kept = self.kept(node)
        kept |= channels
        count = int(kept.sum())
        missing = max(-count % _TOGETHER, 0 if count else _TOGETHER)
        kept[np.flatnonzero(~kept)[:missing]] = True


def _droppable(node: Node, x: Interval, filters: Array) -> Array:
    """Which channels of x are, in the sums of `filters`, one number at every position."""
    low, high = (np.broadcast_to(end, _channels(node.inputs[0])) for end in x)
    w = node.inputs[1].attributes["value"][filters]
    read = np.any(w != 0, axis=tuple(range(w.ndim - 1)))
    differs = (low != node.attributes["zero_points"][0]) & _is_padded(node)  # from what the padding is
    dropped: Array = ~read | ((low == high) & ~differs)
    return dropped


# ---- Rewriting --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shifted:
    """A convolution and what its dropped channels add to it."""

    sums: Node
    addend: Array


class _Rewriting:
    """The nodes over the channels that stay; what the others add to a sum is a constant."""

    def __init__(self, groups: _Groups, known: Mapping[Node, Interval]) -> None:
        self.groups, self.known = groups, known
        self.shifted: dict[Node, _Shifted] = {}

    def visit(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        if _mixes(node):
            return self._sum(node, inputs)
        if not _keeps(node):
            return rebuild(node, inputs)
        kept, attributes = self.groups.kept(node), dict(node.attributes)
        if not kept.all():
            inputs = tuple(_restricted(i, node, kept) for i in inputs)
            if node.op.name == "conv":
                attributes["groups"] = int(kept.sum())
            if node.op.name == "reshape":
                attributes["shape"] = (*node.type.shape[:-1], int(kept.sum()))
        if node.op.name == "add" and (joined := self._joined(node, inputs)) is not None:
            return joined
        with on_behalf_of(node):
            return make_node(node.op, inputs, attributes) if not kept.all() else rebuild(node, inputs)

    def _sum(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        filters, kept = self.groups.kept(node), self.groups.kept(node.inputs[0])
        if filters.all() and kept.all():
            return rebuild(node, inputs)
        w = node.inputs[1].attributes["value"][filters]
        value = np.broadcast_to(self.known[node.inputs[0]][0], kept.shape) - node.attributes["zero_points"][0]
        addend = (w[..., ~kept].astype(np.int64) * value[~kept]).reshape(len(w), -1).sum(axis=1)
        with on_behalf_of(node.inputs[1]):
            weights = constant(w[..., kept], node.inputs[1].type.dtype).node
        with on_behalf_of(node):
            sums = make_node(node.op, (inputs[0], weights), node.attributes)
            if not addend.any():
                return sums
            new = _add(sums, constant(addend, "int32").node)
        self.shifted[new] = _Shifted(sums, addend)
        return new

    def _joined(self, node: Node, inputs: tuple[Node, ...]) -> Node | None:
        """A bias behind what dropped channels add, as one constant."""
        for value, bias in (inputs, inputs[::-1]):
            found = self.shifted.get(value)
            if found is None or bias.op is not CONSTANT:
                continue
            total = found.addend + bias.attributes["value"].astype(np.int64)
            least, greatest = limits("int32")
            if total.shape == found.addend.shape and least <= total.min() and total.max() <= greatest:
                with on_behalf_of(bias):
                    joined = constant(total, "int32").node
                with on_behalf_of(node):
                    return _add(found.sums, joined)
        return None


def _add(a: Node, b: Node) -> Node:
    return make_node(REGISTRY["add"], (a, b), {})


def _restricted(operand: Node, node: Node, kept: Array) -> Node:
    """An operand of `node` with the channels that stay; of what is not known they are those already."""
    axis = 0 if node.op.name == "conv" else operand.type.rank - 1
    if operand.op is not CONSTANT or not operand.type.rank or operand.type.shape[axis] != len(kept):
        return operand
    with on_behalf_of(operand):
        return constant(np.compress(kept, operand.attributes["value"], axis), operand.type.dtype).node
