"""Operators of one element: arithmetic, comparison, selection, and the named functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from teeny_embed.errors import DTypeError
from teeny_embed.graph import functions
from teeny_embed.graph import scalar as s
from teeny_embed.graph.op import NOT_DIFFERENTIABLE, Attribute, Op, Sample, Vjp, _NotDifferentiable, register
from teeny_embed.graph.scalar import DTYPES, Scalar
from teeny_embed.graph.tensor import Tensor, call, constant
from teeny_embed.graph.types import ARITHMETIC, FLOAT, NUMBERS, TensorType, broadcast, expect


def same_type(*types: TensorType, **_: Any) -> TensorType:
    """Broadcast shape; all operands of one dtype, which is the result's."""
    dtypes = dict.fromkeys(t.dtype for t in types)
    if len(dtypes) != 1:
        raise DTypeError(f"operands are {' and '.join(dtypes)}", hint="cast one with .astype(...)")
    return TensorType(broadcast(*types), types[0].dtype)


def float_type(*types: TensorType, **_: Any) -> TensorType:
    """As `same_type`, float32 only."""
    expect(FLOAT, *types)
    return same_type(*types)


def number_type(*types: TensorType, **_: Any) -> TensorType:
    """As `same_type`: integers and float32."""
    expect(NUMBERS, *types)
    return same_type(*types)


def arithmetic_type(*types: TensorType, **_: Any) -> TensorType:
    """As `same_type`: integers, float32 and float64."""
    expect(ARITHMETIC, *types)
    return same_type(*types)


def comparison_type(*types: TensorType, **_: Any) -> TensorType:
    """As `arithmetic_type`, or bool; the result is bool."""
    expect(("bool", *ARITHMETIC), *types)
    return same_type(*types).with_dtype("bool")


def logic_type(*types: TensorType, **_: Any) -> TensorType:
    """bool in, bool out."""
    expect(("bool",), *types)
    return same_type(*types)


def _test_type(x: TensorType, **_: Any) -> TensorType:
    """float32 in, bool out."""
    return float_type(x).with_dtype("bool")


