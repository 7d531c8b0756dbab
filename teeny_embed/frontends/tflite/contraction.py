"""Convolutions and linear layers: one contraction, a bias, a scale and an activation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from teeny_embed.errors import DataError
from teeny_embed.frontends.tflite.activation import activated
from teeny_embed.frontends.tflite.model import Array, TensorInfo
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.quantization import (
    quantize_multipliers,
    quotient,
    requantize,
    to_output,
)
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.frontends.tflite.windows import window
from teeny_embed.graph.tensor import Tensor, call, constant

log = logging.getLogger("teeny_embed")

Contract = Callable[..., Tensor]
"""(x, w, **attributes of quantised operands) -> sums with the outputs along the last axis."""
Arrange = Callable[[Any], Any]
"""The file's weights in the layout that the contraction takes: of an array or a Tensor."""


@converter("CONV_2D", "float32 int8 int16 uint8")
def conv_2d(op: Operation) -> Tensor:
    """NHWC over OHWI; in groups where the filter has fewer channels than the input."""
    x, shape = op.input(0), op.input_info(1).shape
    if x.rank != 4 or len(shape) != 4 or shape[3] < 1 or x.shape[3] % shape[3]:
        raise op.error(f"input {x.type} and filter {list(shape)}")
    where = window(op, x.shape[1:3], shape[1:3], dilated=True).attributes
    groups = x.shape[3] // shape[3]
    return weighted(op, x, lambda x, w, **how: call("conv", x, w, groups=groups, **where, **how))


@converter("DEPTHWISE_CONV_2D", "float32 int8 int16 uint8")
def depthwise_conv_2d(op: Operation) -> Tensor:
    """One or more filters for each channel; the file's are [1, height, width, outputs]."""
    x, shape = op.input(0), op.input_info(1).shape
    if x.rank != 4 or len(shape) != 4 or shape[0] != 1 or shape[3] % x.shape[3]:
        raise op.error(f"input {x.type} and filter {list(shape)}")
    where = window(op, x.shape[1:3], shape[1:3], dilated=True).attributes
    return weighted(
        op,
        x,
        lambda x, w, **how: call("conv", x, w, groups=x.shape[3], **where, **how),
        arrange=lambda w: w.transpose(3, 1, 2, 0),
    )


@converter("FULLY_CONNECTED", "float32 int8 int16 uint8")
def fully_connected(op: Operation) -> Tensor:
    """Rows of inputs times weights [outputs, inputs]."""
    x, shape = op.input(0), op.input_info(1).shape
    if len(shape) != 2 or 0 in shape or x.type.count % shape[1]:
        raise op.error(f"input {x.type} and weights {list(shape)}")
    rows = x.reshape(-1, shape[1])
    rounding = "tflite_single" if op.rounding == "litert" else "tflite"
    y = weighted(op, rows, lambda x, w, **how: call("conv", x, w, **how), rounding=rounding, binary32=True)
    return y.reshape(op.output_info().shape)


def weighted(
    op: Operation,
    x: Tensor,
    contract: Contract,
    arrange: Arrange = lambda w: w,
    rounding: str = "tflite",
    binary32: bool = False,
) -> Tensor:
    """Operand 0 (as `x`) contracted with operand 1, plus bias (operand 2), in the output's type.

    Quantised: sums of products of what lies above the zero points, in int32 (int64 where the bias is);
    `binary32` says that the product of two scales of whole tensors is rounded to binary32, as in
    FULLY_CONNECTED.
    """
    info = op.input_info(1)
    if x.dtype == "float32":
        y = contract(x, _real_weights(op, info, arrange))
        biased = y + op.input(2) if op.has_input(2) else y
        return activated(biased, op.activation)
    weights = constant(arrange(info.data)) if info.data is not None else arrange(op.input(1))
    zero_points = op.input_info(0).zero_point, _weight_zero_point(op, info)
    accumulator = "int64" if op.has_input(2) and op.input_info(2).dtype == "int64" else "int32"
    acc = contract(x, weights, zero_points=zero_points, accumulator=accumulator)
    bias = op.input(2) if op.has_input(2) else constant(np.zeros(acc.shape[-1], accumulator))
    if bias.dtype != accumulator or bias.shape != acc.shape[-1:]:
        raise op.error(f"bias is {bias.type}, expected {accumulator}[{acc.shape[-1]}]")
    scales = _scales(op, info, acc.shape[-1], binary32)
    multipliers, shifts = quantize_multipliers(scales, op.where)
    rule = "tflite_wide" if accumulator == "int64" else rounding
    return to_output(requantize(acc + bias, multipliers, shifts, rule), op.output_info(), op.activation)


def _scales(op: Operation, weights: TensorInfo, outputs: int, binary32: bool) -> Array:
    """float64 [outputs]: scale of the input times that of the weights over that of the output."""
    x, quantization = op.input_info(0), weights.quantization
    if quantization is None or quantization.scales.size not in (1, outputs):
        raise op.error(f"weights {weights.name!r} have no scale, or not one per output")
    scales = quantization.scales.astype(np.float64) * x.scale
    if binary32 and not quantization.per_channel:
        scales = (np.float32(x.scale) * quantization.scales).astype(np.float64)
    return np.broadcast_to(quotient(scales, op.output_info().scale, op.where), (outputs,))


def _weight_zero_point(op: Operation, weights: TensorInfo) -> int:
    quantization = weights.quantization
    if quantization is None:
        raise op.error(f"weights {weights.name!r} are not quantised")
    if (quantization.zero_points != quantization.zero_points[0]).any():
        raise op.error(f"weights {weights.name!r} have several zero points")
    return int(quantization.zero_points[0])


def _real_weights(op: Operation, info: TensorInfo, arrange: Arrange) -> Tensor:
    """float32 weights; those stored as integers beside a float32 input (hybrid) are multiplied out."""
    if info.data is None:
        arranged: Tensor = arrange(op.input(1))
        return arranged
    if info.dtype == "float32":
        return constant(arrange(info.data))
    log.info("%s: %s weights of %s are multiplied out to float32", op.where, info.dtype, info.name)
    return constant(arrange(real_values(info)))


def real_values(info: TensorInfo) -> Array:
    """float32 of a quantised constant: (stored - zero point) scale."""
    assert info.data is not None
    if info.dtype == "float16":
        return info.data.astype(np.float32)
    quantization = info.quantization
    if quantization is None:
        raise DataError(f"tensor {info.name!r} is not quantised", where=info.where)
    shape = [1] * info.data.ndim
    if quantization.per_channel:
        shape[quantization.axis] = -1
    zero_points = quantization.zero_points.reshape(shape).astype(np.int64)
    return (info.data - zero_points).astype(np.float32) * quantization.scales.reshape(shape)
