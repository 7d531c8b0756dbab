"""Calling a graph: what it records is recorded again, over the operands of the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from teeny_embed.errors import GraphError, ShapeError
from teeny_embed.graph.node import CONSTANT, INPUT, VARIABLE, Graph, Node, copied, locating
from teeny_embed.graph.recording import current_recording
from teeny_embed.graph.tensor import Tensor, as_tensor, assign, check, constant, read


def inline(graph: Graph, inputs: Sequence[Any]) -> Tensor | dict[str, Tensor]:
    """The output of `graph` for these inputs, by name if there are several.

    Variables are read in their current version, so parameters stay trainable; assignments are made, in order.
    While tracing all of that, and what the graph checks, is recorded. Raises GraphError, ShapeError.
    """
    with locating("calling a graph"):
        new = _operands(graph, inputs)
        for node in graph.nodes():
            if node not in new:
                new[node] = _node(node, tuple(new[i] for i in node.inputs))
        outputs = _recorded(graph, new) if current_recording() else _computed(graph, new)
    return outputs if len(outputs) > 1 else next(iter(outputs.values()))


def _operands(graph: Graph, inputs: Sequence[Any]) -> dict[Node, Node]:
    """What stands for each input."""
    names = ", ".join(name for name, _ in graph.inputs)
    if len(inputs) != len(graph.inputs):
        raise GraphError(
            f"it has {len(graph.inputs)} inputs, {len(inputs)} are given", hint=f"they are {names}"
        )
    found = {}
    for (name, node), value in zip(graph.inputs, inputs, strict=True):
        tensor = as_tensor(value, None if isinstance(value, np.ndarray) else node.type.dtype)
        if tensor.type != node.type:
            hint = "trace the function again for other shapes and dtypes"
            raise ShapeError(f"input {name!r} is {node.type}, not {tensor.type}", hint=hint)
        found[node] = tensor.node
    return found


def _node(node: Node, inputs: tuple[Node, ...]) -> Node:
    if node.op is VARIABLE:
        return read(node.attributes["variable"]).node
    return node if node.op is CONSTANT else copied(node, inputs)


def _recorded(graph: Graph, new: dict[Node, Node]) -> dict[str, Tensor]:
    for each in graph.checks:
        if each.kind == "rate" and new[each.node].op is not INPUT:
            hint = "only an input can be checked before anything is written"
            raise GraphError(f"{each.node.name!r} is a rate: give an input for it", hint=hint)
        if each.kind != "range":  # tracing finds those itself, for whatever is an input then
            check(each.kind, Tensor(new[each.node]), each.bound)
    for variable, node in graph.assigns:
        assign(variable, Tensor(new[node]))
    recording = current_recording()
    assert recording is not None
    recording.changes += [change for change in graph.changes if change not in recording.changes]
    return {name: Tensor(new[node]) for name, node in graph.outputs}


def _computed(graph: Graph, new: dict[Node, Node]) -> dict[str, Tensor]:
    """Outside tracing assignments change variables at once, so all values are computed before.

    As on a device nothing is assigned if a value that must be finite is not.
    """
    from teeny_embed.graph.lower import evaluate_nodes

    if not graph.assigns:
        return {name: Tensor(new[node]) for name, node in graph.outputs}
    values = dict(zip(graph.roots, evaluate_nodes(tuple(new[n] for n in graph.roots)), strict=True))
    if all(np.isfinite(values[c.node]).all() for c in graph.checks if c.kind == "finite"):
        for variable, node in graph.assigns:
            variable.set(values[node])
    return {name: constant(values[node], node.type.dtype) for name, node in graph.outputs}
