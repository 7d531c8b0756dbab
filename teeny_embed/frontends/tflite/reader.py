"""From the bytes of a `.tflite` file to a `Model`. All is checked here: a file may be cut off or damaged.

The layout is that of FlatBuffers, the tables those of TensorFlow Lite's schema 3; the package `tflite` knows
both. It reads fields at computed offsets, so whatever it raises means that the bytes make no sense.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from inspect import signature
from math import prod
from re import sub
from typing import Any

import numpy as np

from teeny_embed.errors import DataError, ToolError
from teeny_embed.frontends.tflite.model import (
    ABSENT,
    Array,
    Model,
    OperatorInfo,
    Quantization,
    Subgraph,
    TensorInfo,
)

IDENTIFIER = b"TFL3"
MAX_RANK = 8
MAX_COUNT = 1 << 24
"""Elements of a tensor: more than a microcontroller holds, less than would hurt where files are read."""
DTYPES = {
    "FLOAT32": "float32", "FLOAT16": "float16", "FLOAT64": "float64", "BOOL": "bool", "INT4": "int4",
    "INT8": "int8", "UINT8": "uint8", "INT16": "int16", "UINT16": "uint16", "INT32": "int32",
    "UINT32": "uint32", "INT64": "int64", "UINT64": "uint64", "RESOURCE": "resource",
}  # fmt: skip
"""Element types by the schema's names; int4 holds int8 numbers once it is read, resource names a variable."""


_DAMAGE = (struct.error, ValueError, TypeError, LookupError, OverflowError, AttributeError)
"""What reading fields at offsets that make no sense raises."""


def schema() -> Any:
    """The package `tflite`. Raises ToolError where it is missing."""
    try:
        import tflite
    except ImportError as error:
        hint = 'pip install "teeny_embed[tflite]"'
        raise ToolError(f"reading .tflite files needs the package {error.name}", hint=hint) from None
    return tflite


def read_model(content: bytes, file: str) -> Model:
    """The model in `content`; `file` is what errors call it. Raises DataError."""
    if len(content) < 16 or content[4:8] != IDENTIFIER:
        raise DataError("this is no TensorFlow Lite model: the identifier TFL3 is missing", where=file)
    with _reading(file):
        return _Reader(content, file).model()


@contextmanager
def _reading(where: str) -> Iterator[None]:
    """What the bytes make impossible is damage."""
    try:
        yield
    except (
        struct.error,
        ValueError,
        TypeError,
        IndexError,
        OverflowError,
        KeyError,
        AttributeError,
    ) as error:
        raise DataError(f"the file is damaged: {error}", where=where) from error


