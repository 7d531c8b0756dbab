"""Scalar functions of binary32 that need no polynomial: rounding to integers and square roots.

Also the helpers that the other modules of scalar functions share.
"""

from __future__ import annotations

import numpy as np

from teeny_embed.graph.scalar import (
    Scalar,
    add,
    bits,
    cast,
    const,
    define,
    equal,
    from_bits,
    greater,
    less,
    negative,
    not_equal,
    select,
)

SIGN = 0x80000000
INFINITY_BITS = 0x7F800000
INFINITY = float("inf")
NAN = float("nan")


def absolute(x: Scalar) -> Scalar:
    """|x| by clearing the sign bit."""
    return from_bits(bits(x) & ~SIGN)


def copy_sign(magnitude: Scalar, x: Scalar) -> Scalar:
    """`magnitude` with the sign of x; `magnitude` is positive or has that sign already."""
    return from_bits(bits(magnitude) | (bits(x) & SIGN))


def polynomial(x: Scalar, *coefficients: str) -> Scalar:
    """Horner's rule; the constant term comes first. Coefficients are hexadecimal floats."""
    *lower, highest = map(float.fromhex, coefficients)
    value: Scalar | float = highest
    for coefficient in reversed(lower):
        value = add(x * value, coefficient)
    return value if isinstance(value, Scalar) else const(value, "float32")


def positive_finite(x: Scalar) -> Scalar:
    """bool: x > 0, not infinite, not NaN, in one integer comparison."""
    return less(bits(x) - 1, const(INFINITY_BITS - 1, "uint32"))


# ---- Rounding to integers -----------------------------------------------------------------------------


def _trunc(x: Scalar) -> Scalar:
    word = bits(x)
    exponent = (word >> 23) & 0xFF
    fraction_mask = const(0x007FFFFF, "uint32") >> (exponent - 127)
    whole = word & (fraction_mask ^ 0xFFFFFFFF)
    # Below 1 only the sign stays; from 2^23 on, every number is an integer, infinite or NaN.
    return select(less(exponent, 150), from_bits(select(less(exponent, 127), word & SIGN, whole)), x)


trunc = define("trunc", "the integer next to x towards 0", _trunc, max_ulp=0.0, numpy=np.trunc)


def _floor(x: Scalar) -> Scalar:
    towards_zero = trunc(x)
    return select(less(x, towards_zero), towards_zero - 1.0, towards_zero)


floor = define("floor", "the greatest integer not above x", _floor, max_ulp=0.0, numpy=np.floor)


def _ceil(x: Scalar) -> Scalar:
    return negative(floor(negative(x)))


ceil = define("ceil", "the least integer not below x", _ceil, max_ulp=0.0, numpy=np.ceil)


def _round(x: Scalar) -> Scalar:
    """Adding 2^23 leaves no bits for a fraction, so the addition itself rounds half to even."""
    a = absolute(x)
    return select(less(a, 2.0**23), copy_sign((a + 2.0**23) - 2.0**23, x), x)


def _round_away(x: Scalar) -> Scalar:
    towards_zero = trunc(x)
    further = towards_zero + copy_sign(const(1, "float32"), x)
    return select(less(absolute(x - towards_zero), 0.5), towards_zero, further)


round_away = define("round_away", "the nearest integer, halves away from 0", _round_away)
round_even = define("round", "the nearest integer, halves to even", _round, max_ulp=0.0, numpy=np.rint)


# ---- Remainder ------------------------------------------------------------------------------------------


def _fmod(a: Scalar, b: Scalar) -> Scalar:
    """The quotient may be rounded up to the next integer. Its product is exact in binary64, so what it leaves
    has the other sign then."""
    quotient = trunc(a / b)
    left = cast(cast(a, "float64") - cast(quotient, "float64") * cast(b, "float64"), "float32")
    crossed = not_equal(bits(left) >> 31, bits(a) >> 31)
    size = select(crossed, absolute(b) - absolute(left), absolute(left))
    left = copy_sign(select(equal(left, 0.0), 0.0, size), a)
    return select(less(absolute(a), absolute(b)), a, left)  # also for an infinite b


fmod = define(
    "fmod", "what truncated division leaves, exact while the quotient has at most 24 bits", _fmod,
    "float32", "float32", numpy=np.fmod,
)  # fmt: skip


# ---- Square roots -------------------------------------------------------------------------------------


def _reciprocal_root(m: Scalar) -> Scalar:
    """2^16 / sqrt(m / 2^14) for 2^14 <= m < 2^16, to 2^-13, in products of 16 bits.

    A minimax cubic of relative error 2^-7.1, then one Newton step r - r (m r^2 - 1) / 2.
    """
    r = 25518 - ((m * 2497) >> 14)  # 2^17
    r = 48422 - ((m * r) >> 15)  # 2^16
    r = 101986 - ((m * r) >> 14)  # 2^16
    excess = cast((((r * r) >> 16) * m) >> 14, "int32") - 65536
    return r - cast((cast(r, "int32") * excess) >> 17, "uint32")


def _sqrt(x: Scalar) -> Scalar:
    """The root s of the significand m as an integer: s^2 is next to 2^23 m, so 32 bits hold the remainder.

    An estimate with 15 bits, refined by its exact remainder, comes out above s - 1.35 and below s + 0.01
    for every m (checked for all 2^24 of them), so one comparison with the exact remainder rounds it.
    No ties exist: (s + 1/2)^2 is not an integer.
    """
    word = bits(x)
    subnormal = less(word, 0x00800000)
    word = select(subnormal, bits(x * 2.0**24), word)
    exponent = word >> 23  # biased: odd for an even power of two
    m = ((word & 0x007FFFFF) | 0x00800000) << ((exponent & 1) ^ 1)  # in 2^23, 1 <= m < 4
    r = _reciprocal_root(m >> 9)
    estimate = ((m >> 9) * r) >> 15  # of sqrt(m), in 2^15
    remainder = cast((m << 7) - estimate * estimate, "int32")  # in 2^30, exact
    s = (estimate << 8) + cast(((remainder >> 6) * cast(r, "int32")) >> 18, "uint32")  # in 2^23
    remainder = cast((m << 23) - s * s, "int32")  # in 2^46, exact, as |remainder| < 2^26
    s = s + cast(greater(remainder, cast(s, "int32")), "uint32")
    # s has its leading bit at 2^23, which adds the last 1 to the exponent.
    halved = (exponent + select(subnormal, const(125 - 24, "uint32"), 125)) >> 1
    root = from_bits(s + (halved << 23))
    return select(positive_finite(x), root, select(less(x, 0), NAN, x))


sqrt = define("sqrt", "square root, correctly rounded", _sqrt, max_ulp=0.5, numpy=np.sqrt)
rsqrt = define(
    "rsqrt", "1 / sqrt(x)", lambda x: 1.0 / sqrt(x), max_ulp=1.5, numpy=lambda x: 1.0 / np.sqrt(x)
)
