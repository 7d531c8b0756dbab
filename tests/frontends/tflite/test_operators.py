"""Operator by operator against the TFLite Micro interpreter: integers equal in every bit, floats near."""
# ruff: noqa: E501  (a case is a line)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.compilers import WARNINGS
from support.process import sanitized
from support.tflite import Runner, assert_equals_micro, random_inputs
from support.tflite_files import Op, T, constant, model
from teeny_embed.api import Build, Program, build
from teeny_embed.deploy.host import HostLibrary
from teeny_embed.deploy.reference import ReferenceRunner
from teeny_embed.deploy.runner import Runner as RunnerOfEntries
from teeny_embed.frontends.tflite import Imported, import_model


@dataclass
class Case:
    """One operator: its operands (those without data are inputs) and results."""

    op: str
    operands: Sequence[T]
    results: Sequence[T]
    table: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    low: float | None = None
    """Smallest input, where the operator is not defined everywhere."""

    def content(self) -> bytes:
        tensors = [*self.operands, *self.results]
        count = len(self.operands)
        outputs = list(range(count, len(tensors)))
        inputs = [i for i in range(count) if self.operands[i].data is None]
        return model(
            tensors, [Op(self.op, list(range(count)), outputs, self.options, self.table)], inputs, outputs
        )

    def __str__(self) -> str:
        first = next((t for t in self.operands if t.data is None), self.operands[0])
        return "-".join(filter(None, (self.op, first.dtype, self.label)))


F32 = T((2, 3, 4))
Q8 = T((2, 3, 4), "int8", scale=0.05, zero_point=-7)
Q8B = T((2, 3, 4), "int8", scale=0.11, zero_point=12)
Q16 = T((2, 3, 4), "int16", scale=0.0003)
Q16B = T((2, 3, 4), "int16", scale=0.0007)
I32 = T((2, 3, 4), "int32")
BOOL = T((2, 3, 4), "bool")


def like(t: T, shape: Sequence[int] | None = None, **changes: Any) -> T:
    """`t` with another shape or quantisation."""
    return T(**{**vars(t), "shape": t.shape if shape is None else shape, **changes})


def q8(shape: Sequence[int], scale: Any = 0.05, zero_point: int = -7, **more: Any) -> T:
    return T(shape, "int8", scale=scale, zero_point=zero_point, **more)


def q16(shape: Sequence[int], scale: Any = 0.0003, **more: Any) -> T:
    return T(shape, "int16", scale=scale, **more)


def weights(shape: Sequence[int], seed: int = 0, bits: int = 8) -> Any:
    limit = (1 << (bits - 1)) - 1
    return np.random.default_rng(seed).integers(-limit, limit + 1, shape)


def binary() -> list[Case]:
    found = []
    row = like(Q8B, (4,))
    for op, table in (("ADD", "AddOptions"), ("SUB", "SubOptions"), ("MUL", "MulOptions")):
        for activation in (0, 1, 3):
            options = {"FusedActivationFunction": activation}
            label = f"activation{activation}"
            found += [
                Case(op, [F32, F32], [F32], table, options, label),
                Case(op, [Q8, Q8B], [q8((2, 3, 4), 0.3, 5)], table, options, label),
                Case(op, [Q16, Q16B], [q16((2, 3, 4), 0.002)], table, options, label),
            ]
        found += [
            Case(op, [Q8, row], [q8((2, 3, 4), 0.3, 5)], table, {}, "broadcast"),
            Case(op, [I32, I32], [I32], table, {}),
        ]
    found += [
        Case("DIV", [F32, F32], [F32], "DivOptions"),
        Case("DIV", [q8((2, 3, 4), 0.05, -128), constant(weights((2, 3, 4), bits=4) | 1, "int8", scale=0.1)], [q8((2, 3, 4), 0.4, 5)], "DivOptions", low=-100),
        Case("SQUARED_DIFFERENCE", [F32, F32], [F32], "SquaredDifferenceOptions"),
        Case("SQUARED_DIFFERENCE", [Q8, Q8B], [q8((2, 3, 4), 0.9, -128)], "SquaredDifferenceOptions"),
        Case("SQUARED_DIFFERENCE", [Q16, Q16B], [q16((2, 3, 4), 0.02)], "SquaredDifferenceOptions"),
        Case("ADD_N", [F32, F32, F32], [F32], "AddNOptions"),
        Case("ADD_N", [q8((9,), zero_point=0)] * 3, [q8((9,), 0.2, 3)], "AddNOptions"),
        Case("FLOOR_DIV", [F32, F32], [F32], "FloorDivOptions"),
        Case("FLOOR_MOD", [F32, F32], [F32], "FloorModOptions"),
        Case("LOGICAL_AND", [BOOL, BOOL], [BOOL], "LogicalAndOptions"),
        Case("LOGICAL_OR", [BOOL, BOOL], [BOOL], "LogicalOrOptions"),
        Case("SELECT_V2", [BOOL, F32, F32], [F32], "SelectV2Options"),
        Case("SELECT_V2", [BOOL, Q8, Q8], [Q8], "SelectV2Options", label="int8"),
    ]
    for op in ("MAXIMUM", "MINIMUM"):
        found += [Case(op, [t, t], [t], "MaximumMinimumOptions") for t in (F32, Q8, I32)]
    for op in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"):
        table = op.title().replace("_", "") + "Options"
        found += [Case(op, [t, u], [BOOL], table) for t, u in ((F32, F32), (Q8, Q8B), (I32, I32))]
    return found


