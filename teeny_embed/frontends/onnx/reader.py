"""From the bytes of a file to a `Model`, by the package onnx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from teeny_embed.errors import DataError, ToolError
from teeny_embed.frontends.onnx.model import Argument, Array, Model, Operator

OWN = ("", "ai.onnx")
_OLDEST = 6


def onnx_package() -> Any:
    """The package `onnx`. Raises ToolError where it is missing."""
    try:
        import onnx
        import onnx.reference
    except ImportError as error:
        hint = 'pip install "teeny_embed[onnx]"'
        raise ToolError(f".onnx files need the package {error.name}", hint=hint) from None
    return onnx


def read_model(content: bytes, file: str) -> Model:
    """Raises DataError for what is no ONNX model, or one that this package does not know."""
    onnx = onnx_package()
    try:
        proto = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's own, and what onnx makes of them
        raise DataError(f"this is no ONNX model: {_first_line(error)}", file) from None
    try:
        return _read(onnx, proto, file)
    except DataError:
        raise
    except Exception as error:  # whatever a damaged file makes onnx's own helpers raise
        raise DataError(f"the model is damaged: {_first_line(error)}", file) from error


def _read(onnx: Any, proto: Any, file: str) -> Model:
    versions = {o.domain: o.version for o in proto.opset_import}
    version = max((versions[d] for d in OWN if d in versions), default=0)
    newest = onnx.defs.onnx_opset_version()
    graph = proto.graph
    if not version <= newest or any(_has_changed(onnx, n, version) for n in graph.node):
        hint = f"{_OLDEST} to {newest} are; onnx.version_converter makes one of the other"
        raise DataError(f"operators of version {version} are not supported", file, hint)
    stored = {t.name: _array(onnx, t, file) for t in graph.initializer}
    if graph.sparse_initializer:
        raise DataError("sparse initializers are not supported", file)
    inputs = tuple(_argument(onnx, i, file) for i in graph.input if i.name not in stored)
    operators = tuple(_operator(onnx, n, proto, file) for n in graph.node)
    outputs = tuple(o.name for o in graph.output)
    if not outputs:
        raise DataError("the model has no output", file)
    _check_order(inputs, stored, operators, outputs, file)
    return Model(file, version, inputs, outputs, stored, operators)


def _has_changed(onnx: Any, node: Any, version: int) -> bool:
    """Whether the node is of a version that is too old: the operator was another before the oldest."""
    if version >= _OLDEST or node.domain not in OWN:
        return version < 1
    try:
        then, later = (
            onnx.defs.get_schema(node.op_type, max_inclusive_version=v).since_version
            for v in (version, _OLDEST)
        )
    except onnx.defs.SchemaError:
        return True
    return bool(then != later)


def _check_order(
    inputs: Sequence[Argument],
    stored: Mapping[str, Array],
    operators: Sequence[Operator],
    outputs: Sequence[str],
    file: str,
) -> None:
    """Each tensor is made once, and before it is read: so there is no cycle."""
    made = {"", *stored, *(i.name for i in inputs)}
    for op in operators:
        if missing := [name for name in op.inputs if name not in made]:
            raise DataError(f"{op.kind} reads {missing[0]!r}, which nothing before it computes", op.path)
        if again := [name for name in op.outputs if name and name in made]:
            raise DataError(f"{op.kind} computes {again[0]!r} a second time", op.path)
        made |= set(op.outputs)
    if missing := [name for name in outputs if name not in made]:
        raise DataError(f"nothing computes the output {missing[0]!r}", file)


def _argument(onnx: Any, value: Any, file: str) -> Argument:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise DataError(f"input {value.name!r} is no tensor", file)
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        raise DataError(f"input {value.name!r} has no shape", file, "export the model with its shapes")
    shape: list[int | str] = []
    for axis, d in enumerate(tensor.shape.dim):
        shape.append(d.dim_value if d.HasField("dim_value") else d.dim_param or f"{value.name}_{axis}")
    return Argument(value.name, tuple(shape), _dtype(onnx, tensor.elem_type, value.name, file))


def _dtype(onnx: Any, number: int, name: str, file: str) -> str:
    found = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))
    if found.kind not in "fiub":
        raise DataError(f"{name!r} is {found}, which no tensor is", file)
    return str(found.name)


def _array(onnx: Any, tensor: Any, where: str) -> Array:
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        hint = "onnx.save(onnx.load(path), path) puts everything into one file"
        raise DataError(f"{tensor.name!r} lies in another file", where, hint)
    found: Array = onnx.numpy_helper.to_array(tensor)
    return found


def _operator(onnx: Any, node: Any, proto: Any, file: str) -> Operator:
    kind = node.op_type if node.domain in OWN else f"{node.domain}.{node.op_type}"
    attributes = {a.name: _attribute(onnx, a, node.name or file) for a in node.attribute}
    evaluate = partial(_evaluated, onnx, node, list(proto.opset_import))
    return Operator(node.name, kind, tuple(node.input), tuple(node.output), attributes, evaluate)


def _attribute(onnx: Any, attribute: Any, where: str) -> Any:
    """A number, text, array, or a list of these."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.TensorProto):
        return _array(onnx, value, where)
    if isinstance(value, list | tuple) or type(value).__name__.startswith("Repeated"):
        return [v.decode(errors="replace") if isinstance(v, bytes) else v for v in value]
    return value


def _evaluated(onnx: Any, node: Any, opsets: Any, given: Mapping[str, Array]) -> list[Array]:
    """One node by ONNX's reference implementation, by that of the newest version where it has none older."""
    helper = onnx.helper
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", inputs, outputs)
    try:
        model = helper.make_model(graph, opset_imports=opsets)
        results = onnx.reference.ReferenceEvaluator(model).run(None, dict(given))
    except Exception:  # of several types, where the version has no implementation
        results = onnx.reference.ReferenceEvaluator(helper.make_model(graph)).run(None, dict(given))
    return [np.asarray(v) for v in results]


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