def where(condition: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
    """a where condition, else b; numbers take the other's dtype."""
    dtype = next(t.dtype for t in (a, b) if isinstance(t, Tensor))
    first, second = (t if isinstance(t, Tensor) else constant(t, dtype) for t in (a, b))
    return call("where", condition, first, second)


def _samples(
    *shapes: tuple[int, ...], low: float = -2.0, high: float = 2.0
) -> Callable[..., Sequence[Sample]]:
    def make(rng: np.random.Generator) -> list[Sample]:
        return [Sample(tuple(rng.uniform(low, high, shape).astype(np.float32) for shape in shapes))]

    return make


def elementwise(
    name: str,
    summary: str,
    scalar: Callable[..., Scalar],
    vjp: Vjp | _NotDifferentiable,
    infer: Callable[..., TensorType] = arithmetic_type,
    operand_count: int = 1,
    low: float = -2.0,
    high: float = 2.0,
) -> Op:
    """Register one operator that is a scalar expression without attributes."""
    shapes = [(2, 3), (3,), (2, 1)][:operand_count]
    samples = None if infer is logic_type else _samples(*shapes, low=low, high=high)
    return register(Op(name, summary, infer, vjp, scalar=scalar, samples=samples))


# ---- Arithmetic ---------------------------------------------------------------------------------------

elementwise("add", "a + b", s.add, lambda g, ans, a, b: (g, g), operand_count=2)
elementwise("subtract", "a - b", s.subtract, lambda g, ans, a, b: (g, -g), operand_count=2)
elementwise("multiply", "a b", s.multiply, lambda g, ans, a, b: (g * b, g * a), operand_count=2)
elementwise(
    "divide", "a / b", s.divide, lambda g, ans, a, b: (g / b, -(g * ans) / b), operand_count=2, low=0.5
)
elementwise("negative", "-x", s.negative, lambda g, ans, x: (-g,), number_type)
elementwise(
    "abs",
    "|x|",
    lambda x: s.select(_below_zero(x), s.negative(x), x),
    lambda g, ans, x: (g * sign(x),),
    number_type,
)
elementwise("sign", "-1, 0 or 1; NaN stays NaN", lambda x: _sign(x), NOT_DIFFERENTIABLE, number_type)
elementwise(
    "maximum",
    "the larger; NaN if either is",
    lambda a, b: _first_unless(s.less_equal(b, a), a, b),
    lambda g, ans, a, b: (where(a < b, 0.0, g), where(a < b, g, 0.0)),
    operand_count=2,
)
elementwise(
    "minimum",
    "the smaller; NaN if either is",
    lambda a, b: _first_unless(s.less_equal(a, b), a, b),
    lambda g, ans, a, b: (where(b < a, 0.0, g), where(b < a, g, 0.0)),
    operand_count=2,
)


elementwise(
    "fmod",
    "what truncated division leaves: it has the sign of a; a itself for integers and b = 0",
    lambda a, b: _fmod(a, b),
    lambda g, ans, a, b: (g, -(g * call("trunc", a / b))),
    number_type,
    operand_count=2,
    low=0.5,
)
elementwise(
    "mod",
    "what division rounded down leaves: it has the sign of b",
    lambda a, b: _mod(a, b),
    lambda g, ans, a, b: (g, -(g * call("floor", a / b))),
    number_type,
    operand_count=2,
    low=0.5,
)


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return call("sign", x)


def _sign(x: Scalar) -> Scalar:
    positive = s.select(s.less(s.const(0, x.dtype), x), s.const(1, x.dtype), x)
    return s.select(_below_zero(x), s.const(-1, x.dtype), positive)


def _below_zero(x: Scalar) -> Scalar:
    """x < 0, which unsigned integers never are."""
    return s.const(False, "bool") if x.dtype.startswith("uint") else s.less(x, 0)


def _fmod(a: Scalar, b: Scalar) -> Scalar:
    return functions.fmod(a, b) if a.dtype == "float32" else s.remainder(a, b)


def _mod(a: Scalar, b: Scalar) -> Scalar:
    left = _fmod(a, b)
    zero = s.const(0, a.dtype)
    other_sign = s.not_equal(_below_zero(left), _below_zero(b))
    return s.select(s.logical_and(s.not_equal(left, zero), other_sign), left + b, left)


def _first_unless(kept: Scalar, a: Scalar, b: Scalar) -> Scalar:
    """a where it is kept or NaN, else b; a comparison with a NaN keeps nothing."""
    chosen = s.select(kept, a, b)
    return s.select(s.is_nan(a), a, chosen) if a.dtype.startswith("float") else chosen


# ---- Comparison and choice ----------------------------------------------------------------------------

for _name, _symbol in (
    ("less", "<"), ("less_equal", "<="), ("greater", ">"),
    ("greater_equal", ">="), ("equal", "=="), ("not_equal", "!="),
):  # fmt: skip
    elementwise(_name, f"a {_symbol} b", getattr(s, _name), NOT_DIFFERENTIABLE, comparison_type, 2)
elementwise("logical_not", "not x", s.logical_not, NOT_DIFFERENTIABLE, logic_type)
elementwise("logical_and", "a and b", s.logical_and, NOT_DIFFERENTIABLE, logic_type, 2)
elementwise("logical_or", "a or b", s.logical_or, NOT_DIFFERENTIABLE, logic_type, 2)


elementwise("logical_xor", "a or b, not both", s.not_equal, NOT_DIFFERENTIABLE, logic_type, 2)
elementwise("is_nan", "whether x is no number", s.is_nan, NOT_DIFFERENTIABLE, _test_type)
elementwise(
    "is_inf", "whether x is infinite",
    lambda x: s.equal(s.bits(x) & 0x7FFFFFFF, s.const(0x7F800000, "uint32")), NOT_DIFFERENTIABLE, _test_type,
)  # fmt: skip


def _where_type(condition: TensorType, a: TensorType, b: TensorType) -> TensorType:
    if condition.dtype != "bool":
        hint = "compare: x > 0, or .astype('bool')"
        raise DTypeError(f"condition is {condition.dtype}, expected bool", hint=hint)
    return TensorType(broadcast(condition, a, b), same_type(a, b).dtype)


register(
    Op(
        "where",
        "a where condition, else b",
        _where_type,
        lambda g, ans, c, a, b: (None, where(c, g, 0.0), where(c, 0.0, g)),
        scalar=s.select,
        samples=lambda rng: [
            Sample((rng.random((2, 3)) < 0.5, *(rng.standard_normal((2, 3), dtype="f4") for _ in "ab")))
        ],
    )
)


def _dtype(value: str) -> str:
    if value not in DTYPES:
        raise ValueError(f"no dtype; one of {', '.join(DTYPES)}")
    return value


register(
    Op(
        "cast",
        "to another dtype: integers wrap, float to integer truncates and saturates",
        lambda x, dtype: x.with_dtype(dtype),
        lambda g, ans, x, dtype: (g.astype(x.dtype) if x.type.is_float and ans.type.is_float else None,),
        scalar=lambda x, dtype: s.cast(x, dtype),
        attributes={"dtype": Attribute("NumPy dtype name", required=True, check=_dtype)},
        samples=lambda rng: [
            Sample((rng.uniform(-300, 300, (2, 3)).astype("f4"),), {"dtype": d}) for d in ("int8", "int32")
        ],
    )
)

# ---- Functions ----------------------------------------------------------------------------------------


def _relu(x: Scalar) -> Scalar:
    return s.select(_below_zero(x), s.const(0, x.dtype), x)


elementwise(
    "relu", "max(x, 0); NaN stays NaN", _relu, lambda g, ans, x: (where(ans > 0.0, g, 0.0),), number_type
)
elementwise(
    "relu6",
    "min(max(x, 0), 6); NaN stays NaN",
    lambda x: s.select(s.less(s.const(6, x.dtype), x), s.const(6, x.dtype), _relu(x)),
    lambda g, ans, x: (where(call("logical_and", ans > 0.0, ans < 6.0), g, 0.0),),
    number_type,
    low=-3,
    high=9,
)
elementwise("exp", "e^x", functions.exp, lambda g, ans, x: (g * ans,), float_type)
elementwise("log", "natural logarithm", functions.log, lambda g, ans, x: (g / x,), float_type, low=0.1)
elementwise(
    "sqrt",
    "square root, correctly rounded",
    functions.sqrt,
    lambda g, ans, x: (g * 0.5 / ans,),
    float_type,
    low=0.1,
)
elementwise(
    "tanh", "hyperbolic tangent", functions.tanh, lambda g, ans, x: (g * (1.0 - ans * ans),), float_type
)
elementwise(
    "sigmoid", "1 / (1 + e^-x)", functions.sigmoid, lambda g, ans, x: (g * (ans * (1.0 - ans)),), float_type
)
elementwise(
    "erf",
    "error function",
    functions.erf,
    lambda g, ans, x: (g * (call("exp", -(x * x)) * (2.0 / float(np.sqrt(np.pi)))),),
    float_type,
)


def _pow_vjp(g: Tensor, ans: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return g * (y * call("pow", x, y - 1.0)), g * (ans * call("log", x))


elementwise("pow", "x^y", functions.power, _pow_vjp, float_type, 2, low=0.3)

elementwise("sin", "sine", functions.sin, lambda g, ans, x: (g * call("cos", x),), float_type)
elementwise("cos", "cosine", functions.cos, lambda g, ans, x: (-(g * call("sin", x)),), float_type)
elementwise("tan", "tangent", functions.tan, lambda g, ans, x: (g * (1.0 + ans * ans),), float_type, high=1.2)
elementwise(
    "asin", "inverse sine", functions.asin, lambda g, ans, x: (g * call("rsqrt", 1.0 - x * x),), float_type,
    low=-0.9, high=0.9,
)  # fmt: skip
elementwise(
    "acos", "inverse cosine", functions.acos,
    lambda g, ans, x: (-(g * call("rsqrt", 1.0 - x * x)),), float_type, low=-0.9, high=0.9,
)  # fmt: skip
elementwise("atan", "inverse tangent", functions.atan, lambda g, ans, x: (g / (1.0 + x * x),), float_type)
elementwise("sinh", "hyperbolic sine", functions.sinh, lambda g, ans, x: (g * call("cosh", x),), float_type)
elementwise("cosh", "hyperbolic cosine", functions.cosh, lambda g, ans, x: (g * call("sinh", x),), float_type)
elementwise(
    "asinh", "inverse hyperbolic sine", functions.asinh,
    lambda g, ans, x: (g * call("rsqrt", x * x + 1.0),), float_type,
)  # fmt: skip
elementwise(
    "acosh", "inverse hyperbolic cosine", functions.acosh,
    lambda g, ans, x: (g * call("rsqrt", x * x - 1.0),), float_type, low=1.2, high=4,
)  # fmt: skip
elementwise(
    "atanh", "inverse hyperbolic tangent", functions.atanh,
    lambda g, ans, x: (g / (1.0 - x * x),), float_type, low=-0.9, high=0.9,
)  # fmt: skip
elementwise("expm1", "e^x - 1", functions.expm1, lambda g, ans, x: (g * (ans + 1.0),), float_type)
elementwise("log1p", "ln(1 + x)", functions.log1p, lambda g, ans, x: (g / (1.0 + x),), float_type, low=-0.7)
elementwise(
    "reciprocal", "1 / x", lambda x: 1.0 / x, lambda g, ans, x: (-(g * ans) * ans,), float_type, low=0.3
)
elementwise(
    "rsqrt",
    "1 / sqrt(x)",
    functions.rsqrt,
    lambda g, ans, x: (g * (ans / x) * -0.5,),
    float_type,
    low=0.1,
)

# ---- To integers --------------------------------------------------------------------------------------

for _name, _summary in (
    ("floor", "the greatest integer not above x"),
    ("ceil", "the least integer not below x"),
    ("trunc", "the integer next to x towards 0"),
    ("round_even", "the nearest integer, halves to even"),
    ("round_away", "the nearest integer, halves away from 0"),
):
    elementwise(_name, _summary, getattr(functions, _name), NOT_DIFFERENTIABLE, float_type)
