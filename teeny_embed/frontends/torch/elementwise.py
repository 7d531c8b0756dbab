"""Operators of one element: arithmetic, comparisons, activations. dtypes promote by torch's rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import pi, sqrt
from typing import Any

from teeny_embed.frontends.torch.registry import converter
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, as_tensor, binary, call, constant

Operand = Tensor | float
"""A number is weak: it takes the dtype of the tensor beside it."""


def together(*values: Operand) -> list[Operand]:
    """Tensors of one dtype: float32 if one is, else int32 if one is, else what they are; numbers stay."""
    dtypes = {v.dtype for v in values if isinstance(v, Tensor)}
    if len(dtypes) < 2:
        return list(values)
    dtype = next((d for d in ("float32", "int32") if d in dtypes), sorted(dtypes)[-1])
    return [v.astype(dtype) if isinstance(v, Tensor) else v for v in values]


def _unary(ours: str, x: Tensor) -> Tensor:
    return call(ours, x)


for _aten, _ours in {
    "abs": "abs", "ceil": "ceil", "cos": "cos", "erf": "erf", "exp": "exp", "floor": "floor", "log": "log",
    "bitwise_not": "logical_not", "neg": "negative", "relu": "relu",
    "round": "round_even", "rsqrt": "rsqrt", "sigmoid": "sigmoid", "sign": "sign", "sin": "sin",
    "sqrt": "sqrt", "tanh": "tanh",
}.items():  # fmt: skip
    converter(f"aten.{_aten}")(partial(_unary, _ours))


def _binary(ours: str, x: Operand, other: Operand) -> Tensor:
    return binary(ours, *together(x, other))


for _aten, _ours in {
    "mul": "multiply", "maximum": "maximum", "minimum": "minimum", "eq": "equal", "ne": "not_equal",
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "bitwise_and": "logical_and", "bitwise_or": "logical_or",
}.items():  # fmt: skip
    converter(f"aten.{_aten}")(partial(_binary, _ours))


def _truth(x: Tensor) -> Tensor:
    """A number is true unless it is 0."""
    return x if x.dtype == "bool" else x != 0


@converter("aten.logical_not")
def logical_not(x: Tensor) -> Tensor:
    return call("logical_not", _truth(x))


@converter("aten.logical_and")
def logical_and(x: Tensor, other: Tensor) -> Tensor:
    return call("logical_and", _truth(x), _truth(other))


@converter("aten.logical_or")
def logical_or(x: Tensor, other: Tensor) -> Tensor:
    return call("logical_or", _truth(x), _truth(other))


@converter("aten.add")
def add(x: Tensor, other: Operand, alpha: float = 1) -> Tensor:
    return _binary("add", x, other if alpha == 1 else other * alpha)


@converter("aten.sub")
def sub(x: Tensor, other: Operand, alpha: float = 1) -> Tensor:
    return _binary("subtract", x, other if alpha == 1 else other * alpha)


@converter("aten.div")
def div(x: Tensor, other: Operand) -> Tensor:
    """True division: of integers too."""
    return binary("divide", *(v.astype("float32") if isinstance(v, Tensor) else float(v) for v in (x, other)))


@converter("aten.reciprocal")
def reciprocal(x: Tensor) -> Tensor:
    return 1.0 / x


_POWERS: dict[float, Callable[[Tensor], Tensor]] = {
    1: lambda x: x,
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    0.5: lambda x: call("sqrt", x),
    -0.5: lambda x: call("rsqrt", x),
    -1: reciprocal,
}


@converter("aten.pow")
def power(x: Operand, exponent: Operand) -> Tensor:
    if isinstance(x, Tensor) and not isinstance(exponent, Tensor) and exponent in _POWERS:
        return _POWERS[exponent](x)
    return _binary("pow", x, exponent)


@converter("aten.where")
def choose(condition: Tensor, self: Operand, other: Operand) -> Tensor:
    a, b = together(self, other)
    return call("where", condition, as_tensor(a), as_tensor(b))


@converter("aten.clamp")
def clamp(x: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    if (min, max) == (0, 6):
        return call("relu6", x)
    above = x if min is None else binary("maximum", x, min)
    return above if max is None else binary("minimum", above, max)


@converter("aten.hardtanh")
def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    return clamp(x, min_val, max_val)


# ---- Activations ----------------------------------------------------------------------------------------


@converter("aten.gelu")
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return 0.5 * x * (1.0 + call("tanh", sqrt(2 / pi) * (x + 0.044715 * (x * x * x))))
    return 0.5 * x * (1.0 + call("erf", x * sqrt(0.5)))


@converter("aten.leaky_relu")
def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return where(x > 0, x, x * negative_slope)


@converter("aten.elu")
def elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """exp is taken of what is not positive, so that nothing overflows: not in the gradient either."""
    below = binary("minimum", x, 0.0) * input_scale
    return where(x > 0, x * scale, (call("exp", below) - 1.0) * (alpha * scale))


@converter("aten.celu")
def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    return elu(x, alpha, input_scale=1.0 / alpha)


@converter("aten.softplus")
def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + e^(beta x)) / beta without overflow. Above the threshold torch takes x, which is near."""
    scaled = x * beta
    positive = scaled > 0
    minus_size = where(positive, -scaled, scaled)
    return (where(positive, scaled, 0.0) + call("log", 1.0 + call("exp", minus_size))) / beta


@converter("aten.log_sigmoid")
def log_sigmoid(x: Tensor) -> Tensor:
    return -softplus(-x)


@converter("aten.mish")
def mish(x: Tensor) -> Tensor:
    return x * call("tanh", softplus(x))


@converter("aten.clone", "aten.alias", "aten.lift_fresh_copy")
def same(x: Tensor) -> Tensor:
    return x


@converter("aten._to_copy")
def cast(x: Tensor, dtype: str | None = None) -> Tensor:
    return x if dtype is None else x.astype(dtype)


@converter("aten.native_dropout")
def dropout(x: Tensor, p: float, train: bool, uniform: Any) -> Any:
    """0 with probability p, else x / (1 - p). The second result is the mask."""
    if not train or p == 0:
        return x, constant(True).astype("bool")
    kept = uniform(x.shape) >= p
    return where(kept, x * (1.0 / (1.0 - p)), 0.0), kept
