"""Activations of one element: fused ones of real numbers, and operators of their own."""

from __future__ import annotations

from math import floor, frexp, inf, ldexp, log2

import numpy as np

from teeny_embed.errors import DataError
from teeny_embed.frontends.tflite.model import Array, TensorInfo
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.quantization import (
    ACTIVATIONS,
    activation_range,
    clamp,
    quantize_multiplier,
    quotient,
    rescaled,
    round_away,
    to_output,
)
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.frontends.tflite.tables import evaluated, looked_up, requantized
from teeny_embed.graph import fixed_point
from teeny_embed.graph.node import scoped, user_line
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.scalar import ScalarFunction
from teeny_embed.graph.tensor import Tensor, call, constant


def activated(x: Tensor, activation: str) -> Tensor:
    """A real value after its fused activation."""
    if activation == "RELU":
        return call("relu", x)
    if activation == "RELU6":
        return call("relu6", x)
    if activation == "TANH":
        return call("tanh", x)
    if activation not in ACTIVATIONS:
        raise DataError(f"fused activation {activation} is not supported", user_line())
    low, high = ACTIVATIONS[activation]
    lowered = call("minimum", x, constant(high, "float32")) if high < inf else x
    return call("maximum", lowered, constant(low, "float32")) if low > -inf else lowered


# ---- Rectifiers -------------------------------------------------------------------------------------------


@converter("RELU RELU6 RELU_N1_TO_1", "float32 int8 int16 uint8")
def relu(op: Operation) -> Tensor:
    """Within the range of the activation, in the output's scale."""
    x, info, output = op.input(0), op.input_info(0), op.output_info()
    if x.dtype == "float32":
        return activated(x, op.name)
    if (info.scale, info.zero_point) == (output.scale, output.zero_point):
        return clamp(x, *activation_range(op.name, output))
    above = x.astype("int32") - info.zero_point
    return to_output(rescaled(above, quotient(info.scale, output.scale, op.where), op.where), output, op.name)


@converter("LEAKY_RELU", "float32 int8 int16 uint8")
def leaky_relu(op: Operation) -> Tensor:
    """x, or alpha x below 0."""
    x, alpha = op.input(0), float(op.option("alpha"))
    if x.dtype == "float32":
        return where(x > 0.0, x, x * alpha)
    scale = quotient(op.input_info(0).scale, op.output_info().scale, op.where)
    sloped = quotient(op.input_info(0).scale * alpha, op.output_info().scale, op.where)
    return _rectified(op, constant(1, "int32"), scale, sloped)


@converter("PRELU", "float32 int8 int16 uint8")
def prelu(op: Operation) -> Tensor:
    """x, or alpha x below 0, with an alpha for each channel."""
    x, alpha = op.input(0), op.input(1)
    if x.dtype == "float32":
        return where(x >= 0.0, x, x * alpha)
    info, other, output = op.input_info(0), op.input_info(1), op.output_info()
    slope = alpha.astype("int32") - other.zero_point
    scale = quotient(info.scale, output.scale, op.where)
    return _rectified(op, slope, scale, quotient(info.scale * other.scale, output.scale, op.where))


def _rectified(op: Operation, slope: Tensor, scale: float, slope_scale: float) -> Tensor:
    """x times `scale`, or x slope times `slope_scale` below 0."""
    above = op.input(0).astype("int32") - op.input_info(0).zero_point
    kept = rescaled(above, scale, op.where)
    sloped = rescaled(above * slope, slope_scale, op.where)
    return to_output(where(above >= 0, kept, sloped), op.output_info())


# ---- Smooth ones ------------------------------------------------------------------------------------------


@converter("LOGISTIC", "float32 int8 int16 uint8")
def logistic(op: Operation) -> Tensor:
    """1 / (1 + e^-x). The results of integers are multiples of 2^-8 or, of 16 bits, 2^-15."""
    x = op.input(0)
    if x.dtype == "float32":
        return call("sigmoid", x)
    if x.dtype == "int16":
        return _logistic_16(x, op)
    return _of_byte(op, -8, 0, fixed_point.logistic_4, 23, (0, 256))