class _Reader:
    def __init__(self, content: bytes, file: str) -> None:
        self.content, self.file = content, file
        self.tflite = schema()
        self.types = names_of(self.tflite.TensorType)
        self.operator_names = names_of(self.tflite.BuiltinOperator)
        self.option_names = names_of(self.tflite.BuiltinOptions)

    def model(self) -> Model:
        root = self.tflite.Model.GetRootAs(self.content, 0)
        if root.Version() != 3:
            raise DataError(f"schema version {root.Version()}, expected 3", where=self.file)
        self.buffers = [root.Buffers(i) for i in self._count(root.BuffersLength())]
        self.codes = [root.OperatorCodes(i) for i in self._count(root.OperatorCodesLength())]
        subgraphs = [root.Subgraphs(i) for i in self._count(root.SubgraphsLength())]
        if not subgraphs:
            raise DataError("the model has no subgraph", where=self.file)
        read = tuple(self._subgraph(number, each) for number, each in enumerate(subgraphs))
        inputs, outputs = self._signature(root, read[0])
        return Model(self.file, read, inputs, outputs)

    def _count(self, length: int) -> range:
        """Positions of a vector of `length` elements of at least four bytes."""
        if not 0 <= length <= len(self.content) // 4:
            raise DataError(f"the file is damaged: {length} entries in a list", where=self.file)
        return range(length)

    # ---- Subgraphs

    def _subgraph(self, number: int, table: Any) -> Subgraph:
        where = self.file if number == 0 else f"{self.file}:subgraph {number}"
        with _reading(where):
            tensors = tuple(
                self._tensor(i, table.Tensors(i), where) for i in self._count(table.TensorsLength())
            )
            operators = tuple(
                self._operator(i, table.Operators(i), len(tensors), f"{where}:op {i}")
                for i in self._count(table.OperatorsLength())
            )
            inputs = self._indices(table.InputsAsNumpy(), len(tensors), where)
            outputs = self._indices(table.OutputsAsNumpy(), len(tensors), where)
        if ABSENT in (*inputs, *outputs):
            raise DataError("an input or output of the subgraph is absent", where=where)
        return Subgraph(_text(table.Name()), tensors, inputs, outputs, operators)

    def _indices(self, values: Any, tensor_count: int, where: str) -> tuple[int, ...]:
        """Tensor numbers, or ABSENT."""
        found = tuple(_vector(values, np.int32).tolist())
        if wrong := [i for i in found if not ABSENT <= i < tensor_count]:
            raise DataError(f"tensor {wrong[0]} of {tensor_count} tensors", where=where)
        return found

    def _operator(self, number: int, table: Any, tensor_count: int, where: str) -> OperatorInfo:
        with _reading(where):
            at = table.OpcodeIndex()
            if not 0 <= at < len(self.codes):
                raise DataError(f"operator code {at} of {len(self.codes)}", where=where)
            code = self.codes[at]
            builtin = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
            name = self.operator_names.get(builtin, f"operator {builtin}")
            if name == "CUSTOM":
                name = _text(code.CustomCode())
            custom = _vector(table.CustomOptionsAsNumpy(), np.uint8).tobytes()
            return OperatorInfo(
                index=number,
                name=name,
                version=code.Version(),
                inputs=self._indices(table.InputsAsNumpy(), tensor_count, where),
                outputs=self._indices(table.OutputsAsNumpy(), tensor_count, where),
                intermediates=self._indices(table.IntermediatesAsNumpy(), tensor_count, where),
                options=custom_options(custom) if custom else self._options(table),
                custom_options=custom,
                where=where,
            )

    def _options(self, table: Any) -> Mapping[str, Any]:
        """Field by field: stride_w, fused_activation_function, ... Lists become arrays, texts str."""
        kind = self.option_names.get(table.BuiltinOptionsType(), "NONE")
        union = table.BuiltinOptions()
        if kind == "NONE" or union is None:
            return {}
        table_type = getattr(self.tflite, kind)
        options = table_type()
        options.Init(union.Bytes, union.Pos)
        return {field: read(options) for field, read in _fields(table_type).items()}

    # ---- Tensors

    def _tensor(self, number: int, table: Any, where: str) -> TensorInfo:
        name = _text(table.Name()) or f"tensor{number}"
        where = f"{where}:tensor {name}"
        with _reading(where):
            kind = self.types.get(table.Type(), f"type {table.Type()}")
            if kind not in DTYPES:
                raise DataError(f"elements of {kind} are not supported", where=where)
            if table.Sparsity() is not None:
                raise DataError("sparse tensors are not supported", where=where)
            dtype = DTYPES[kind]
            shape = self._shape(table, where)
            data = self._data(table.Buffer(), shape, dtype, where)
            return TensorInfo(
                index=number,
                name=name,
                shape=shape,
                dtype="int8" if dtype == "int4" else dtype,
                quantization=self._quantization(table.Quantization(), shape, dtype, where),
                data=data,
                is_variable=bool(table.IsVariable()),
                where=where,
            )

    def _shape(self, table: Any, where: str) -> tuple[int, ...]:
        rank = table.ShapeLength()
        if rank > MAX_RANK:
            raise DataError(f"rank {rank}, at most {MAX_RANK} is supported", where=where)
        shape = tuple(_vector(table.ShapeAsNumpy(), np.int32).tolist())
        if any(extent < 0 for extent in shape):
            raise DataError(f"shape {list(shape)} makes no tensor", where=where)
        if prod(shape) > MAX_COUNT:
            raise DataError(f"shape {list(shape)} has more than {MAX_COUNT} elements", where=where)
        return shape

    def _data(self, buffer: int, shape: tuple[int, ...], dtype: str, where: str) -> Array | None:
        """A copy of the constant value, None where there is none."""
        if not 0 <= buffer < len(self.buffers):
            raise DataError(f"buffer {buffer} of {len(self.buffers)}", where=where)
        table = self.buffers[buffer]
        if table.Offset() > 1 or table.Size() > 1:
            raise DataError("data outside the FlatBuffer is not supported", where=where)
        content = _vector(table.DataAsNumpy(), np.uint8)
        if content.size == 0:
            return None
        if dtype == "resource":
            raise DataError("a resource has no data", where=where)
        count = prod(shape)
        size_bytes = (count + 1) // 2 if dtype == "int4" else count * np.dtype(dtype).itemsize
        if content.size != size_bytes:
            what = f"{dtype}{list(shape)} takes {size_bytes} bytes, its buffer has {content.size}"
            raise DataError(what, where=where)
        if dtype == "int4":
            return unpack_int4(content, count).reshape(shape)
        if dtype == "bool":
            return np.not_equal(content, 0).reshape(shape)
        stored = np.frombuffer(content.tobytes(), np.dtype(dtype).newbyteorder("<"))
        return np.asarray(stored.astype(dtype).reshape(shape))

    def _quantization(
        self, table: Any, shape: tuple[int, ...], dtype: str, where: str
    ) -> Quantization | None:
        if table is None or table.ScaleLength() == 0:
            return None
        scales = _vector(table.ScaleAsNumpy(), np.float32)
        zero_points = _vector(table.ZeroPointAsNumpy(), np.int64)
        # A list has one axis; converters have written other numbers there, which TFLite Micro does not read.
        axis = 0 if len(shape) == 1 else table.QuantizedDimension()
        if zero_points.size == 0:
            zero_points = np.zeros(scales.size, np.int64)
        if zero_points.size == 1:
            zero_points = np.repeat(zero_points, scales.size)
        if zero_points.size != scales.size:
            raise DataError(f"{scales.size} scales and {zero_points.size} zero points", where=where)
        if scales.size > 1 and not (0 <= axis < len(shape) and shape[axis] == scales.size):
            what = f"{scales.size} scales along axis {axis} of shape {list(shape)}"
            raise DataError(what, where=where)
        if not (np.isfinite(scales).all() and (scales >= 0).all()):
            raise DataError("a scale is negative or not finite", where=where)
        info = np.iinfo("int32" if dtype not in ("int8", "uint8", "int16") else dtype)
        if not ((zero_points >= info.min) & (zero_points <= info.max)).all():
            raise DataError(f"a zero point is no {dtype}", where=where)
        return Quantization(scales, zero_points, axis)

    # ---- Signature

    def _signature(self, root: Any, main: Subgraph) -> tuple[dict[int, str], dict[int, str]]:
        """The names of the first signature of subgraph 0, by tensor index."""
        for i in self._count(root.SignatureDefsLength()):
            found = root.SignatureDefs(i)
            if found.SubgraphIndex() == 0:
                return (
                    self._names_of(found.Inputs, found.InputsLength(), main),
                    self._names_of(found.Outputs, found.OutputsLength(), main),
                )
        return {}, {}

    def _names_of(self, entry: Callable[[int], Any], length: int, main: Subgraph) -> dict[int, str]:
        names = {entry(i).TensorIndex(): _text(entry(i).Name()) for i in self._count(length)}
        if wrong := [i for i in names if not 0 <= i < len(main.tensors)]:
            raise DataError(f"the signature names tensor {wrong[0]}", where=self.file)
        return names


