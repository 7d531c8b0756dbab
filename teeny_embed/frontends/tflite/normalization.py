"""What divides by a sum over an axis: softmax and the like."""

from __future__ import annotations

from collections.abc import Callable
from math import floor

import numpy as np

from teeny_embed.frontends.tflite.model import Array, TensorInfo
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.quantization import (
    clamp,
    quantize_multiplier,
    quotient,
    requantize,
    rescaled,
)
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.frontends.tflite.tables import evaluated, requantized
from teeny_embed.graph.fixed_point import exp_of_negative_5
from teeny_embed.graph.node import scoped
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, call, constant

SCALED_BITS = 5
"""Whole bits of a scaled difference of logits."""
SUM_BITS = 12
"""Whole bits of the sum of exponentials."""


@converter("SOFTMAX", "float32 int8 int16 uint8")
def softmax(op: Operation) -> Tensor:
    """e^(beta x) over its sum, along the last axis. The results of integers have a fixed scale."""
    x = op.input(0)
    beta = float(op.option("beta"))
    if x.dtype == "float32":
        return call("softmax", x if beta == 1 else x * beta)
    if x.dtype == "int16":
        return _softmax_16(x, op.input_info(0), beta, op)
    return _softmax_8(x, op.input_info(0), op.output_info(), beta)


def _below_max(x: Tensor) -> Tensor:
    """int32: x less the largest along the last axis."""
    return x.astype("int32") - call("max", x, axes=(-1,), keepdims=True).astype("int32")


def _softmax_8(x: Tensor, info: TensorInfo, output: TensorInfo, beta: float) -> Tensor:
    """A difference to the largest logit has 256 values, so their exponentials (Q0.31) are a table."""
    exponential = call("take", _table(_exponentials(info.scale, beta)), _below_max(x) + 255)
    total = call("shift_right_rounding", exponential, constant(SUM_BITS, "int32")).sum(-1, keepdims=True)
    zeros = call("leading_zeros", total)
    fraction = call("shift_left", total, zeros) + constant(-(1 << 31), "int32")
    share = call("multiply_high", call("inverse_of_one_plus", fraction), exponential)
    least, greatest = output.limits
    places = constant(SUM_BITS + 31 - (greatest - least).bit_length(), "int32") - zeros
    shifted = call("shift_right_rounding", share, places) + least
    return clamp(shifted, least, greatest).astype(output.dtype)


def _table(values: Array) -> Tensor:
    """A constant under that name."""
    return constant(values, name=scoped("table"))


def _exponentials(scale: float, beta: float) -> Array:
    """int32 [256]: e^(beta scale d) for d = -255 to 0 as Q0.31, 0 where it is too small to count."""
    multiplier, shift, radius = _scaling(scale, beta)
    difference = np.arange(-255, 1)
    value = evaluated(exp_of_negative_5, requantized(difference, multiplier, shift))
    return np.where(difference >= -radius, value, 0).astype(np.int32)


def _scaling(scale: float, beta: float) -> tuple[int, int, int]:
    """Multiplier and shift that make Q5.26 of a difference of logits, and how far it may go below 0."""
    limit = (1 << 31) - 1.0
    multiplier, shift = quantize_multiplier(min(beta * scale * (1 << (31 - SCALED_BITS)), limit))
    radius = floor(((1 << SCALED_BITS) - 1) * (1 << (31 - SCALED_BITS)) / 2.0**shift)
    return multiplier, shift, radius


# ---- 16 bits: tables with interpolation -------------------------------------------------------------------


def _softmax_16(x: Tensor, info: TensorInfo, beta: float, op: Operation) -> Tensor:
    scaled = rescaled(_below_max(x), info.scale * float(np.float32(beta)) / (10 / 65535), op.where)
    exponential = interpolated(clamp(scaled + 32767, -32768, 32767), _table_16(np.exp, -10, 0))
    total = exponential.sum(-1, keepdims=True)
    zeros = call("leading_zeros", total)
    aligned = call("shift_left", total, zeros - 1)
    halves = call("shift_right", aligned, constant(13, "int32"))
    shifted = call("shift_right", halves + 1, constant(1, "int32"))
    centred = clamp(shifted - ((1 << 15) + (1 << 16)), -32768, 32767)
    inverse = interpolated(centred, _table_16(lambda v: 1 / (1 + v), 0, 1))
    places = constant(31, "int32") - zeros
    product = exponential * inverse
    half = call("shift_left", constant(1, "int32"), places - 1)
    return clamp(call("shift_right", product + half, places), 0, 32767).astype("int16")