def unary() -> list[Case]:
    third = 1 / 3
    found = [
        Case("RELU", [F32], [F32]), Case("RELU", [Q8], [q8((2, 3, 4), 0.03, -100)]), Case("RELU", [Q8], [Q8], label="same"),
        Case("RELU", [Q16], [q16((2, 3, 4), 0.0005)]),
        Case("RELU6", [F32], [F32]), Case("RELU6", [Q8], [Q8]), Case("RELU6", [Q16], [Q16]),
        Case("LEAKY_RELU", [F32], [F32], "LeakyReluOptions", {"Alpha": third}),
        Case("LEAKY_RELU", [Q8], [q8((2, 3, 4), 0.03, 4)], "LeakyReluOptions", {"Alpha": third}),
        Case("LEAKY_RELU", [Q16], [q16((2, 3, 4), 0.0004)], "LeakyReluOptions", {"Alpha": third}),
        Case("PRELU", [F32, T((4,))], [F32]),
        Case("PRELU", [Q8, constant(weights((4,)), "int8", scale=0.01, zero_point=3)], [q8((2, 3, 4), 0.03, 4)]),
        Case("LOGISTIC", [F32], [F32]), Case("LOGISTIC", [Q8], [q8((2, 3, 4), 1 / 256, -128)]),
        Case("LOGISTIC", [q16((65536,))], [q16((65536,), 2**-15)]),
        Case("LOGISTIC", [q16((65536,), 2**-12)], [q16((65536,), 2**-15)], label="power"),
        Case("TANH", [F32], [F32]), Case("TANH", [Q8], [q8((2, 3, 4), 1 / 128, 0)]),
        Case("TANH", [q16((65536,))], [q16((65536,), 2**-15)]),
        Case("TANH", [q16((65536,), 2**-12)], [q16((65536,), 2**-15)], label="power"),
        Case("TANH", [q16((65536,), 2**-11)], [q16((65536,), 2**-15)], label="power11"),
        Case("ELU", [F32], [F32]), Case("ELU", [q8((1024,), 0.03, 5)], [q8((1024,), 0.02, -77)]),
        Case("HARD_SWISH", [F32], [F32]), Case("HARD_SWISH", [q8((1024,), 0.06, 5)], [q8((1024,), 0.04, -100)]),
        Case("HARD_SWISH", [q8((1024,), 0.2, 5)], [q8((1024,), 0.21, -100)], label="wide"),
        Case("ABS", [F32], [F32], "AbsOptions"), Case("ABS", [Q8], [q8((2, 3, 4), 0.06, -128)], "AbsOptions"),
        Case("ABS", [Q8], [Q8], "AbsOptions", label="same"), Case("ABS", [Q16], [q16((2, 3, 4), 0.0004)], "AbsOptions"),
        Case("RSQRT", [F32], [F32], low=0.1), Case("RSQRT", [q8((1024,), 0.1, -128)], [q8((1024,), 0.02, -128)]),
        Case("RSQRT", [q16((1024,), 0.001)], [q16((1024,), 0.0003)], low=0),
        Case("NEG", [F32], [F32], "NegOptions"), Case("SQUARE", [F32], [F32], "SquareOptions"),
        Case("EXP", [F32], [F32], "ExpOptions"), Case("LOG", [F32], [F32], low=0.1), Case("SQRT", [F32], [F32], low=0.1),
        Case("SIN", [F32], [F32]), Case("COS", [F32], [F32], "CosOptions"), Case("CEIL", [F32], [F32]),
        Case("FLOOR", [F32], [F32]), Case("ROUND", [F32], [F32]), Case("LOGICAL_NOT", [BOOL], [BOOL], "LogicalNotOptions"),
        Case("QUANTIZE", [F32], [q8((2, 3, 4), 0.01, 3)], "QuantizeOptions"), Case("QUANTIZE", [F32], [Q16], "QuantizeOptions", label="int16"),
        Case("QUANTIZE", [Q8], [Q8B], "QuantizeOptions"), Case("QUANTIZE", [Q8], [Q16], "QuantizeOptions", label="int16"),
        Case("QUANTIZE", [Q16], [Q8], "QuantizeOptions"), Case("QUANTIZE", [Q8], [like(I32, scale=1e-4)], "QuantizeOptions", label="int32"),
        Case("QUANTIZE", [T((64,), "uint8", scale=0.02, zero_point=128)], [q8((64,), 0.02, 0)], "QuantizeOptions"),
        Case("DEQUANTIZE", [Q8], [F32], "DequantizeOptions"), Case("DEQUANTIZE", [Q16], [F32], "DequantizeOptions"),
        Case("CAST", [F32], [I32], "CastOptions"), Case("CAST", [I32], [F32], "CastOptions"), Case("CAST", [Q8], [F32], "CastOptions"),
        Case("CAST", [BOOL], [F32], "CastOptions"), Case("ZEROS_LIKE", [F32], [F32], "ZerosLikeOptions"),
    ]  # fmt: skip
    return found


