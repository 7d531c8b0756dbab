"""Graph to a simpler graph. These passes may change bits; each change is listed and goes into the manifest.

What comes out is the reference graph: printed, hashed, evaluated by NumPy, compared with everything.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from teeny_embed.graph.chains import fold_chains
from teeny_embed.graph.channels import drop_channels
from teeny_embed.graph.node import (
    CONSTANT,
    VARIABLE,
    Graph,
    Node,
    Variable,
    make_node,
    on_behalf_of,
    rebuild,
    verify,
)
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.recording import current_recording
from teeny_embed.graph.rewrite import Visit, expand_composites, transform, transform_nodes
from teeny_embed.graph.tensor import Tensor, constant

_FOLD_LIMIT = 1 << 16  # elements of a constant worth folding


def canonicalize(graph: Graph) -> Graph:
    """The reference graph; its `changes` list what may have changed bits."""
    log: list[str] = []
    graph = transform(expand_composites(graph), relu_behind_max_pool(log))
    graph = fold_chains(transform(graph, fold_constants), log)
    for visit in (drop_identities, choose_infinities, _Common().visit):
        graph = transform(graph, visit)
    return verify(replace(drop_channels(graph), changes=(*graph.changes, *log)))


def fold_constants(node: Node, inputs: tuple[Node, ...]) -> Node:
    """An operator on small constants is a constant. Evaluated in the stated order, so no bit changes."""
    from teeny_embed.graph.lower import evaluate_nodes

    node = rebuild(node, inputs)
    known = bool(inputs) and all(i.op is CONSTANT for i in inputs)
    if not known or node.op.view is not None or max(i.type.count for i in (node, *inputs)) > _FOLD_LIMIT:
        return node
    with on_behalf_of(node):
        return constant(evaluate_nodes((node,))[0], node.type.dtype).node


def is_constant(node: Node, value: float) -> bool:
    """Whether `node` is this constant, in every element."""
    return node.op is CONSTANT and bool(np.all(node.attributes["value"] == value))


def drop_identities(node: Node, inputs: tuple[Node, ...]) -> Node:
    """x 1, x / 1, cast to the same dtype, reshape or expand to the same shape: x itself, in every bit."""
    name = node.op.name
    if name in ("cast", "reshape", "expand") and inputs[0].type == node.type:
        return inputs[0]
    if name in ("multiply", "divide") and is_constant(inputs[1], 1) and inputs[0].type == node.type:
        return inputs[0]
    if name == "multiply" and is_constant(inputs[0], 1) and inputs[1].type == node.type:
        return inputs[1]
    if name == "reshape" and inputs[0].op.name == "reshape":
        return rebuild_as(node, (inputs[0].inputs[0],))
    return rebuild(node, inputs)


def choose_infinities(node: Node, inputs: tuple[Node, ...]) -> Node:
    """A table with infinities, such as a mask, as a choice by tables of bool: C's hold finite numbers."""
    if node.op is not CONSTANT or node.type.count == 1 or not node.type.is_float:
        return rebuild(node, inputs)
    value = node.attributes["value"]
    with on_behalf_of(node):
        found = constant(np.where(np.isinf(value), 0, value), node.type.dtype)
        for infinity in (-np.inf, np.inf):
            if (hit := value == infinity).any():
                found = where(constant(hit), constant(infinity, node.type.dtype), found)
    return node if found.node.op is CONSTANT else found.node


def rebuild_as(node: Node, inputs: tuple[Node, ...]) -> Node:
    """`node` over operands that may differ in shape from those it had."""
    with on_behalf_of(node):
        return make_node(node.op, inputs, {**node.attributes, "shape": node.type.shape})


class _Common:
    """Common subexpressions: equal operators on equal operands become one node."""

    def __init__(self) -> None:
        self.seen: dict[Any, Node] = {}

    def visit(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        node = rebuild(node, inputs)
        return self.seen.setdefault(_key(node), node)


def _key(node: Node) -> Any:
    if node.op is CONSTANT:
        return node.op.name, node.type, node.attributes["value"].tobytes()
    if node.op.leaf:
        return node.attributes.get("variable", node)
    return node.op.name, tuple(map(id, node.inputs)), tuple((k, repr(v)) for k, v in node.attributes.items())


# ---- Before differentiation -----------------------------------------------------------------------------


def simplify_forward(value: Tensor) -> Tensor:
    """`value`, and what is recorded beside it, in the form that is cheapest to differentiate.

    A net is rewritten before its gradients exist, so that nothing is kept for the backward pass in vain.
    """
    recording = current_recording()
    log: list[str] = []
    roots = (value.node, *(recording.nodes() if recording else ()))
    new = transform_nodes(roots, relu_behind_max_pool(log))
    if recording:
        recording.replace(new)
        recording.changes += log
    return Tensor(new[value.node])


def relu_behind_max_pool(log: list[str]) -> Visit:
    """max_pool(relu(x)) as relu(max_pool(x)): equal but for the sign of zeros, and a quarter of the work."""

    def visit(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node.op.name != "max_pool" or inputs[0].op.name not in ("relu", "relu6"):
            return rebuild(node, inputs)
        activation = inputs[0]
        log.append(f"{activation.name} moved behind {node.name}")
        with on_behalf_of(node):
            pooled = make_node(node.op, activation.inputs, node.attributes)
        with on_behalf_of(activation):
            return make_node(activation.op, (pooled,), activation.attributes)

    return visit


# ---- Constant parameters ----------------------------------------------------------------------------------


def freeze(graph: Graph, kept: Collection[Variable]) -> Graph:
    """Variables that are not among `kept` (no entry point assigns them) as constants."""

    def visit(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node.op is VARIABLE and node.attributes["variable"] not in kept:
            with on_behalf_of(node):
                return constant(node.attributes["variable"].initial, node.type.dtype).node
        return rebuild(node, inputs)

    return transform(graph, visit)