def interpolated(x: Tensor, table: Array) -> Tensor:
    """int32: a table of 513 numbers at a 16-bit position, the low 7 bits interpolating."""
    at = call("shift_right", x, constant(7, "int32")) + 256
    values = _table(table)
    base = call("take", values, at).astype("int32")
    slope = call("take", values, at + 1).astype("int32") - base
    part = call("bitwise_and", x, constant(127, "int32"))
    return base + call("shift_right", slope * part + 64, constant(7, "int32"))


def _table_16(function: Callable[[Array], Array], low: float, high: float) -> Array:
    """int16 [513]: 2^15 f over [low, high], each entry less half of what interpolation errs midway."""
    f32, count = np.float32, 512
    step = f32(f32(high - low) / f32(count))
    half_step = f32(step / f32(2))
    scale = f32(65536.0) / f32(2)
    position = (f32(low) + np.arange(count, dtype=f32) * step).astype(f32)
    value = _rounded(function(position) * scale)
    middle = _rounded(function(position + half_step) * scale)
    following = function((position + step).astype(f32)) * scale
    interpolated_middle = _rounded((following + value) / f32(2))
    bias = _rounded((interpolated_middle - middle) / f32(2))
    last = _rounded(function(np.array([high], f32)) * scale)
    return np.asarray(np.clip(np.concatenate([value - bias, last]), -32768, 32767), np.int16)


def _rounded(x: Array) -> Array:
    """float32, to the nearest integer, ties away from zero."""
    x = np.asarray(x, np.float32)
    return np.asarray(np.trunc(x + np.copysign(np.float32(0.5), x)), np.float32)


# ---- Others -----------------------------------------------------------------------------------------------


@converter("LOG_SOFTMAX", "float32 int8")
def log_softmax(op: Operation) -> Tensor:
    """The logarithm of softmax, along the last axis; results of int8 are multiples of 1/16 up to 127."""
    x = op.input(0)
    if x.dtype == "float32":
        return call("log_softmax", x)
    scale = op.input_info(0).scale
    multiplier, shift, radius = _scaling(scale, 1.0)
    back, back_shift = quantize_multiplier(quotient(2.0 ** (31 - shift), multiplier, op.where))
    difference = _below_max(x)
    exponential = call("take", _table(_exponentials(scale, 1.0)), difference + 255)
    total = call("shift_right_rounding", exponential, constant(SUM_BITS, "int32")).sum(-1, keepdims=True)
    log = call("log_fixed", total)
    lowest = requantize(log + constant(-(1 << 31), "int32"), back, back_shift, "tflite")
    least = call("maximum", lowest, constant(-radius - 1, "int32"))
    real = requantize(difference, multiplier, shift, "tflite") - log
    rounded = call("shift_right_rounding", real, constant(31 - SCALED_BITS - 4, "int32")) + 127
    return where(difference > least, clamp(rounded, -128, 127), -128).astype("int8")


@converter("L2_NORMALIZATION", "float32 int8")
def l2_normalization(op: Operation) -> Tensor:
    """x over the root of the sum of its squares, along the last axis; int8 results are multiples of 2^-7."""
    x, info = op.input(0), op.input_info(0)
    if x.dtype == "float32":
        norm = call("sqrt", (x * x).sum(-1, keepdims=True))
        return x / call("maximum", norm, constant(1e-6, "float32"))
    above = x.astype("int32") - info.zero_point
    total = (above * above).sum(-1, keepdims=True)
    multiplier, shift = inverse_root(total)
    return clamp(call("requantize", above, multiplier, shift + 7), -128, 127).astype("int8")


def inverse_root(x: Tensor) -> tuple[Tensor, Tensor]:
    """(multiplier, shift) of 1 / sqrt(x), x an int32 >= 0; that of 0 and 1 is the largest multiplier."""
    large = x >= 1 << 29
    reduced = where(large, call("shift_right", x, constant(2, "int32")), x)
    pairs = call("shift_right", call("leading_zeros", reduced) - 1, constant(1, "int32")) - 1
    aligned = call("shift_left", reduced, pairs + pairs)
    root = call("inverse_square_root", call("shift_right", aligned, constant(1, "int32")))
    places = large.astype("int32") + 11 - pairs
    under = call("minimum", places, constant(0, "int32"))
    small = x <= 1
    multiplier = where(small, (1 << 31) - 1, call("shift_left", root, -under))
    return multiplier, where(small, 0, under - places)
