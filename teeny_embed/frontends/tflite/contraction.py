"""Convolutions and linear layers: one contraction, a bias, a scale and an activation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from teeny_embed.frontends.tflite.activation import activated
from teeny_embed.frontends.tflite.model import Array, TensorInfo
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.quantization import (
    quantize_multipliers,
    quotient,
    real_values,
    requantize,
    rescaled,
    to_output,
)
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.frontends.tflite.windows import window
from teeny_embed.graph.node import scoped
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
    y = weighted(op, rows, lambda x, w, **how: call("conv", x, w, **how), rounding=rounding)
    return y.reshape(op.output_info().shape)


@converter("TRANSPOSE_CONV", "int32", "float32, int8 and int16 activations; operand 0 is the shape")
def transpose_conv(op: Operation) -> Tensor:
    """The input gradient of a convolution from the output's extents; operand 2 is the input."""
    x, shape, out = op.input(2), op.input_info(1).shape, op.output_info().shape
    if x.rank != 4 or len(shape) != 4 or len(out) != 4 or shape[3] != x.shape[3]:
        raise op.error(f"input {x.type} and filter {list(shape)}")
    where = window(op, out[1:3], shape[1:3]).attributes
    return weighted(
        op,
        x,
        lambda x, w, **how: call("conv_input_grad", x, w, extents=out[1:3], **where, **how),
        arrange=lambda w: w.transpose(3, 1, 2, 0),
        operands=(2, 1, 3),
    )


@converter("BATCH_MATMUL", "float32 int8 int16")
def batch_matmul(op: Operation) -> Tensor:
    """Matrix products, either operand transposed on request."""
    a, b = op.input(0), op.input(1)
    if a.rank < 2 or b.rank < 2:
        raise op.error(f"operands {a.type} and {b.type}")
    a = _swapped(a) if op.option("adj_x") else a
    b = _swapped(b) if op.option("adj_y") else b
    if a.dtype == "float32":
        return a @ b
    first, second, output = op.input_info(0), op.input_info(1), op.output_info()
    accumulator = "int64" if a.dtype == "int16" else "int32"
    zero_points = first.zero_point, second.zero_point
    acc = call("matmul", a, b, zero_points=zero_points, accumulator=accumulator)
    product = first.scale * second.scale
    if op.rounding == "litert":
        product = float(np.float32(product))
    rule = "tflite_wide" if accumulator == "int64" else "tflite"
    return to_output(rescaled(acc, quotient(product, output.scale, op.where), op.where, rule), output)


def _swapped(x: Tensor) -> Tensor:
    return x.transpose(*range(x.rank - 2), x.rank - 1, x.rank - 2)


def weighted(
    op: Operation,
    x: Tensor,
    contract: Contract,
    arrange: Arrange = lambda w: w,
    rounding: str = "tflite",
    operands: tuple[int, int, int] = (0, 1, 2),
) -> Tensor:
    """`x` contracted with weights, plus bias, in the output's type; `operands` numbers input, weights, bias.

    Quantised: sums of products of what lies above the zero points, in int32 or int64.
    """
    given, info, bias_number = op.input_info(operands[0]), op.input_info(operands[1]), operands[2]
    if x.dtype == "float32":
        y = contract(x, _real_weights(op, operands[1], arrange))
        biased = y + op.input(bias_number) if op.has_input(bias_number) else y
        return activated(biased, op.activation)
    stored = op.known(operands[1])
    weights = arrange(op.input(operands[1])) if stored is None else _filter(arrange(stored))
    zero_points = given.zero_point, _weight_zero_point(op, info)
    accumulator = _accumulator(op, x, bias_number)
    acc = contract(x, weights, zero_points=zero_points, accumulator=accumulator)
    bias = _bias(op, bias_number, acc)
    scales = _scales(op, given, info, acc.shape[-1])
    rule = "tflite_wide" if accumulator == "int64" else rounding
    multipliers, shifts = quantize_multipliers(scales, op.where, rule)
    return to_output(requantize(acc + bias, multipliers, shifts, rule), op.output_info(), op.activation)


def _accumulator(op: Operation, x: Tensor, bias: int) -> str:
    """16-bit inputs are summed in int64, unless an int32 bias says that int32 is enough."""
    narrow = op.has_input(bias) and op.input_info(bias).dtype == "int32"
    return "int64" if x.dtype == "int16" and not narrow else "int32"


def _bias(op: Operation, number: int, acc: Tensor) -> Tensor:
    """One for each output, in the accumulator's type; 0 where there is none."""
    if not op.has_input(number):
        return constant(np.zeros(acc.shape[-1:]), acc.dtype, scoped("bias"))
    bias, value = op.input(number), op.known(number)
    if bias.shape != acc.shape[-1:] or bias.dtype not in ("int16", "int32", "int64"):
        raise op.error(f"bias is {bias.type}, expected {acc.dtype}[{acc.shape[-1]}]")
    return bias.astype(acc.dtype) if value is None else constant(value, acc.dtype, scoped("bias"))


def _scales(op: Operation, x: TensorInfo, weights: TensorInfo, outputs: int) -> Array:
    """float64 [outputs]: scale of the input times that of the weights over that of the output."""
    quantization = weights.quantization
    if quantization is None or quantization.scales.size not in (1, outputs):
        raise op.error(f"weights {weights.name!r} have no scale, or not one per output")
    scales = quantization.scales.astype(np.float64) * x.scale
    return np.broadcast_to(quotient(scales, op.output_info().scale, op.where), (outputs,))


def _weight_zero_point(op: Operation, weights: TensorInfo) -> int:
    quantization = weights.quantization
    if quantization is None:
        raise op.error(f"weights {weights.name!r} are not quantised")
    if (quantization.zero_points != quantization.zero_points[0]).any():
        raise op.error(f"weights {weights.name!r} have several zero points")
    return int(quantization.zero_points[0])


def _real_weights(op: Operation, number: int, arrange: Arrange) -> Tensor:
    """float32 weights; those stored as integers beside a float32 input (hybrid) are multiplied out."""
    info, stored = op.input_info(number), op.known(number)
    if stored is None:
        arranged: Tensor = arrange(op.input(number))
        return arranged
    if info.dtype == "float32":
        return _filter(arrange(stored))
    log.info("%s: %s weights of %s are multiplied out to float32", op.where, info.dtype, info.name)
    return _filter(arrange(real_values(stored, info)))


def _filter(weights: Array) -> Tensor:
    """A constant under that name."""
    return constant(weights, weights.dtype.name, scoped("filter"))
