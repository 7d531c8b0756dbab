"""sin, cos and tan of binary32, accurate for every argument.

The argument is counted in quarter turns, as a fixed-point number with 62 bits of fraction: x 2 / pi from
integer products with the bits of 2 / pi that matter for x (Payne and Hanek, Radian reduction for
trigonometric functions, SIGNUM Newsletter 18(1), 1983). The same few multiplications serve every size of
x. The closest that a binary32 comes to a multiple of pi / 2 is 2^-29, which leaves 33 bits.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from teeny_embed.graph.algebraic import SIGN, copy_sign, polynomial
from teeny_embed.graph.scalar import (
    Scalar,
    bits,
    cast,
    const,
    define,
    equal,
    from_bits,
    less,
    not_equal,
    select,
)

# 32 zero bits, then 2 / pi
_TWO_OVER_PI = (0x00000000, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041)
_QUARTER_PI_BITS = 0x3F490FDB
_HALF_PI = 0xC90FDAA2  # times 2^-31
_QUARTER = 1 << 62


def _choose(condition: Scalar, words: list[Scalar], step: int) -> list[Scalar]:
    return [select(condition, b, a) for a, b in zip(words, words[step:], strict=False)]


def _quarter_turns(x: Scalar) -> Scalar:
    """|x| 2 / pi modulo 4, times 2^62, for finite |x| >= 1/2: |x| = m 2^(e - 24), 2^23 <= m < 2^24."""
    word = bits(x)
    e = ((word >> 23) & 0xFF) - 126
    m = ((word & 0x007FFFFF) | 0x00800000) << 6
    # The product needs 96 bits of 2 / pi from bit e on. e = 128 is the only one above 127, so count
    # from e - 1 where that is possible and double m instead.
    above = cast(not_equal(e, 0), "uint32")
    e, m = e - above, m << above
    words = [const(w, "uint32") for w in _TWO_OVER_PI]
    words = _choose(not_equal(e & 64, 0), words, 2)
    words = _choose(not_equal(e & 32, 0), words, 1)
    left = e & 31
    high, middle, low = ((a << left) | ((b >> 1) >> (31 - left)) for a, b in pairwise(words[:4]))
    wide = cast(m, "uint64")
    top = cast(m * high, "uint64") << 32  # whole turns overflow, as they should
    return top + wide * cast(middle, "uint64") + ((wide * cast(low, "uint64")) >> 32)


quarter_turns = define("quarter_turns", "|x| 2 / pi modulo 4, times 2^62, for |x| >= 1/2", _quarter_turns)


def _sin_near_0(r: Scalar, z: Scalar) -> Scalar:
    """|r| <= pi / 4, z = r^2; error 2^-27 relative to sin."""
    return r + r * (z * polynomial(z, "-0x1.555546p-3", "0x1.110778p-7", "-0x1.9953fep-13"))


def _cos_near_0(z: Scalar) -> Scalar:
    """z <= (pi / 4)^2; error 2^-33."""
    return 1.0 + z * polynomial(z, "-0x1p-1", "0x1.55554ap-5", "-0x1.6c0c28p-10", "0x1.99e80cp-16")


def _sin_of_turns(turns: Scalar) -> Scalar:
    nearest = (turns + _QUARTER // 2) >> 62
    fraction = turns << 2  # of a quarter turn, signed, at most 1/2
    negative = not_equal(fraction >> 63, 0)
    magnitude = select(negative, 0 - fraction, fraction)
    # times pi / 2, in 2^63; the upper part becomes binary32 exactly, so that their sum rounds once
    high = cast(cast(magnitude >> 32, "uint32"), "uint64") * _HALF_PI
    angle = high + ((cast(cast(magnitude, "uint32"), "uint64") * _HALF_PI) >> 32)
    upper, lower = cast(angle >> 40, "uint32"), cast(angle >> 8, "uint32")
    r = cast(upper, "float32") * 2.0**-23 + cast(lower, "float32") * 2.0**-55
    z = r * r
    sine, cosine = bits(_sin_near_0(r, z)) ^ (cast(negative, "uint32") << 31), bits(_cos_near_0(z))
    word = select(equal(nearest & 1, 0), sine, cosine)
    return from_bits(word ^ (cast(nearest & 2, "uint32") << 30))


sin_of_turns = define("sin_of_turns", "sine of x / 2^62 quarter turns", _sin_of_turns, "uint64")


def _reduced(x: Scalar, near: Scalar, far: Scalar) -> Scalar:
    """`near` for |x| <= pi / 4, `far` for other finite x, else NaN."""
    a = bits(x) & ~SIGN
    return select(less(a, _QUARTER_PI_BITS), near, select(less(a, 0x7F800000), far, x - x))


def _sin(x: Scalar) -> Scalar:
    far = from_bits(bits(sin_of_turns(quarter_turns(x))) ^ (bits(x) & SIGN))
    near = copy_sign(_sin_near_0(x, x * x), x)  # the sign matters for -0
    return _reduced(x, near, far)


def _cos(x: Scalar) -> Scalar:
    return _reduced(x, _cos_near_0(x * x), sin_of_turns(quarter_turns(x) + _QUARTER))


sin = define("sin", "sine of x radians", _sin, max_ulp=1.55, numpy=np.sin)
cos = define("cos", "cosine of x radians", _cos, max_ulp=1.55, numpy=np.cos)
tan = define("tan", "tangent of x radians", lambda x: sin(x) / cos(x), max_ulp=3.54, numpy=np.tan)