def custom_options(content: bytes) -> dict[str, Any]:
    """The fields of a custom operator's FlexBuffer map; none if its options are something else."""
    from flatbuffers import flexbuffers

    try:
        found = flexbuffers.Loads(content)
    except (*_DAMAGE, AssertionError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def unpack_int4(content: Array, count: int) -> Array:
    """int8 [count] of numbers stored two in a byte, the first in the low half."""
    both = np.stack([content & 15, content >> 4], axis=-1).reshape(-1)[:count].astype(np.int8)
    return (both ^ 8) - 8


def _vector(values: Any, dtype: Any) -> Array:
    """A vector as the schema package gives it: an array, or 0 for an absent one."""
    return np.zeros(0, dtype) if isinstance(values, int) else np.array(values, dtype)


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "replace")


@cache
def names_of(enumeration: type) -> dict[int, str]:
    """Names by number of an enumeration."""
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}


@cache
def _fields(table: type) -> Mapping[str, Callable[[Any], Any]]:
    """How to read each field of an options table, by its name in the schema."""
    fields: dict[str, Callable[[Any], Any]] = {}
    methods = {
        name: m
        for name, m in vars(table).items()
        if callable(m) and list(signature(m).parameters) == ["self"]
    }
    for name, method in methods.items():
        if name.endswith(("AsNumpy", "Length", "IsNone")):
            continue
        fields[_snake(name)] = method
    for name, method in methods.items():
        if name.endswith("AsNumpy"):
            fields[_snake(name.removesuffix("AsNumpy"))] = method
    return fields


def _snake(name: str) -> str:
    return sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