def normalization() -> list[Case]:
    found = [
        Case("SOFTMAX", [T((3, 10))], [T((3, 10))], "SoftmaxOptions", {"Beta": 0.7}),
        Case("LOG_SOFTMAX", [T((3, 10))], [T((3, 10))], "LogSoftmaxOptions"),
        Case("L2_NORMALIZATION", [T((3, 10))], [T((3, 10))], "L2NormOptions"),
        Case("L2_NORMALIZATION", [q8((30, 10), 0.1, 3)], [q8((30, 10), 1 / 128, 0)], "L2NormOptions"),
    ]
    for scale in (0.004, 0.05, 0.4):
        label = f"scale{scale}"
        x = q8((30, 10), scale, 3)
        found += [
            Case("SOFTMAX", [x], [q8((30, 10), 1 / 256, -128)], "SoftmaxOptions", {"Beta": 1.0}, label),
            Case("LOG_SOFTMAX", [x], [q8((30, 10), 1 / 16, 127)], "LogSoftmaxOptions", {}, label),
            Case("SOFTMAX", [x], [T((30, 10), "int16", scale=2**-16, zero_point=-32768)], "SoftmaxOptions", {"Beta": 1.0}, f"{label}-int16"),
            Case("SOFTMAX", [q16((30, 10), scale / 100)], [q16((30, 10), 2**-15)], "SoftmaxOptions", {"Beta": 1.0}, label),
        ]  # fmt: skip
    return found


def reductions() -> list[Case]:
    found = []
    for axes, keep, shape in (((1,), True, (2, 1, 4)), ((0, 2), False, (3,)), ((-1,), False, (2, 3))):
        options, axis, label = {"KeepDims": keep}, constant(axes), f"axes{axes}"
        for op in ("MEAN", "SUM", "REDUCE_MAX"):
            outputs = [T(shape), q8(shape, 0.05 if op == "REDUCE_MAX" else 0.13, -7)]
            found += [Case(op, [t, axis], [o], "ReducerOptions", options, label) for t, o in zip((F32, Q8), outputs, strict=True)]  # fmt: skip
    found += [
        Case("MEAN", [q8((1, 5, 7, 3)), constant([1, 2])], [q8((1, 1, 1, 3))], "ReducerOptions", {"KeepDims": True}, "image"),
        Case("MEAN", [q8((1, 5, 7, 3)), constant([1, 2])], [q8((1, 3), 0.04, 3)], "ReducerOptions", {"KeepDims": False}, "image-flat"),
        Case("MEAN", [q16((1, 5, 7, 3)), constant([1, 2])], [q16((1, 1, 1, 3), 0.0002)], "ReducerOptions", {"KeepDims": True}, "image"),
        Case("ARG_MAX", [F32, constant(1)], [T((2, 4), "int32")], "ArgMaxOptions", {"OutputType": 2}),
        Case("ARG_MAX", [Q8, constant(-1)], [T((2, 3), "int32")], "ArgMaxOptions", {"OutputType": 2}),
        Case("ARG_MIN", [F32, constant(1)], [T((2, 4), "int32")], "ArgMinOptions", {"OutputType": 2}),
        Case("ARG_MIN", [Q8, constant(-1)], [T((2, 3), "int32")], "ArgMinOptions", {"OutputType": 2}),
    ]  # fmt: skip
    found.append(Case("REDUCE_ALL", [T((40, 3), "bool"), constant([1])], [T((40,), "bool")], "ReducerOptions", {"KeepDims": False}))
    found.append(Case("REDUCE_MIN", [F32, constant([1])], [T((2, 1, 4))], "ReducerOptions", {"KeepDims": True}))
    found.append(Case("REDUCE_MIN", [Q8, constant([1])], [q8((2, 4))], "ReducerOptions", {"KeepDims": False}))
    for exclusive in (False, True):
        for backwards in (False, True):
            options = {"Exclusive": exclusive, "Reverse": backwards}
            label = f"{exclusive}{backwards}"
            found.append(Case("CUMSUM", [F32, constant(1)], [F32], "CumsumOptions", options, label))
            found.append(Case("CUMSUM", [q8((2, 9, 4), zero_point=0), constant(1)], [q8((2, 9, 4), 0.2, 3)], "CumsumOptions", options, label))
    return found


