"""Hyperbolic functions of binary32 and their inverses, by e^x and ln(1 + x). tanh is in `exponential`."""

from __future__ import annotations

import math

import numpy as np

from teeny_embed.graph.algebraic import INFINITY, NAN, absolute, copy_sign, polynomial, sqrt
from teeny_embed.graph.exponential import in_range, log, log1p, reduce_exponent, scale
from teeny_embed.graph.scalar import Scalar, define, less, less_equal, select

_LN2 = math.log(2.0)
_LARGE = 2.0**14  # from here on 1 is nothing beside a^2


def _half_exp(a: Scalar) -> Scalar:
    """e^a / 2, which is finite for some a for which e^a is not; a >= 0."""
    n, p = reduce_exponent(a)
    return select(in_range(a), scale(p + 1.0, n - 1), a * INFINITY)  # NaN stays NaN


def _sinh(x: Scalar) -> Scalar:
    """Odd polynomial near 0."""
    a, z, half = absolute(x), x * x, half_exp(absolute(x))
    # (sinh(x) / x - 1) / x^2 in x^2 on |x| <= 1, error 2^-31 relative to sinh
    near = a + a * (z * polynomial(z, "0x1.555554p-3", "0x1.1111a2p-7", "0x1.9fcf26p-13", "0x1.804d32p-19"))
    return copy_sign(select(less(a, 1.0), near, half - 0.25 / half), x)


def _cosh(x: Scalar) -> Scalar:
    half = half_exp(absolute(x))
    return half + 0.25 / half


def _asinh(x: Scalar) -> Scalar:
    a = absolute(x)
    z = a * a
    near = log1p(a + z / (1.0 + sqrt(z + 1.0)))
    return copy_sign(select(less(a, _LARGE), near, log(a) + _LN2), x)


def _acosh(x: Scalar) -> Scalar:
    t = x - 1.0
    near = log1p(t + sqrt(t * (t + 2.0)))
    return select(less(x, 1.0), NAN, select(less(x, _LARGE), near, log(x) + _LN2))


def _atanh(x: Scalar) -> Scalar:
    """ln(1 + u) / 2, u = 2 a / (1 - a); below 1 / 2 as 2 a + 2 a^2 / (1 - a), where a itself is exact."""
    a = absolute(x)
    twice = a + a
    u = select(less_equal(a, 0.5), twice + twice * a / (1.0 - a), twice / (1.0 - a))
    return copy_sign(0.5 * log1p(u), x)


half_exp = define("half_exp", "e^x / 2 for x >= 0", _half_exp)
sinh = define("sinh", "hyperbolic sine", _sinh, max_ulp=1.62, numpy=np.sinh)
cosh = define("cosh", "hyperbolic cosine", _cosh, max_ulp=1.44, numpy=np.cosh)
asinh = define("asinh", "the x whose hyperbolic sine this is", _asinh, max_ulp=1.91, numpy=np.arcsinh)
acosh = define("acosh", "the x >= 0 whose hyperbolic cosine this is", _acosh, max_ulp=2.5, numpy=np.arccosh)
atanh = define("atanh", "the x whose hyperbolic tangent this is", _atanh, max_ulp=1.85, numpy=np.arctanh)
