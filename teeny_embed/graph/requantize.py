"""Requantisation: an accumulator times a real scale, in integers; a named scalar function per rounding rule.

The scale is m 2^(shift - 31) with a multiplier m, 0 or 2^30 <= m < 2^31, and a shift that is positive to the
left, negative to the right (TFLite's `QuantizeMultiplier`). No zero point is added and nothing is clamped.
"""

from __future__ import annotations

from teeny_embed.graph import scalar as s
from teeny_embed.graph.scalar import Scalar, define


def _at_least_zero(x: Scalar) -> Scalar:
    return s.select(s.less(x, 0), 0, x)


def _tflite(x: Scalar, multiplier: Scalar, shift: Scalar) -> Scalar:
    left, right = _at_least_zero(shift), _at_least_zero(s.negative(shift))
    wide = s.cast(s.shift_left(x, left), "int64") * s.cast(multiplier, "int64")
    high = s.cast(s.shift_right(wide + (1 << 30), s.const(31, "int64")), "int32")
    mask = s.shift_left(s.const(1, "int32"), right) - 1
    threshold = s.shift_right(mask, s.const(1, "int32")) + s.cast(s.less(high, 0), "int32")
    up = s.cast(s.less(threshold, s.bit_and(high, mask)), "int32")
    return s.shift_right(high, right) + up


def _tflite_single(x: Scalar, multiplier: Scalar, shift: Scalar) -> Scalar:
    places = 31 - s.cast(shift, "int64")
    half = s.shift_left(s.const(1, "int64"), places - 1)
    wide = s.cast(x, "int64") * s.cast(multiplier, "int64")
    return s.cast(s.shift_right(wide + half, places), "int32")


def _tflite_wide(x: Scalar, multiplier: Scalar, shift: Scalar) -> Scalar:
    rounded = s.shift_right(multiplier + (1 << 15), s.const(16, "int32"))
    reduced = s.select(s.less(multiplier, 0x7FFF0000), rounded, 0x7FFF)
    places = 15 - s.cast(shift, "int64")
    half = s.shift_left(s.const(1, "int64"), places - 1)
    return s.cast(s.shift_right(x * s.cast(reduced, "int64") + half, places), "int32")


_INT32 = ("int32", "int32", "int32")
RULES = {
    "tflite": define(
        "requantize_tflite",
        "x m 2^(shift - 31), rounded at bit 31 (ties up), then at the shift (ties away from zero)",
        _tflite,
        *_INT32,
    ),
    "tflite_single": define(
        "requantize_tflite_single", "x m 2^(shift - 31), rounded once, ties up", _tflite_single, *_INT32
    ),
    "tflite_wide": define(
        "requantize_tflite_wide",
        "x m 2^(shift - 31) with m rounded to 16 bits, rounded once, ties up",
        _tflite_wide,
        "int64", "int32", "int32",
    ),
}  # fmt: skip
"""By name. "tflite" is what TFLite Micro computes in every operator with int32 accumulators (gemmlowp's
SaturatingRoundingDoublingHighMul, then RoundingDivideByPOT), "tflite_wide" with int64 accumulators (16-bit
activations); "tflite_single" is LiteRT's reference FULLY_CONNECTED."""
