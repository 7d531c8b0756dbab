"""x^y in binary32 by integer arithmetic.

y log2 |x| reaches 150 and an error in it is a relative error of the result, so log2 needs 32 bits where
binary32 has 24. A 64-bit integer holds it; products of two 32-bit numbers build it.
"""

from __future__ import annotations

import numpy as np

from teeny_embed.graph.algebraic import INFINITY, NAN, SIGN, absolute, trunc
from teeny_embed.graph.exponential import exp_minus_one, scale, split
from teeny_embed.graph.scalar import (
    Scalar,
    bits,
    cast,
    const,
    define,
    equal,
    greater_equal,
    is_nan,
    less,
    logical_and,
    logical_not,
    logical_or,
    negative,
    not_equal,
    select,
)

# (log2(1 + f) / f - 1 / ln 2) / f in f on [sqrt 1/2 - 1, sqrt 2 - 1], times 2^31: minimax (Remez
# exchange) with an error of 2^-35 of log2(1 + f) / f
_LOG2 = (
    -1549082005, 1032721360, -774540891, 619629493, -516365789, 442749105,
    -387264546, 341091065, -306735568, 309640677, -309264526, 170796871,
)  # fmt: skip
_INVERSE_LN2 = 6196328019  # times 2^-32


def _log2_fixed(x: Scalar) -> Scalar:
    e, m = split(x)
    f = cast((m - 1.0) * 2.0**31, "int32")  # exact; the low seven bits are 0
    wide = cast(f, "int64")
    *lower, highest = _LOG2
    q = const(highest, "int32")
    for coefficient in reversed(lower):
        q = coefficient + cast((cast(q, "int64") * wide) >> 31, "int32")
    slope = _INVERSE_LN2 + ((cast(q, "int64") * wide) >> 30)  # log2(1 + f) / f, in 2^32
    return (cast(e, "int64") << 55) + ((cast(f >> 7, "int64") * slope) >> 1)


log2_fixed = define("log2_fixed", "log2(x) times 2^55, x positive and finite", _log2_fixed)


def _power(log2: Scalar, y: Scalar) -> Scalar:
    """2^(y log2 / 2^55)."""
    exponent = cast((bits(y) >> 23) & 0xFF, "int32") - 127
    significand = cast((bits(y) & 0x007FFFFF) | 0x00800000, "uint64")
    size = cast(select(less(log2, 0), 0 - log2, log2), "uint64")
    up = cast(select(less(exponent, 0), 0, select(less(exponent, 63), exponent, 63)), "uint64")
    down = cast(select(less(exponent, -63), 63, select(less(exponent, 0), 0 - exponent, 0)), "uint64")
    product = (((size << up) >> down) >> 24) * significand  # |y log2 x|, in 2^54
    huge = logical_or(not_equal(size >> (63 - up), 0), greater_equal(product, 160 << 54))
    grows = equal(less(log2, 0), less(y, 0))
    t = cast(select(grows, product, 0 - product), "int64")
    n = (t + (1 << 53)) >> 54
    rest = cast(cast((t - (n << 54)) >> 23, "int32"), "float32")  # in 2^31
    value = scale(exp_minus_one(rest * (0.6931471805599453 * 2.0**-31)) + 1.0, cast(n, "uint32"))
    zero = const(0, "float32")
    return select(huge, select(grows, INFINITY, zero), value)


def _pow(x: Scalar, y: Scalar) -> Scalar:
    a, half = absolute(x), y * 0.5
    y_is_integer = equal(trunc(y), y)
    y_is_odd = logical_and(y_is_integer, not_equal(trunc(half), half))
    at_end = logical_or(equal(a, 0), equal(a, INFINITY))
    end = select(equal(equal(a, 0), less(y, 0)), INFINITY, const(0, "float32"))
    magnitude = select(at_end, end, _power(log2_fixed(a), y))
    signed = select(logical_and(not_equal(bits(x) & SIGN, 0), y_is_odd), negative(magnitude), magnitude)
    undefined = logical_and(logical_and(less(x, 0), logical_not(y_is_integer)), logical_not(at_end))
    one = logical_or(equal(x, 1.0), equal(y, 0))
    value = select(logical_or(is_nan(x), is_nan(y)), x + y, select(undefined, NAN, signed))
    return select(one, 1.0, value)


power = define("pow", "x^y", _pow, "float32", "float32", numpy=np.power)
