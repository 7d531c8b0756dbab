"""Requantisation: an accumulator times a real scale, in integers; a named scalar function per rounding rule.

The scale is m 2^(shift - 31) with a multiplier m, 0 or 2^30 <= m < 2^31, and a shift that is positive to the
left, negative to the right (TFLite's `QuantizeMultiplier`). No zero point is added and nothing is clamped.
"""

from __future__ import annotations

from teeny_embed.graph import scalar as s
from teeny_embed.graph.scalar import Scalar, ScalarFunction, define


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


# ---- Cheaper forms, for operands that are known to be small ------------------------------------------------


def _high_product(x: Scalar, y: Scalar) -> Scalar:
    product = s.cast(x, "int64") * s.cast(y, "int64")
    carry = s.shift_right(s.cast(product, "uint32"), s.const(31, "uint32"))
    return s.cast(s.shift_right(product, s.const(32, "int64")), "int32") + s.cast(carry, "int32")


high_product = define(
    "high_product", "x y 2^-32 rounded to the nearest, ties up", _high_product, "int32", "int32"
)
"""What rule "tflite" computes first, of twice its accumulator: one instruction on many cores."""

doubled_high_product = define(
    "doubled_high_product",
    "high product of 2 x and y",
    lambda x, y: _high_product(x + x, y),
    "int32", "int32",
)  # fmt: skip


def rounded_shift(x: Scalar, places: Scalar, negative: bool) -> Scalar:
    """x 2^-places rounded to the nearest, ties away from zero; |x| < 2^30, 1 <= places <= 31.

    `negative` says whether x may be: then a tie is one less than what rounding up would take for one.
    """
    half = s.shift_left(s.const(1, "int32"), places - 1)
    if places.op == "const":
        half = s.const(1 << (places.attr - 1), "int32")
    below = x + s.shift_right(x, s.const(31, "int32")) if negative else x
    return s.shift_right(below + half, places)


def _saturate(dtype: str, least: int) -> ScalarFunction:
    def nearest(x: Scalar) -> Scalar:
        low, high = s.const(least, "int32"), s.const(-1 - least, "int32")
        most = s.select(s.less_equal(x, high), x, high)
        return s.cast(s.select(s.less_equal(low, most), most, low), dtype)

    return define(f"saturate_{dtype}", f"the nearest {dtype}", nearest, "int32")


SATURATE = {"int8": _saturate("int8", -(1 << 7)), "int16": _saturate("int16", -(1 << 15))}
"""The nearest number of a type: one instruction on many cores."""
