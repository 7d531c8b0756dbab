"""Scalar functions of binary32 built on e^x and ln x.

Polynomials are minimax (Remez exchange) in the weight named beside them; coefficients were rounded to
binary32 one after the other from the lowest power, each time fitting the remaining ones again.
"""

from __future__ import annotations

import math

import numpy as np

from teeny_embed.graph.algebraic import (
    INFINITY,
    NAN,
    SIGN,
    absolute,
    copy_sign,
    polynomial,
    positive_finite,
)
from teeny_embed.graph.scalar import (
    Scalar,
    bits,
    cast,
    const,
    define,
    equal,
    from_bits,
    greater,
    less,
    less_equal,
    negative,
    select,
)

# ln 2 in two parts (Cody and Waite, Software Manual for the Elementary Functions, 1980): the upper has 16
# bits, so its product with an exponent is exact.
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e4p-1"), float.fromhex("0x1.7f7d1cp-20")
ROUND = 1.5 * 2.0**23  # adding it leaves the nearest integer in the low bits of the sum


# ---- Exponential --------------------------------------------------------------------------------------


def exp_minus_one(r: Scalar) -> Scalar:
    """e^r - 1 for |r| <= ln 2 / 2; the error of e^r is 2^-28."""
    q = polynomial(r, "0x1.fffffcp-2", "0x1.55548cp-3", "0x1.555858p-5", "0x1.123de0p-7", "0x1.6ac74ep-10")
    return q * (r * r) + r


def reduce_exponent(x: Scalar) -> tuple[Scalar, Scalar]:
    """(n, p) with e^x = 2^n (1 + p), n to the nearest integer; the low 9 bits of the uint32 n count."""
    shifted = x * float.fromhex("0x1.715476p+0") + ROUND
    n = shifted - ROUND
    return bits(shifted), exp_minus_one((x - n * LN2_HIGH) - n * LN2_LOW)


def halves(n: Scalar) -> tuple[Scalar, Scalar]:
    """n as a sum of two: 2^n alone leaves binary32 at both ends, its two factors do not."""
    half = n >> 1
    return half, n - half


def power_of_two(n: Scalar) -> Scalar:
    """2^n, -126 <= n <= 127."""
    return from_bits((n + 127) << 23)


def scale(y: Scalar, n: Scalar) -> Scalar:
    """y 2^n for y in [0.7, 1.5], |n| <= 250. One factor adds to the exponent, the other rounds once."""
    first, second = halves(n)
    return from_bits(bits(y) + (first << 23)) * power_of_two(second)


def in_range(x: Scalar) -> Scalar:
    """bool: |x| <= 104, beyond which e^x is 0 or infinite; NaN is outside."""
    return less_equal(bits(x) & ~SIGN, const(0x42D00000, "uint32"))


def _exp(x: Scalar) -> Scalar:
    n, p = reduce_exponent(x)
    return select(in_range(x), scale(p + 1.0, n), select(greater(x, 0), INFINITY, select(less(x, 0), 0, x)))


exp = define("exp", "e^x", _exp, max_ulp=0.99, numpy=np.exp)


def _expm1(x: Scalar) -> Scalar:
    """2^n p + (2^n - 1), with one factor of 2^n taken out."""
    n, p = reduce_exponent(x)
    first, second = halves(n)
    a, b = power_of_two(first), power_of_two(second)
    y = copy_sign((a * p + (a - power_of_two(0 - second))) * b, x)  # the sign matters for -0
    return select(in_range(x), y, select(greater(x, 0), INFINITY, select(less(x, 0), -1.0, x)))


expm1 = define("expm1", "e^x - 1", _expm1, max_ulp=1.59, numpy=np.expm1)


def _sigmoid(x: Scalar) -> Scalar:
    """1 / (1 + 2^n + 2^n p), e^-x = 2^n (1 + p), with one factor of 2^n taken out.

    The greater of 1 and 2^n is added last: the sum then rounds once, where 1 + e^-x rounds twice.
    """
    n, p = reduce_exponent(negative(x))
    first, second = halves(n)
    one, power = power_of_two(0 - first), power_of_two(second)
    below = less(x, 0)  # power >= one
    total = select(below, power, one) + (power * p + select(below, one, power))
    return select(in_range(x), one / total, select(greater(x, 0), 1.0, select(below, 0, x)))


sigmoid = define(
    "sigmoid", "1 / (1 + e^-x)", _sigmoid, max_ulp=2.0, numpy=lambda x: 1.0 / (1.0 + np.exp(-x))
)


