"""Named scalar functions of binary32, without a math library.

Each is one expression of add, subtract, multiply, divide, compare, select, integer and bit operations, so
NumPy, C and CUDA give the same bits. Special values follow C99 Annex F: NaN gives NaN, and infinities,
zeros and subnormals are right. `max_ulp` of the functions of one float was measured over all 2^32 arguments
by `benchmarks/unary_ulp.py`; docs/unary_functions.md has the table.
"""

from teeny_embed.graph.algebraic import ceil, floor, fmod, round_away, round_even, rsqrt, sqrt, trunc
from teeny_embed.graph.exponential import erf, exp, expm1, log, log1p, sigmoid, tanh
from teeny_embed.graph.hyperbolic import acosh, asinh, atanh, cosh, sinh
from teeny_embed.graph.inverse_trigonometric import acos, asin, atan
from teeny_embed.graph.power import power
from teeny_embed.graph.random import initial_value, normal, threefry2x32, uniform, uniform_at, word
from teeny_embed.graph.trigonometric import cos, sin, tan

__all__ = [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "expm1",
    "floor", "fmod", "initial_value", "log", "log1p", "normal", "power", "round_away", "round_even", "rsqrt",
    "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "threefry2x32", "trunc", "uniform", "uniform_at",
    "word",
]  # fmt: skip