@converter("TANH", "float32 int8 int16 uint8")
def tanh(op: Operation) -> Tensor:
    """Hyperbolic tangent. The results of integers are multiples of 2^-7 or, of 16 bits, 2^-15."""
    x = op.input(0)
    if x.dtype == "float32":
        return call("tanh", x)
    if x.dtype == "int16":
        return _tanh_16(x, op)
    return _of_byte(op, -7, 128, fixed_point.tanh_4, 24, (-128, 127))


def _of_byte(
    op: Operation, exponent: int, zero: int, function: ScalarFunction, places: int, ends: tuple[int, int]
) -> Tensor:
    """A function of 8 bits as a table. Its zero point is `zero` above the lowest number."""
    info, output = op.input_info(0), op.output_info()
    _expect(op, exponent, output.limits[0] + zero)
    return looked_up(op.input(0), info, output, lambda d: _saturating(d, info, function, places, ends))


def _expect(op: Operation, exponent: int, zero_point: int) -> None:
    """The output's quantisation is part of the operator's meaning. Raises DataError."""
    output = op.output_info()
    if abs(log2(output.scale or 1) - exponent) > 1e-3 or output.zero_point != zero_point:
        what = f"scale {output.scale:g} and zero point {output.zero_point}"
        raise op.error(f"the output has {what}, expected 2^{exponent} and {zero_point}")


def _saturating(
    d: Array, info: TensorInfo, function: ScalarFunction, places: int, ends: tuple[int, int]
) -> Array:
    """A function of Q4.27, its Q0.31 result rounded by `places`; `ends` outside of what Q4.27 holds."""
    fraction, shift = frexp(info.scale * (1 << 27))
    scaled = requantized(d, min(round_away(ldexp(fraction, 31)), (1 << 31) - 1), shift)
    radius = floor(15 * (1 << 27) / 2.0**shift)
    value = evaluated(fixed_point.shift_right_rounding, evaluated(function, scaled), places).astype(np.int64)
    return np.where(d <= -radius, ends[0], np.where(d >= radius, ends[1], value))


_STEP = 24
"""Entries of the 16-bit table of the logistic function for each unit of its argument."""


def _logistic_table() -> Array:
    """uint32 [256], of the logistic function in units of 2^-16: what entry i has above 1/2, and what the next
    one has above it in the upper half; at i / 24, plus half of what interpolation lacks midway to the next.
    """

    def curve(at: Array) -> Array:
        return np.asarray(65536 / (1 + np.exp(-at / _STEP)))

    at = np.arange(256.0)
    lacking = curve(at + 0.5) - (curve(at) + curve(at + 1)) / 2
    table = np.floor(curve(at) + lacking / 2 + 0.5)
    table[-1] = 65535  # stands for all that lies beyond
    value = table.astype(np.uint32)
    return (value - (1 << 15)) | np.diff(value, append=value[-1:]) << 16


def _scaled_16(x: Tensor, op: Operation, powers: tuple[int, ...]) -> Tensor:
    """int32: x in units of 1 / (3 4096); a scale of 2^-12 times one of 2^`powers` is exact."""
    scale = op.input_info(0).scale
    exponent = round(log2(scale)) + 12 if scale > 0 else -99
    exact = scale > 0 and abs(log2(scale) + 12 - exponent) < 1e-3 and exponent in powers
    if exact:
        return x.astype("int32") * (3 << exponent)
    multiplier, shift = scale * 4096 * 3, 0
    while multiplier <= 32767 / 2 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    half = 1 << (shift - 1) if shift else 0
    return call("shift_right", x.astype("int32") * int(multiplier) + half, constant(shift, "int32"))


def _above_half(scaled: Tensor, bits: int) -> Tensor:
    """int32 in units of 2^-(16 + bits): the table at |scaled| 2^-bits, less 1/2."""
    magnitude = call("abs", scaled)
    at = call("minimum", call("shift_right", magnitude, constant(bits, "int32")), constant(255, "int32"))
    entry = call("take", constant(_logistic_table(), name=scoped("table")), at)
    value = call("bitwise_and", entry, constant(0xFFFF, "uint32")).astype("int32")
    slope = call("shift_right", entry, constant(16, "uint32")).astype("int32")
    part = call("bitwise_and", magnitude, constant((1 << bits) - 1, "int32"))
    return value * (1 << bits) + part * slope


