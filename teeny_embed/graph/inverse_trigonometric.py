"""asin, acos and atan of binary32.

Polynomials as in `exponential`: minimax in the weight named beside them.
"""

from __future__ import annotations

import numpy as np

from teeny_embed.graph.algebraic import absolute, copy_sign, polynomial, sqrt
from teeny_embed.graph.scalar import (
    Scalar,
    bits,
    define,
    equal,
    from_bits,
    greater,
    less,
    less_equal,
    select,
)

_PI_HALVES, _PI_HALVES_LOW = float.fromhex("0x1.921fb6p+0"), float.fromhex("-0x1.777a5cp-25")
_TAN_PI_EIGHTH, _TAN_THREE_PI_EIGHTHS = float.fromhex("0x1.a8279ap-2"), float.fromhex("0x1.3504f4p+1")


def _atan(x: Scalar) -> Scalar:
    """atan(a) = pi / 4 + atan((a - 1) / (a + 1)) = pi / 2 - atan(1 / a), whichever argument is small."""
    a = absolute(x)
    large, medium = greater(a, _TAN_THREE_PI_EIGHTHS), greater(a, _TAN_PI_EIGHTH)
    t = select(large, -1.0, select(medium, a - 1.0, a)) / select(large, a, select(medium, a + 1.0, 1.0))
    z = t * t
    # (atan(t) / t - 1) / t^2 in t^2 on |t| <= tan(pi / 8), error 2^-30 relative to atan
    q = polynomial(z, "-0x1.555548p-2", "0x1.9990f8p-3", "-0x1.23a876p-3", "0x1.b12432p-4", "-0x1.edc168p-5")
    share = select(large, 1.0, select(medium, 0.5, 0.0 * a))
    rest = t + (t * (z * q) + share * _PI_HALVES_LOW)
    return copy_sign(select(medium, share * _PI_HALVES + rest, rest), x)


def _excess(z: Scalar) -> Scalar:
    """asin(s) / s - 1, z = s^2 <= 1 / 4."""
    # divided by s^2, in s^2; error 2^-27 relative to asin
    return z * polynomial(
        z, "0x1.5555cap-3", "0x1.33016ap-4", "0x1.748a2cp-5", "0x1.8bb502p-6", "0x1.59cd0ep-5"
    )


def _asin(x: Scalar) -> Scalar:
    """Beyond 1 / 2, pi / 2 - 2 asin(s) with s^2 = (1 - a) / 2, which is exact.

    s = w + c, w of 12 bits: pi / 4 - 2 w is exact, so that only small numbers are rounded (FreeBSD msun,
    e_asin.c).
    """
    a = absolute(x)
    z = (1.0 - a) * 0.5
    s = sqrt(z)
    w = from_bits(bits(s) & 0xFFFFF000)
    c = (z - w * w) / (s + w)
    small = (s + s) * _excess(z) - (_PI_HALVES_LOW - (c + c))
    beyond = 0.5 * _PI_HALVES - (small - (0.5 * _PI_HALVES - (w + w)))
    near = a + a * _excess(a * a)
    # At 1 the quotient above is 0 / 0; beyond 1 the root of a negative number is NaN, as the result is.
    return copy_sign(select(less_equal(a, 0.5), near, select(equal(z, 0.0), _PI_HALVES, beyond)), x)


def _acos(x: Scalar) -> Scalar:
    a = absolute(x)
    z = (1.0 - a) * 0.5
    s = sqrt(z)
    twice = 2.0 * (s + s * _excess(z))
    end = select(less(x, 0.0), 2.0 * _PI_HALVES - (twice - 2.0 * _PI_HALVES_LOW), twice)
    near = x + x * _excess(x * x)
    return select(less_equal(a, 0.5), _PI_HALVES - (near - _PI_HALVES_LOW), end)


asin = define("asin", "the angle in [-pi / 2, pi / 2] whose sine is x", _asin, max_ulp=0.88, numpy=np.arcsin)
acos = define("acos", "the angle in [0, pi] whose cosine is x", _acos, max_ulp=1.16, numpy=np.arccos)
atan = define(
    "atan", "the angle in [-pi / 2, pi / 2] whose tangent is x", _atan, max_ulp=1.88, numpy=np.arctan
)
