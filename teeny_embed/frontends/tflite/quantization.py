"""The numbers of TensorFlow Lite's quantised arithmetic: multipliers, activation ranges, and what uses them.

The rules are those of TFLite Micro's reference kernels; each is stated here once.
"""

from __future__ import annotations

from math import floor, frexp, inf, ldexp
from typing import Any

import numpy as np

from teeny_embed.errors import DataError
from teeny_embed.frontends.tflite.model import Array, TensorInfo
from teeny_embed.graph.node import scoped
from teeny_embed.graph.tensor import Tensor, call, constant

ROUNDINGS = ("tflite", "litert")
"""What a model is imported to equal: TFLite Micro, or LiteRT's reference kernels."""
ACTIVATIONS = {
    "NONE": (-inf, inf), "RELU": (0.0, inf), "RELU_N1_TO_1": (-1.0, 1.0), "RELU6": (0.0, 6.0)
}  # fmt: skip
"""The real range of a fused activation."""
GREATEST_SHIFT = {"tflite": 30, "tflite_single": 30, "tflite_wide": 7}
"""How far to the left each rounding rule shifts."""
SMALL = ("int8", "uint8", "int16")
"""What activations are stored as."""


def round_away(x: float) -> int:
    """To the nearest integer, ties away from zero."""
    return floor(x + 0.5) if x >= 0 else -floor(0.5 - x)


def quantize_multiplier(scale: float) -> tuple[int, int]:
    """(multiplier, shift) with scale = multiplier 2^(shift - 31); what is below 2^-32 becomes 0."""
    if scale == 0:
        return 0, 0
    fraction, shift = frexp(scale)
    multiplier = round_away(ldexp(fraction, 31))
    if multiplier == 1 << 31:
        multiplier, shift = 1 << 30, shift + 1
    return (0, 0) if shift < -31 else (multiplier, shift)


def quantize_multipliers(scales: Array, where: str, rounding: str = "tflite") -> tuple[Array, Array]:
    """int32 arrays of multipliers and shifts. Raises DataError for a scale that the rule does not define."""
    pairs = [quantize_multiplier(float(scale)) for scale in scales]
    limit = GREATEST_SHIFT[rounding]
    if wrong := [scale for scale, (_, shift) in zip(scales, pairs, strict=True) if shift > limit]:
        raise DataError(f"the result is rescaled by {wrong[0]:g}", where=where)
    multipliers, shifts = zip(*pairs, strict=True)
    return np.array(multipliers, np.int32), np.array(shifts, np.int32)


def quotient(numerator: Any, denominator: Any, where: str) -> Any:
    """A quotient by a scale. Raises DataError where the divisor is 0."""
    if denominator == 0:
        raise DataError("a scale is 0", where=where)
    return numerator / denominator


def activation_range(activation: str, output: TensorInfo) -> tuple[int, int]:
    """Least and greatest stored value of a quantised result after its fused activation."""
    if activation not in ACTIVATIONS:
        raise DataError(f"activation {activation} of integers is not supported", where=output.where)
    (low, high), (least, greatest) = ACTIVATIONS[activation], output.limits
    least = max(least, stored(low, output)) if low > -inf else least
    greatest = min(greatest, stored(high, output)) if high < inf else greatest
    if least > greatest:
        raise DataError(f"activation {activation} leaves no value of {output.name!r}", where=output.where)
    return least, greatest


def stored(real: float, info: TensorInfo) -> int:
    """The number that stands for `real`, not clamped: divided in binary32, rounded away from zero."""
    if info.scale == 0:
        raise DataError("a scale is 0", where=info.where)
    return info.zero_point + round_away(float(np.float32(real) / np.float32(info.scale)))


def clamp(x: Tensor, low: int, high: int) -> Tensor:
    """x within [low, high], in its own type; an end of a small type needs no comparison."""
    limits = np.iinfo(x.dtype)
    if x.dtype == "int32" or high < limits.max:
        x = call("minimum", x, constant(high, x.dtype))
    if x.dtype == "int32" or low > limits.min:
        x = call("maximum", x, constant(low, x.dtype))
    return x


def requantize(x: Tensor, multiplier: Array | int, shift: Array | int, rounding: str) -> Tensor:
    """An accumulator rescaled; multiplier and shift are numbers or int32 arrays that broadcast to it."""
    factors = constant(multiplier, "int32", scoped("multiplier")), constant(shift, "int32", scoped("shift"))
    return call("requantize", x, *factors, rounding=rounding)


def rescaled(x: Tensor, scale: float, where: str, rounding: str = "tflite") -> Tensor:
    """An accumulator times one real scale."""
    multipliers, shifts = quantize_multipliers(np.array([scale]), where, rounding)
    return requantize(x, multipliers[0], shifts[0], rounding)


def to_output(x: Tensor, output: TensorInfo, activation: str = "NONE") -> Tensor:
    """An int32 value in the output's scale: its zero point added, clamped, as the output's type."""
    low, high = activation_range(activation, output)
    return clamp(x + output.zero_point, low, high).astype(output.dtype)


def real_values(stored: Array, info: TensorInfo) -> Array:
    """float32 of a known tensor: (stored - zero point) scale, per channel too."""
    if info.dtype == "float16":
        return stored.astype(np.float32)
    quantization = info.quantization
    if quantization is None:
        raise DataError(f"tensor {info.name!r} is not quantised", where=info.where)
    shape = [1] * stored.ndim
    if quantization.per_channel:
        shape[quantization.axis] = -1
    above = stored - quantization.zero_points.reshape(shape)
    return above.astype(np.float32) * quantization.scales.reshape(shape)