def movement() -> list[Case]:
    image, image8 = T((1, 4, 6, 8)), q8((1, 4, 6, 8))
    found = []
    for x in (image, image8):
        found += [
            Case("RESHAPE", [x, constant([1, 24, 8])], [like(x, (1, 24, 8))], "ReshapeOptions"),
            Case("SQUEEZE", [x], [like(x, (4, 6, 8))], "SqueezeOptions", {"SqueezeDims": [0]}),
            Case("EXPAND_DIMS", [x, constant(0)], [like(x, (1, 1, 4, 6, 8))], "ExpandDimsOptions"),
            Case("TRANSPOSE", [x, constant([0, 3, 1, 2])], [like(x, (1, 8, 4, 6))], "TransposeOptions"),
            Case("CONCATENATION", [x, x], [like(x, (1, 4, 12, 8))], "ConcatenationOptions", {"Axis": 2}),
            Case("PACK", [x, x], [like(x, (1, 2, 4, 6, 8))], "PackOptions", {"Axis": 1, "ValuesCount": 2}),
            Case("UNPACK", [x], [like(x, (1, 6, 8))] * 4, "UnpackOptions", {"Axis": 1, "Num": 4}),
            Case("SPLIT", [constant(3), x], [like(x, (1, 4, 6, 4))] * 2, "SplitOptions", {"NumSplits": 2}),
            Case("SPLIT_V", [x, constant([1, 3]), constant(1)], [like(x, (1, 1, 6, 8)), like(x, (1, 3, 6, 8))], "SplitVOptions", {"NumSplits": 2}),
            Case("SLICE", [x, constant([0, 1, 2, 0]), constant([1, 2, 3, -1])], [like(x, (1, 2, 3, 8))], "SliceOptions"),
            Case("STRIDED_SLICE", [x, constant([0, 1, 0, 7]), constant([1, 4, 6, 0]), constant([1, 2, 1, -3])], [like(x, (1, 2, 6, 3))], "StridedSliceOptions"),
            Case("STRIDED_SLICE", [x, constant([0, -1, 1, 0]), constant([0, 0, -1, 0]), constant([1, 1, 2, 1])], [like(x, (2, 8))], "StridedSliceOptions", {"BeginMask": 8, "EndMask": 8, "ShrinkAxisMask": 3}, "masks"),
            Case("GATHER", [x, constant([3, 0, 0])], [like(x, (1, 3, 6, 8))], "GatherOptions", {"Axis": 1}),
            Case("GATHER", [like(x, (2, 5, 3)), constant([[4, 0], [1, 1]])], [like(x, (2, 2, 3))], "GatherOptions", {"Axis": 1, "BatchDims": 1}, "samples"),
            Case("GATHER_ND", [x, constant([[0, 3], [0, 1]])], [like(x, (2, 6, 8))], "GatherNdOptions"),
            Case("PAD", [x, constant([[0, 0], [1, 2], [0, 1], [0, 0]])], [like(x, (1, 7, 7, 8))], "PadOptions"),
            Case("PADV2", [x, constant([[0, 0], [1, 2], [0, 1], [0, 0]]), like(x, (1,), data=[3])], [like(x, (1, 7, 7, 8))], "PadV2Options"),
            Case("MIRROR_PAD", [x, constant([[0, 0], [1, 2], [0, 1], [0, 0]])], [like(x, (1, 7, 7, 8))], "MirrorPadOptions", {"Mode": 0}, "reflect"),
            Case("MIRROR_PAD", [x, constant([[0, 0], [1, 2], [0, 1], [0, 0]])], [like(x, (1, 7, 7, 8))], "MirrorPadOptions", {"Mode": 1}, "symmetric"),
            Case("SPACE_TO_DEPTH", [x], [like(x, (1, 2, 3, 32))], "SpaceToDepthOptions", {"BlockSize": 2}),
            Case("DEPTH_TO_SPACE", [x], [like(x, (1, 8, 12, 2))], "DepthToSpaceOptions", {"BlockSize": 2}),
            Case("BATCH_TO_SPACE_ND", [like(x, (4, 2, 3, 2)), constant([2, 2]), constant([[0, 1], [0, 0]])], [like(x, (1, 3, 6, 2))], "BatchToSpaceNDOptions"),
            Case("BROADCAST_TO", [like(x, (1, 1, 6, 1)), constant([2, 4, 6, 8])], [like(x, (2, 4, 6, 8))], "BroadcastToOptions"),
            Case("REVERSE_V2", [x, constant([1, 2])], [x], "ReverseV2Options"),
            Case("DYNAMIC_UPDATE_SLICE", [x, like(x, (1, 2, 2, 8)), constant([0, 1, 3, 0])], [x], "DynamicUpdateSliceOptions"),
            Case("RESIZE_NEAREST_NEIGHBOR", [x, constant([7, 5])], [like(x, (1, 7, 5, 8))], "ResizeNearestNeighborOptions"),
            Case("RESIZE_NEAREST_NEIGHBOR", [x, constant([7, 5])], [like(x, (1, 7, 5, 8))], "ResizeNearestNeighborOptions", {"HalfPixelCenters": True}, "centres"),
            Case("RESIZE_BILINEAR", [x, constant([7, 5])], [like(x, (1, 7, 5, 8))], "ResizeBilinearOptions"),
            Case("RESIZE_BILINEAR", [x, constant([7, 5])], [like(x, (1, 7, 5, 8))], "ResizeBilinearOptions", {"HalfPixelCenters": True}, "centres"),
            Case("RESIZE_BILINEAR", [x, constant([7, 5])], [like(x, (1, 7, 5, 8))], "ResizeBilinearOptions", {"AlignCorners": True}, "corners"),
        ]  # fmt: skip
    found += [
        Case("SPACE_TO_BATCH_ND", [image, constant([2, 3]), constant([[0, 0], [0, 0]])], [T((6, 2, 2, 8))], "SpaceToBatchNDOptions"),
        Case("SPACE_TO_BATCH_ND", [image8, constant([2, 3]), constant([[0, 0], [0, 0]])], [q8((6, 2, 2, 8))], "SpaceToBatchNDOptions"),
        Case("FILL", [constant([2, 3]), T(())], [T((2, 3))], "FillOptions", label="float"),
        Case("SHAPE", [image], [T((4,), "int32")], "ShapeOptions", {"OutType": 2}),
        Case("EMBEDDING_LOOKUP", [constant([2, 0]), T((3, 4))], [T((2, 4))], label="float"),
    ]  # fmt: skip
    return found


