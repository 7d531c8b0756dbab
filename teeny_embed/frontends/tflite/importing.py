"""From a `Model` to a graph: operator after operator, each by the converter of its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from teeny_embed.errors import DataError
from teeny_embed.frontends.tflite.model import ABSENT, Model, Subgraph, TensorInfo
from teeny_embed.frontends.tflite.operation import Context, Operation
from teeny_embed.frontends.tflite.operators import CONVERTERS
from teeny_embed.frontends.tflite.quantization import ROUNDINGS, SMALL
from teeny_embed.frontends.tflite.reader import read_model
from teeny_embed.graph.node import CONSTANT, Graph, Node, called_from, locating, name_scope, topological
from teeny_embed.graph.quantization import Quantization
from teeny_embed.graph.tensor import Tensor, constant, input, trace


@dataclass(frozen=True, eq=False)
class Imported:
    """An imported model. `tensors` has the node of each tensor of subgraph 0, by its index in the file."""

    model: Model
    graph: Graph
    tensors: Mapping[int, Node]


def import_model(content: bytes, file: str, rounding: str = "tflite") -> Imported:
    """The graph of the model in `content`; `file` is what errors and comments call it.

    `rounding` "tflite" computes what TFLite Micro does, "litert" what LiteRT's reference kernels do. Raises
    DataError for a file that is damaged or holds an operator that is not supported.
    """
    if rounding not in ROUNDINGS:
        raise DataError(f"rounding {rounding!r} is unknown", hint=f"one of {', '.join(ROUNDINGS)}")
    model = read_model(content, file)
    main = model.subgraphs[0]
    if not main.outputs:
        raise DataError("the model has no output", where=file)
    names = _argument_names(main, main.inputs, model.input_names)
    results = _argument_names(main, main.outputs, model.output_names)
    tensors: dict[int, Tensor] = {}
    with locating(file, file):
        for index, name in zip(main.inputs, names, strict=True):
            info = main.tensors[index]
            _check_computed(info)
            tensors[index] = called_from(info.where, partial(input, name, info.shape, info.dtype))

        def net(*_: Tensor) -> dict[str, Tensor]:
            tensors.update(_Importer(model, rounding).run(main, tensors))
            return {n: _value(main, i, tensors) for n, i in zip(results, main.outputs, strict=True)}

        graph: Any = trace(net, *(tensors[i] for i in main.inputs))
    arguments = zip((*names, *results), (*main.inputs, *main.outputs), strict=True)
    graph = replace(graph, quantizations=_quantizations(main, dict(arguments)))
    return Imported(model, graph, {index: tensor.node for index, tensor in tensors.items()})


class _Importer:
    """Converts the subgraphs of one model, which call each other."""

    def __init__(self, model: Model, rounding: str) -> None:
        self._model = model
        self._context = Context(model, rounding, self._call)
        self._running: list[int] = [0]

    def run(self, subgraph: Subgraph, given: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """What each operator computes, by tensor index; `given` holds the subgraph's inputs."""
        values = dict(given)
        for info in subgraph.operators:
            operation = Operation(info, subgraph, values, self._context)
            results = called_from(info.where, partial(_convert, operation))
            for index, tensor in zip(info.outputs, results, strict=True):
                if index == ABSENT:
                    continue
                if index in values or subgraph.tensors[index].data is not None:
                    raise operation.error(f"tensor {subgraph.tensors[index].name!r} has a value already")
                values[index] = tensor
        return values

    def _call(self, number: int, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs of subgraph `number` over `inputs`."""
        if not 0 <= number < len(self._model.subgraphs) or number in self._running:
            what = "calls itself" if number in self._running else "is not in the file"
            raise DataError(f"subgraph {number} {what}", where=self._model.file)
        subgraph = self._model.subgraphs[number]
        if len(inputs) != len(subgraph.inputs):
            what = f"subgraph {number} takes {len(subgraph.inputs)} inputs, {len(inputs)} are given"
            raise DataError(what, where=self._model.file)
        self._running.append(number)
        try:
            values = self.run(subgraph, dict(zip(subgraph.inputs, inputs, strict=True)))
        finally:
            self._running.pop()
        return [_value(subgraph, index, values) for index in subgraph.outputs]


def _convert(op: Operation) -> Sequence[Tensor]:
    if op.name not in CONVERTERS:
        near = ", ".join(get_close_matches(op.name, CONVERTERS)) or "docs/tflite.md lists what is supported"
        raise op.error("this operator is not supported", hint=f"near: {near}")
    converter = CONVERTERS[op.name]
    if op.has_input(0) and op.input_info(0).dtype not in converter.dtypes:
        known = ", ".join(converter.dtypes)
        raise op.error(f"{op.input_info(0).dtype} operands are not supported", hint=f"supported: {known}")
    try:
        with locating(op.name, op.where), name_scope(_path(op)):
            made = converter.convert(op)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise op.error(f"operands and options do not fit together: {error}") from error
    results = (made,) if isinstance(made, Tensor) else tuple(made)
    if all(op.known(i) is not None for i in range(op.input_count) if op.has_input(i)):
        results = tuple(map(_folded, results))
    if len(results) != len(op.info.outputs):
        raise op.error(f"{len(op.info.outputs)} results, expected {len(results)}")
    for number, tensor in enumerate(results):
        _check_result(op, number, tensor)
    return results


def _folded(tensor: Tensor) -> Tensor:
    """A constant instead of what is computed from constants alone: weights, shapes, positions."""
    nodes = topological((tensor.node,))
    if len(nodes) == 1 or any(node.op.leaf and node.op is not CONSTANT for node in nodes):
        return tensor
    return constant(tensor.numpy())


def _check_result(op: Operation, number: int, tensor: Tensor) -> None:
    """The file says what each result is; where the operands say something else, one of them is wrong."""
    if op.info.outputs[number] == ABSENT:
        return
    info = op.output_info(number)
    if info.dtype == "resource":
        return  # a handle
    if (tensor.shape, tensor.dtype) != (info.shape, info.dtype):
        raise op.error(f"result {info.name!r} is {tensor.type}, the file says {info.dtype}{list(info.shape)}")


def _value(subgraph: Subgraph, index: int, tensors: Mapping[int, Tensor]) -> Tensor:
    info = subgraph.tensors[index]
    if index in tensors:
        return tensors[index]
    if info.data is None:
        raise DataError(f"output {info.name!r} is never computed", where=info.where)
    return constant(info.data)


def _check_computed(info: TensorInfo) -> None:
    if info.dtype == "resource" or 0 in info.shape:
        raise DataError(f"input {info.name!r} is {info.dtype}{list(info.shape)}", where=info.where)


def _quantizations(subgraph: Subgraph, arguments: Mapping[str, int]) -> dict[str, Quantization]:
    """Of the arguments that are quantised as a whole, given their tensors by name."""
    found = {name: subgraph.tensors[index] for name, index in arguments.items()}
    return {
        name: Quantization(info.scale, info.zero_point, info.dtype)
        for name, info in found.items()
        if info.quantization is not None and not info.quantization.per_channel and info.dtype in SMALL
        if info.scale > 0
    }


# ---- Names ------------------------------------------------------------------------------------------------


def _path(op: Operation) -> str:
    """The layer path of an operator: the name of its first result, without what no C comment should hold."""
    outputs = [i for i in op.info.outputs if i != ABSENT]
    name = op.subgraph.tensors[outputs[0]].name if outputs else op.name.lower()
    first = name.split(";")[0]
    parts = [re.sub(r"[^A-Za-z0-9_.]+", "_", part).strip("_.") for part in first.split("/")]
    return "/".join(part for part in parts if part) or f"op{op.info.index}"


def _argument_names(subgraph: Subgraph, indices: Iterable[int], given: Mapping[int, str]) -> list[str]:
    """Distinct C identifiers: the signature's names, or else those of the tensors."""
    names: list[str] = []
    for index in indices:
        text = given.get(index) or subgraph.tensors[index].name.split(";")[0].split("/")[-1]
        name = re.sub(r"[^A-Za-z0-9_]+", "_", text.removesuffix(":0")).strip("_").lower()
        name = name if re.match("[a-z]", name) else f"tensor_{name}".rstrip("_")
        number = sum(n == name or n.startswith(f"{name}_") for n in names)
        names.append(f"{name}_{number}" if name in names else name)
    return names
