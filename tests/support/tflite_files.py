"""Small `.tflite` files, written for tests: one subgraph of a few operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite
from flatbuffers import flexbuffers

Array = npt.NDArray[Any]
_TYPES = {
    "float32": "FLOAT32", "float16": "FLOAT16", "int4": "INT4", "int8": "INT8", "uint8": "UINT8",
    "int16": "INT16", "int32": "INT32", "int64": "INT64", "bool": "BOOL", "uint32": "UINT32",
    "uint64": "UINT64",
    "resource": "RESOURCE",
}  # fmt: skip


@dataclass
class T:
    """A tensor: its type, its constant value, its quantisation."""

    shape: Sequence[int]
    dtype: str = "float32"
    data: Any = None
    scale: float | Sequence[float] | None = None
    zero_point: int | Sequence[int] = 0
    axis: int = 0
    name: str = ""
    is_variable: bool = False

    def content(self) -> bytes:
        if self.data is None:
            return b""
        if self.dtype == "int4":
            flat = np.asarray(self.data, np.int8).reshape(-1) & 15
            flat = np.append(flat, 0) if flat.size % 2 else flat
            return (flat[::2] | flat[1::2] << 4).astype(np.uint8).tobytes()
        return np.asarray(self.data, self.dtype).tobytes()


@dataclass
class Op:
    """An operator over tensor numbers; -1 is an operand left out. `options` are fields of its table."""

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: Mapping[str, Any] = field(default_factory=dict)
    options_table: str = ""
    """None for a custom operator, whose options are a FlexBuffer map."""


def constant(data: Any, dtype: str = "int32", **more: Any) -> T:
    """A tensor with a value."""
    array = np.asarray(data, "int8" if dtype == "int4" else dtype)
    return T(array.shape, dtype, array, **more)


@dataclass
class Graph:
    """A subgraph."""

    tensors: Sequence[T]
    operators: Sequence[Op]
    inputs: Sequence[int]
    outputs: Sequence[int]


def model(
    tensors: Sequence[T], operators: Sequence[Op], inputs: Sequence[int], outputs: Sequence[int]
) -> bytes:
    """A file with one subgraph."""
    return file([Graph(tensors, operators, inputs, outputs)])


def file(
    graphs: Sequence[Graph],
    input_names: Mapping[str, int] | None = None,
    output_names: Mapping[str, int] | None = None,
) -> bytes:
    """A file with these subgraphs, and a signature of the first where names are given."""
    return _Writer().file(graphs, input_names or {}, output_names or {})


class _Writer:
    def __init__(self) -> None:
        self.b = flatbuffers.Builder(1024)
        self.buffers: list[bytes] = [b""]

    def file(
        self, graphs: Sequence[Graph], input_names: Mapping[str, int], output_names: Mapping[str, int]
    ) -> bytes:
        names = list(dict.fromkeys(op.name for g in graphs for op in g.operators))
        subgraphs = [self.subgraph(g, names) for g in graphs]
        codes = [self.code(name) for name in names]
        buffers = [self.buffer(content) for content in self.buffers]
        signatures = []
        if input_names or output_names:
            maps = {"Inputs": self.names(input_names), "Outputs": self.names(output_names)}
            signatures = [self.table("SignatureDef", **maps, SubgraphIndex=0)]
        root = self.table(
            "Model",
            Version=3,
            OperatorCodes=self.tables(codes),
            Subgraphs=self.tables(subgraphs),
            Buffers=self.tables(buffers),
            SignatureDefs=self.tables(signatures),
        )
        self.b.Finish(root, b"TFL3")
        return bytes(self.b.Output())

    def table(self, kind: str, **fields: Any) -> int:
        getattr(tflite, f"{kind}Start")(self.b)
        for name, value in fields.items():
            if value is not None:
                getattr(tflite, f"{kind}Add{name}")(self.b, value)
        end: int = getattr(tflite, f"{kind}End")(self.b)
        return end

    def vector(self, values: Any, dtype: str) -> int:
        end: int = self.b.CreateNumpyVector(np.asarray(values, dtype).reshape(-1))
        return end

    def tables(self, offsets: Sequence[int]) -> int:
        self.b.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.b.PrependUOffsetTRelative(offset)
        end: int = self.b.EndVector()
        return end

    def names(self, tensors: Mapping[str, int]) -> int:
        texts = {self.b.CreateString(name): index for name, index in tensors.items()}
        return self.tables([self.table("TensorMap", Name=n, TensorIndex=i) for n, i in texts.items()])

    def code(self, name: str) -> int:
        number = getattr(tflite.BuiltinOperator, name, tflite.BuiltinOperator.CUSTOM)
        custom = self.b.CreateString(name) if number == tflite.BuiltinOperator.CUSTOM else None
        return self.table(
            "OperatorCode",
            DeprecatedBuiltinCode=min(number, 127),
            CustomCode=custom,
            Version=1,
            BuiltinCode=number,
        )

    def buffer(self, content: bytes) -> int:
        self.b.StartVector(1, len(content), 16)
        self.b.head -= len(content)
        self.b.Bytes[self.b.head : self.b.head + len(content)] = content
        data = self.b.EndVector()
        return self.table("Buffer", Data=data if content else None)

    def subgraph(self, graph: Graph, names: Sequence[str]) -> int:
        tensors = [self.tensor(i, t) for i, t in enumerate(graph.tensors)]
        operators = [self.operator(op, names.index(op.name)) for op in graph.operators]
        return self.table(
            "SubGraph",
            Tensors=self.tables(tensors),
            Inputs=self.vector(graph.inputs, "int32"),
            Outputs=self.vector(graph.outputs, "int32"),
            Operators=self.tables(operators),
        )

    def tensor(self, number: int, t: T) -> int:
        content = t.content()
        self.buffers.append(content)
        at = len(self.buffers) - 1
        quantization = None
        if t.scale is not None:
            scales = np.atleast_1d(np.asarray(t.scale, "float32"))
            zero_points = np.broadcast_to(np.asarray(t.zero_point, "int64"), scales.shape)
            quantization = self.table(
                "QuantizationParameters",
                Scale=self.vector(scales, "float32"),
                ZeroPoint=self.vector(zero_points, "int64"),
                QuantizedDimension=t.axis,
            )
        return self.table(
            "Tensor",
            Shape=self.vector(t.shape, "int32"),
            Type=getattr(tflite.TensorType, _TYPES[t.dtype]),
            Buffer=at,
            Name=self.b.CreateString(t.name or f"t{number}"),
            Quantization=quantization,
            IsVariable=t.is_variable,
        )

    def operator(self, op: Op, code: int) -> int:
        kind = op.options_table
        options = None
        if kind:
            fields = {
                name: self.b.CreateString(v) if isinstance(v, str)
                else self.vector(v, "int32") if isinstance(v, list | tuple) else v
                for name, v in op.options.items()
            }  # fmt: skip
            options = self.table(kind, **fields)
        custom = None
        if not kind and op.options:
            custom = self.vector(np.frombuffer(bytes(flexbuffers.Dumps(dict(op.options))), np.uint8), "uint8")
        return self.table(
            "Operator",
            OpcodeIndex=code,
            Inputs=self.vector(op.inputs, "int32"),
            Outputs=self.vector(op.outputs, "int32"),
            BuiltinOptionsType=getattr(tflite.BuiltinOptions, kind) if kind else None,
            BuiltinOptions=options,
            CustomOptions=custom,
        )
