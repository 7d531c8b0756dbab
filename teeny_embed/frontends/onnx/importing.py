"""From a `Model` to a graph: node after node, each by the converter of its operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from teeny_embed.errors import DataError
from teeny_embed.frontends.onnx.model import Argument, Array, Model, Operation, Operator, narrowed
from teeny_embed.frontends.onnx.operators import CONVERTERS
from teeny_embed.frontends.onnx.reader import read_model
from teeny_embed.graph.deferred import DeferredGraph
from teeny_embed.graph.layout import sink_transposes
from teeny_embed.graph.node import Graph, Variable, called_from, locating, name_scope
from teeny_embed.graph.tensor import Tensor, constant, input, read, trace

_FOLDED = ("Shape", "Size", "ConstantOfShape")
"""Operators that need the shape of their operand alone, or make a constant."""


def load(path: Path, constants: Mapping[str, Array] | None = None) -> Graph | DeferredGraph:
    """The graph of a file, see `import_model`. Raises ToolError without the package onnx."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"the file cannot be read: {error.strerror}", str(path)) from None
    return import_model(content, path.name, constants)


def import_model(
    content: bytes, file: str, constants: Mapping[str, Array] | None = None
) -> Graph | DeferredGraph:
    """The graph of the model in `content`; `file` is what errors call it.

    `constants` gives inputs a value once and for all, such as a shape; they are inputs no longer.
    Float initializers are its parameters, under their names. Extents that the file leaves open are bound when
    the graph is built. Raises DataError for a file that is damaged, and with all operators that are not
    supported.
    """
    model = read_model(content, file)
    variables = {
        name: Variable(name, array.astype(np.float32))
        for name, array in model.stored.items()
        if _is_parameter(array)
    }
    model = _with_constants(model, constants or {})
    _check_supported(model)
    with locating(file, file):
        inputs = [called_from(file, partial(_input, a)) for a in model.inputs]

    def net(*given: Tensor) -> Any:
        graph = Context().run(_graph, model, variables, given)  # in no scope: the call puts it into ours
        found = graph(*given)
        return found if len(graph.outputs) > 1 else {graph.outputs[0][0]: found}

    return trace(net, *inputs)


def _graph(model: Model, variables: Mapping[str, Variable], given: Sequence[Tensor]) -> Graph:
    """What the model computes for inputs of these types, with as few transposes as it takes."""
    names = [a.name for a in model.inputs]

    def compute(*inputs: Tensor) -> dict[str, Tensor]:
        return _run(model, variables, dict(zip(names, inputs, strict=True)))

    placeholders = (input(_name(n), x.shape, x.dtype) for n, x in zip(names, given, strict=True))
    graph = trace(compute, *placeholders)
    assert isinstance(graph, Graph)
    return sink_transposes(graph)


def _with_constants(model: Model, constants: Mapping[str, Array]) -> Model:
    names = [a.name for a in model.inputs]
    if unknown := [name for name in constants if name not in names]:
        hint = "it has " + (", ".join(names) or "none")
        raise DataError(f"the model has no input {unknown[0]!r}", model.file, hint)
    given = {name: np.asarray(value) for name, value in constants.items()}
    inputs = tuple(a for a in model.inputs if a.name not in given)
    return replace(model, inputs=inputs, stored={**model.stored, **given})


def _input(argument: Argument) -> Tensor:
    shape = [e if isinstance(e, str) else int(e) for e in argument.shape]
    dtype = {"int64": "int32", "float64": "float32"}.get(argument.dtype, argument.dtype)
    return input(_name(argument.name), shape, dtype)


def _name(name: str) -> str:
    """As arguments of C functions are called."""
    text = "".join(c if c.isalnum() and c.isascii() else "_" for c in name).strip("_")
    return text if text and not text[0].isdigit() else f"x{text}"


def _is_parameter(array: Array) -> bool:
    return array.dtype in (np.float32, np.float64, np.float16) and array.ndim > 0


def _check_supported(model: Model) -> None:
    """Raises DataError that lists every operator without a converter, with the nodes that are such."""
    lines: dict[str, list[str]] = {}
    known = set(model.stored)
    for op in model.operators:
        if op.kind in _FOLDED or all(name in known or not name for name in op.inputs):
            known |= set(op.outputs)  # computed when it is read, by whatever operator
        elif op.kind not in CONVERTERS:
            lines.setdefault(op.kind, []).append(op.path)
    if lines:
        listed = [f"\n  {kind} ({', '.join(nodes)})" for kind, nodes in lines.items()]
        hint = "docs/onnx.md lists what is supported"
        raise DataError(f"operators are not supported:{''.join(listed)}", model.file, hint)


def _run(model: Model, variables: Mapping[str, Variable], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    known: dict[str, Array] = dict(model.stored)
    trainable = set(variables)
    tensors |= {name: read(variable) for name, variable in variables.items()}
    for op in model.operators:
        results = _constant(op, tensors, known, trainable)
        if results is not None:
            known |= {name: np.asarray(v) for name, v in zip(filter(None, op.outputs), results, strict=False)}
            continue
        made = called_from(op.path, partial(_convert, op, tensors, known, model.version))
        for name, value in zip(op.outputs, made, strict=False):
            if isinstance(value, Tensor):
                tensors[name] = value
            else:
                known[name] = value
        if missing := [name for name in op.outputs[len(made) :] if name and _is_read(name, model)]:
            raise DataError(f"{op.kind}: its result {missing[0]!r} is not computed", op.path)
    found = {}
    for name in model.outputs:
        if name not in tensors:
            tensors[name] = constant(narrowed(known[name]))
        found[_name(name)] = tensors[name]
    return found


def _is_read(name: str, model: Model) -> bool:
    return name in model.outputs or any(name in op.inputs for op in model.operators)


def _constant(
    op: Operator, tensors: Mapping[str, Tensor], known: Mapping[str, Array], trainable: set[str]
) -> Any:
    """The results as arrays where they are known already; None where they depend on inputs or parameters.

    What is computed from float parameters alone stays an expression of them, so that they can be trained.
    """
    given = {name: known[name] for name in op.inputs if name in known and name not in trainable}
    if op.kind == "Shape" and op.inputs[0] in tensors:
        given = {op.inputs[0]: np.zeros(tensors[op.inputs[0]].shape, np.int8)}
    elif op.kind == "Size" and op.inputs[0] in tensors:
        return [np.int64(tensors[op.inputs[0]].type.count)]
    elif op.kind == "CastLike" and op.inputs[1] in tensors:
        given = {op.inputs[1]: np.zeros(1, tensors[op.inputs[1]].dtype), **given}
    if any(name and name not in given for name in op.inputs):
        return None
    if op.kind == "Identity" and op.inputs[0] in trainable:
        return None
    try:
        return op.evaluate(given)
    except Exception as error:  # whatever the reference implementation raises
        raise DataError(f"{op.kind} cannot be computed: {error}", op.path) from error


def _convert(
    op: Operator, tensors: Mapping[str, Tensor], known: Mapping[str, Array], version: int
) -> tuple[Tensor | Array, ...]:
    operation = Operation(op, tensors, known, version)
    if op.kind not in CONVERTERS:
        raise operation.error("this operator is not supported where its operands are not known")
    try:
        with locating(op.kind, op.path), name_scope(op.name.strip("/").replace(".", "/")):
            made = CONVERTERS[op.kind](operation)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise operation.error(f"operands and attributes do not fit together: {error}") from error
    return (made,) if isinstance(made, Tensor | np.ndarray) else tuple(made)