def _with_sign(above: Tensor, scaled: Tensor) -> Tensor:
    """`above`, or -1 - `above` where `scaled` is negative: a number that rounds as its opposite does."""
    return call("bitwise_xor", above, call("shift_right", scaled, constant(31, "int32")))


def _logistic_16(x: Tensor, op: Operation) -> Tensor:
    _expect(op, -15, 0)
    return logistic_16(_scaled_16(x, op, (0,)))


def _tanh_16(x: Tensor, op: Operation) -> Tensor:
    _expect(op, -15, 0)
    return tanh_16(_scaled_16(x, op, (0, 1)))


def logistic_16(scaled: Tensor) -> Tensor:
    """int16 in units of 2^-15, 1 to 32767, of an int32 in units of 1 / (3 4096)."""
    above = call("minimum", _above_half(scaled, 9), constant((0x7FFF << 10) - (1 << 24), "int32"))
    result = _with_sign(above, scaled) + ((1 << 24) + (1 << 9))
    return call("shift_right", result, constant(10, "int32")).astype("int16")


def tanh_16(scaled: Tensor) -> Tensor:
    """int16 in units of 2^-15 of an int32 in units of 1 / (3 4096)."""
    result = _with_sign(_above_half(scaled, 8), scaled) + (1 << 7)
    return call("shift_right", result, constant(8, "int32")).astype("int16")


@converter("ELU", "float32 int8")
def elu(op: Operation) -> Tensor:
    """x, or e^x - 1 below 0."""
    x, info, output = op.input(0), op.input_info(0), op.output_info()
    if x.dtype == "float32":
        return where(x < 0.0, call("exp", x) - 1.0, x)

    def rule(d: Array) -> Array:
        real = np.float32(info.scale) * d.astype(np.float32)
        inverse = np.float32(quotient(1, output.scale, op.where))
        made = np.where(real < 0, np.exp(real) - np.float32(1), real).astype(np.float32) * inverse
        return np.asarray(np.trunc(made + np.copysign(np.float32(0.5), made)), np.int64)

    return looked_up(x, info, output, rule)


@converter("HARD_SWISH", "float32 int8")
def hard_swish(op: Operation) -> Tensor:
    """x min(6, max(0, x + 3)) / 6."""
    x, info, output = op.input(0), op.input_info(0), op.output_info()
    if x.dtype == "float32":
        return x * call("relu6", x + 3.0) / 6.0
    fine = np.float32(1 / 128) * np.float32(info.scale)
    to_result = _multiplier_16(float(quotient(fine, output.scale, op.where)))
    to_relu = _multiplier_16(float(fine / (np.float32(3) / np.float32(32768))))
    if to_result[1] > 0:
        raise op.error(f"the output's scale {output.scale:g} is too small")
    return looked_up(x, info, output, lambda d: _hard_swish_8(d, to_result, to_relu))


def _hard_swish_8(d: Array, to_result: tuple[int, int], to_relu: tuple[int, int]) -> Array:
    """In 16-bit fixed point: x in the result's scale times a factor in [0, 1]."""
    fine = d * (1 << 7)
    value = _high_16(fine, to_result[0])
    factor, shift = fine, to_relu[1]
    if shift > 0:
        factor = _saturated_16(factor * (1 << (shift - 1)))
    factor = _high_16(factor, to_relu[0])
    if shift > 0:
        factor = _saturated_16(factor * 2)
    if shift < 0:
        factor = _right_rounding(factor, -shift)
    factor = (factor + (1 << 15)) >> 1
    product = factor * value
    return _right_rounding(np.sign(product) * (abs(product) >> 15), -to_result[1])


def _multiplier_16(scale: float) -> tuple[int, int]:
    """A multiplier of 15 bits and its shift."""
    multiplier, shift = quantize_multiplier(scale)
    return (0x7FFF if multiplier >= 0x7FFF0000 else (multiplier + (1 << 15)) >> 16), shift


def _saturated_16(x: Array) -> Array:
    return np.asarray(np.clip(x, -(1 << 15), (1 << 15) - 1))


def _high_16(x: Array, multiplier: int) -> Array:
    """x m 2^-15, rounded to the nearest, ties up."""
    return _saturated_16((x * multiplier + (1 << 14)) >> 15)


def _right_rounding(x: Array, places: int) -> Array:
    return evaluated(fixed_point.shift_right_rounding, x, places).astype(np.int64)