def _tanh(x: Scalar) -> Scalar:
    """Odd polynomial near 0, 1 - 2 / (e^2|x| + 1) beyond."""
    a, z = absolute(x), x * x
    # (tanh(x) / x - 1) / x^2 in x^2 on |x| <= 0.6, error 2^-28 relative to tanh
    q = polynomial(z, "-0x1.55553ep-2", "0x1.1109bep-3", "-0x1.b89abap-5", "0x1.54c3c2p-6", "-0x1.828776p-8")
    return copy_sign(select(less(a, 0.6), a + a * (z * q), 1.0 - 2.0 / (exp(a + a) + 1.0)), x)


tanh = define("tanh", "hyperbolic tangent", _tanh, max_ulp=1.34, numpy=np.tanh)


def _erf(x: Scalar) -> Scalar:
    """Odd polynomial near 0, 1 - e^(polynomial of |x|) beyond."""
    a, z = absolute(x), x * x
    # erf(x) / x - 1 in x^2 on |x| <= 0.84, error 2^-27 relative to erf
    near = a + a * polynomial(
        z,
        "0x1.06eba8p-3", "-0x1.812728p-2", "0x1.ce25fap-4",
        "-0x1.b74170p-6", "0x1.4bcf9ap-8", "-0x1.4eabb0p-11",
    )  # fmt: skip
    # ln(1 - erf(a)) / a on [0.84, 3.95], error 2^-28 of erf; from 3.92 on, erf rounds to 1
    t = select(greater(a, 4.0), 4.0, a)
    far = t * polynomial(
        t,
        "-0x1.20e73ap+0", "-0x1.4576bap-1", "-0x1.af67aep-4",
        "0x1.77accep-6", "-0x1.a6ff3cp-9", "0x1.c3ddd8p-13",
    )  # fmt: skip
    return copy_sign(select(less(a, 0.84), near, 1.0 - exp(far)), x)


erf = define("erf", "error function", _erf, max_ulp=1.25, numpy=np.vectorize(math.erf, [float]))


# ---- Logarithm ----------------------------------------------------------------------------------------


def split(x: Scalar) -> tuple[Scalar, Scalar]:
    """(e, m) with x = 2^e m, m in [sqrt 1/2, sqrt 2), for positive finite x; e is int32."""
    word = bits(x)
    subnormal = less(word, 0x00800000)
    word = select(subnormal, bits(x * 2.0**23), word)
    # 1 - sqrt 1/2 in units of the last place carries into the exponent where the fraction is above sqrt 2.
    carried = word + (0x3F800000 - 0x3F3504F3)
    e = cast(carried >> 23, "int32") - select(subnormal, const(150, "int32"), 127)
    return e, from_bits((carried & 0x007FFFFF) + 0x3F3504F3)


def log_of_split(e: Scalar, f: Scalar) -> Scalar:
    """e ln 2 + ln(1 + f), 1 + f in [0.707, 1.415], by s = f / (2 + f) (FreeBSD msun, e_log.c)."""
    power = cast(e, "float32")
    s = f / (2.0 + f)
    z = s * s
    # (2 atanh(s) / s - 2) / z on z <= 0.0295, error 2^-29 relative to ln(1 + f)
    q = polynomial(z, "0x1.55557ap-1", "0x1.995ed2p-2", "0x1.31e13ap-2")
    return power * LN2_HIGH + (f - (s * (f - z * q) - power * LN2_LOW))


def _log(x: Scalar) -> Scalar:
    e, m = split(x)
    y = log_of_split(e, m - 1.0)
    return select(positive_finite(x), y, select(equal(x, 0), -INFINITY, select(less(x, 0), NAN, x)))


log = define("log", "natural logarithm", _log, max_ulp=0.96, numpy=np.log)


def _log1p(x: Scalar) -> Scalar:
    """ln of u = 1 + x; what rounding took from u, exact by Fast2Sum (Dekker 1971), goes back into f."""
    u = x + 1.0
    lost = select(less(x, 1.0), x - (u - 1.0), 1.0 - (u - x))
    word = bits(u) + (0x3F800000 - 0x3F3504F3)  # as in `split`; u is never subnormal
    e = cast(word >> 23, "int32") - 127
    lost = (lost * power_of_two(cast(1 - e, "uint32"))) * 0.5  # 2^-e in two factors, as e may be 128
    f = (from_bits((word & 0x007FFFFF) + 0x3F3504F3) - 1.0) + lost
    y = copy_sign(log_of_split(e, f), x)  # the sign matters for -0
    return select(positive_finite(u), y, select(equal(u, 0), -INFINITY, select(less(u, 0), NAN, x)))


log1p = define("log1p", "ln(1 + x)", _log1p, max_ulp=1.54, numpy=np.log1p)