def contraction() -> list[Case]:
    scales = np.linspace(0.001, 0.03, 6)
    bias = np.arange(6) * 100 - 250
    found = []
    for padding in (0, 1):
        shape = (1, 4, 3, 6) if padding == 0 else (1, 3, 3, 6)
        options = {"Padding": padding, "StrideH": 2, "StrideW": 2, "FusedActivationFunction": 1}
        kernel, label = (6, 3, 2, 4), "valid" if padding else "same"
        found += [
            Case("CONV_2D", [T((1, 8, 6, 4)), constant(weights(kernel) / 100, "float32"), constant(bias / 300, "float32")], [T(shape)], "Conv2DOptions", options, label),
            Case("CONV_2D", [q8((1, 8, 6, 4)), constant(weights(kernel), "int8", scale=scales), constant(bias, scale=scales * 0.05)], [q8(shape, 0.4, -20)], "Conv2DOptions", options, label),
            Case("CONV_2D", [q8((1, 8, 6, 4)), constant(weights(kernel), "int8", scale=0.01)], [q8(shape, 0.4, -20)], "Conv2DOptions", options, f"{label}-plain"),
            Case("CONV_2D", [q16((1, 8, 6, 4)), constant(weights(kernel), "int8", scale=scales), constant(bias, "int64", scale=scales * 0.0003)], [q16(shape, 0.003)], "Conv2DOptions", options, label),
            Case("CONV_2D", [q8((1, 8, 6, 4)), constant(weights(kernel, bits=4), "int4", scale=scales), constant(bias, scale=scales * 0.05)], [q8(shape, 0.2, -20)], "Conv2DOptions", options, f"{label}-int4"),
        ]  # fmt: skip
        kernel = (1, 3, 2, 6)
        depthwise = {**options, "DepthMultiplier": 2}
        shape = (1, 4, 3, 6) if padding == 0 else (1, 3, 3, 6)
        found += [
            Case("DEPTHWISE_CONV_2D", [T((1, 8, 6, 3)), constant(weights(kernel) / 100, "float32"), constant(bias / 300, "float32")], [T(shape)], "DepthwiseConv2DOptions", depthwise, label),
            Case("DEPTHWISE_CONV_2D", [q8((1, 8, 6, 3)), constant(weights(kernel), "int8", scale=scales, axis=3), constant(bias, scale=scales * 0.05)], [q8(shape, 0.2, -20)], "DepthwiseConv2DOptions", depthwise, label),
            Case("DEPTHWISE_CONV_2D", [q16((1, 8, 6, 3)), constant(weights(kernel), "int8", scale=scales, axis=3), constant(bias, "int64", scale=scales * 0.0003)], [q16(shape, 0.001)], "DepthwiseConv2DOptions", depthwise, label),
        ]  # fmt: skip
    for first, second, result in ((0.03, 0.007, 0.012), (0.02, 0.03, 0.6), (0.07, 0.012, 0.0125)):
        sums = constant(np.arange(-6000, 6000), scale=first * second)
        found.append(Case("FULLY_CONNECTED", [q8((1, 1), first, 0), constant(np.zeros((12000, 1)), "int8", scale=second), sums], [q8((1, 12000), result, 0)], "FullyConnectedOptions", {}, f"ties{result}"))
    dilated = {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": 2, "DilationWFactor": 3}
    rows = {"FusedActivationFunction": 3, "KeepNumDims": False}
    transposed = {"Padding": 0, "StrideH": 2, "StrideW": 2}
    found += [
        Case("CONV_2D", [q8((1, 8, 6, 4)), constant(weights((6, 3, 2, 4)), "int8", scale=scales), constant(bias, scale=scales * 0.05)], [q8((1, 4, 3, 6), 0.4, -20)], "Conv2DOptions", dilated, "dilated"),
        Case("FULLY_CONNECTED", [T((3, 8)), constant(weights((6, 8)) / 100, "float32"), constant(bias / 300, "float32")], [T((3, 6))], "FullyConnectedOptions", rows),
        Case("FULLY_CONNECTED", [q8((3, 8)), constant(weights((6, 8)), "int8", scale=0.013), constant(bias, scale=0.05 * 0.013)], [q8((3, 6), 0.07, -20)], "FullyConnectedOptions", rows),
        Case("FULLY_CONNECTED", [q8((3, 8)), constant(weights((6, 8)), "int8", scale=scales), constant(bias, scale=scales * 0.05)], [q8((3, 6), 0.07, -20)], "FullyConnectedOptions", rows, "per-channel"),
        Case("FULLY_CONNECTED", [q8((3, 7)), constant(weights((5, 7), bits=4), "int4", scale=0.1)], [q8((3, 5), 0.07, -20)], "FullyConnectedOptions", rows, "int4"),
        Case("FULLY_CONNECTED", [q16((3, 8)), constant(weights((6, 8)), "int8", scale=0.013), constant(bias, "int64", scale=0.0003 * 0.013)], [q16((3, 6), 0.0007)], "FullyConnectedOptions", rows),
        Case("TRANSPOSE_CONV", [constant([1, 8, 6, 6]), constant(weights((6, 3, 2, 4)) / 100, "float32"), T((1, 4, 3, 4)), constant(bias / 300, "float32")], [T((1, 8, 6, 6))], "TransposeConvOptions", transposed),
        Case("TRANSPOSE_CONV", [constant([1, 8, 6, 6]), constant(weights((6, 3, 2, 4)), "int8", scale=scales), q8((1, 4, 3, 4)), constant(bias, scale=scales * 0.05)], [q8((1, 8, 6, 6), 0.2, -20)], "TransposeConvOptions", transposed),
        Case("TRANSPOSE_CONV", [constant([1, 8, 6, 6]), constant(weights((6, 3, 2, 4)), "int8", scale=scales), q16((1, 4, 3, 4)), constant(bias, "int64", scale=scales * 0.0003)], [q16((1, 8, 6, 6), 0.002)], "TransposeConvOptions", transposed),
        Case("BATCH_MATMUL", [T((2, 3, 4)), T((2, 4, 5))], [T((2, 3, 5))], "BatchMatMulOptions"),
        Case("BATCH_MATMUL", [T((2, 4, 3)), T((2, 5, 4))], [T((2, 3, 5))], "BatchMatMulOptions", {"AdjX": True, "AdjY": True}, "swapped"),
        Case("BATCH_MATMUL", [q8((2, 3, 4)), q8((2, 4, 5), 0.02, 9)], [q8((2, 3, 5), 0.1, 4)], "BatchMatMulOptions"),
        Case("BATCH_MATMUL", [q16((2, 3, 4)), q16((2, 4, 5), 0.0002)], [q16((2, 3, 5), 0.002)], "BatchMatMulOptions"),
    ]  # fmt: skip
    pool = {"Padding": 0, "StrideH": 2, "StrideW": 2, "FilterHeight": 3, "FilterWidth": 2}
    found.append(Case("L2_POOL_2D", [T((1, 8, 6, 3))], [T((1, 4, 3, 3))], "Pool2DOptions", pool))
    for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        for padding, shape in ((0, (1, 4, 3, 3)), (1, (1, 3, 3, 3))):
            options = {"Padding": padding, "StrideH": 2, "StrideW": 2, "FilterHeight": 3, "FilterWidth": 2, "FusedActivationFunction": 1}  # fmt: skip
            label = "valid" if padding else "same"
            found += [
                Case(op, [T((1, 8, 6, 3))], [T(shape)], "Pool2DOptions", options, label),
                Case(op, [q8((1, 8, 6, 3))], [q8(shape)], "Pool2DOptions", options, label),
                Case(op, [q16((1, 8, 6, 3))], [q16(shape)], "Pool2DOptions", options, label),
            ]
    return found


def variants() -> list[Case]:
    """Layers with less, other or computed weights and biases, and other shapes."""
    scales, bias = np.linspace(0.001, 0.03, 6), np.arange(6) * 100 - 250
    conv, strides = constant(weights((6, 3, 2, 4)), "int8", scale=scales), {"StrideH": 2, "StrideW": 2}
    depthwise = constant(weights((1, 3, 2, 6)), "int8", scale=scales, axis=3)
    image8, image16 = q8((1, 8, 6, 4)), q16((1, 8, 6, 4))
    small8, small16 = q8((1, 4, 3, 4)), q16((1, 4, 3, 4))
    return [
        Case("CONV_2D", [image16, conv], [q16((1, 4, 3, 6), 0.003)], "Conv2DOptions", strides, "no-bias"),
        Case("CONV_2D", [image16, conv, constant(bias, scale=scales * 0.0003)], [q16((1, 4, 3, 6), 0.003)], "Conv2DOptions", strides, "narrow-bias"),
        Case("CONV_2D", [image8, constant(weights((6, 3, 2, 2)), "int8", scale=scales), constant(bias, scale=scales * 0.05)], [q8((1, 4, 3, 6), 0.4)], "Conv2DOptions", strides, "grouped"),
        Case("CONV_2D", [image8, constant(weights((6, 3, 2, 4), bits=4), "int4", scale=0.02)], [q8((1, 4, 3, 6), 0.4)], "Conv2DOptions", strides, "int4-plain"),
        Case("DEPTHWISE_CONV_2D", [q16((1, 8, 6, 3)), depthwise], [q16((1, 4, 3, 6), 0.001)], "DepthwiseConv2DOptions", {**strides, "DepthMultiplier": 2}, "no-bias"),
        Case("DEPTHWISE_CONV_2D", [q8((1, 8, 6, 3)), constant(weights((1, 3, 2, 6), bits=4), "int4", scale=scales, axis=3)], [q8((1, 4, 3, 6), 0.1)], "DepthwiseConv2DOptions", {**strides, "DepthMultiplier": 2}, "int4"),
        Case("FULLY_CONNECTED", [q16((3, 8)), constant(weights((6, 8)), "int8", scale=0.013)], [q16((3, 6), 0.0007)], "FullyConnectedOptions", label="no-bias"),
        Case("FULLY_CONNECTED", [q16((3, 8)), constant(weights((6, 8)), "int8", scale=scales)], [q16((3, 6), 0.0007)], "FullyConnectedOptions", label="per-channel"),
        Case("FULLY_CONNECTED", [q8((3, 8)), q8((6, 8), 0.013, 0)], [q8((3, 6), 0.07)], "FullyConnectedOptions", label="computed"),
        Case("FULLY_CONNECTED", [T((3, 8)), T((6, 8)), T((6,))], [T((3, 6))], "FullyConnectedOptions", label="computed"),
        Case("FULLY_CONNECTED", [q8((2, 2, 2, 4)), constant(weights((6, 16)), "int8", scale=0.013)], [q8((2, 6), 0.07)], "FullyConnectedOptions", label="flattened"),
        Case("FULLY_CONNECTED", [q8((2, 3, 4)), constant(weights((6, 4)), "int8", scale=0.013)], [q8((2, 3, 6), 0.07)], "FullyConnectedOptions", {"KeepNumDims": True}, "rows-kept"),
        Case("TRANSPOSE_CONV", [constant([1, 8, 6, 6]), conv, small8], [q8((1, 8, 6, 6), 0.2)], "TransposeConvOptions", strides, "no-bias"),
        Case("TRANSPOSE_CONV", [constant([1, 9, 6, 6]), conv, small8], [q8((1, 9, 6, 6), 0.2)], "TransposeConvOptions", {**strides, "Padding": 1}, "valid"),
        Case("TRANSPOSE_CONV", [constant([1, 8, 6, 6]), conv, small16, constant(bias, "int16", scale=scales * 0.0003)], [q16((1, 8, 6, 6), 0.002)], "TransposeConvOptions", strides, "narrow-bias"),
        Case("ADD", [q8((9,)), q8((9,), 0.1)], [q8((9,), 0.01, 3)], "AddOptions", {"FusedActivationFunction": 2}, "activation2"),
        Case("MEAN", [q8((1, 5, 7, 3)), constant([0, 1, 2, 3])], [q8((1, 1, 1, 1), 0.02)], "ReducerOptions", {"KeepDims": True}, "everything"),
    ]  # fmt: skip


CASES = [*binary(), *unary(), *normalization(), *reductions(), *movement(), *contraction(), *variants()]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_equals_the_interpreter(case: Case) -> None:
    content = case.content()
    imported = import_model(content, "case.tflite")
    samples = random_inputs(imported, seed=len(str(case)), count=4)
    if samples[0] and samples[0][0].size == 1 << 16:
        samples = [(np.arange(-(1 << 15), 1 << 15).astype(np.int16),)]
    if case.low is not None:
        samples = [tuple(np.maximum(x, case.low).astype(x.dtype) for x in inputs) for inputs in samples]
    assert_equals_micro(content, samples, rtol=1e-5, atol=1e-6)


def test_space_to_batch_pads_with_the_zero_point() -> None:
    case = Case(
        "SPACE_TO_BATCH_ND", [q8((1, 2, 2, 1)), constant([2, 2]), constant([[1, 1], [0, 2]])],
        [q8((4, 2, 2, 1))], "SpaceToBatchNDOptions",
    )  # fmt: skip
    x = np.array([[1, 2], [3, 4]], np.int8)
    (y,) = Runner(import_model(case.content(), "case.tflite").graph)(x.reshape(1, 2, 2, 1))
    padded = np.pad(x, [(1, 1), (0, 2)], constant_values=-7)
    blocks = padded.reshape(2, 2, 2, 2).transpose(1, 3, 0, 2).reshape(4, 2, 2, 1)
    np.testing.assert_array_equal(y, blocks)


def test_tiny_quotients_of_integers_are_zero() -> None:
    """Where TFLite Micro shifts by more places than a number has."""
    divisors = np.arange(1, 128)
    case = Case(
        "DIV", [q8((127,), 0.05, 3), constant(divisors, "int8", scale=0.9)], [q8((127,), 0.04, 5)], "DivOptions"
    )
    run = Runner(import_model(case.content(), "case.tflite").graph)
    for above in (-2, -1, 0, 1, 2):
        (y,) = run(np.full(127, above + 3, np.int8))
        real = above * 0.05 / (divisors * 0.9) / 0.04
        assert np.abs(y - 5 - real).max() <= 0.5 + 1e-3


def test_sums_of_several_start_at_zero() -> None:
    """Where TFLite Micro starts with the negative zero point."""
    case = Case("ADD_N", [q8((5,))] * 3, [q8((5,), 0.2, 3)], "AddNOptions")
    (y,) = Runner(import_model(case.content(), "case.tflite").graph)(*[np.full(5, 13, np.int8)] * 3)
    np.testing.assert_array_equal(y, np.full(5, 3 + 3 * 20 * 0.05 / 0.2))


def compiled(folder: Path) -> tuple[Build, dict[str, Imported]]:
    """Every case as an entry point of one module."""
    imported = {f"case{i}": import_model(case.content(), f"{case}.tflite") for i, case in enumerate(CASES)}
    program = Program("cases", **{name: each.graph for name, each in imported.items()})
    return build(program, "host", folder), imported


def assert_numpys_bits(runner: RunnerOfEntries, built: Build, imported: dict[str, Imported]) -> None:
    with ReferenceRunner(built.interface, built.program.entry_points) as reference:
        for name, each in imported.items():
            (inputs,) = random_inputs(each, seed=1, count=1)
            feed = dict(zip((n for n, _ in each.graph.inputs), inputs, strict=True))
            (status, found), (_, wanted) = runner.call(name, feed), reference.call(name, feed)
            assert status == 0
            for output in wanted:
                np.testing.assert_array_equal(found[output], wanted[output], err_msg=CASES[int(name[4:])].op)


def test_compiled_operators_equal_numpy_without_a_warning(tmp_path: Path) -> None:
    built, imported = compiled(tmp_path)
    with HostLibrary(built.interface, built.directory, "gcc", ("-O1", *WARNINGS)) as library:
        assert_numpys_bits(library, built, imported)


@pytest.mark.full
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compiled_operators_have_no_undefined_behaviour(compiler: str, tmp_path: Path) -> None:
    built, imported = compiled(tmp_path / "c")
    with sanitized(built, tmp_path / "run", compiler) as runner:
        assert_numpys_bits(runner, built, imported)
