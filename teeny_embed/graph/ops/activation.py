"""Activations. Of one element each; softmax and what belongs to it are in `softmax`.

Formulas are those of ONNX and torch.nn.functional (version 2), defaults torch's where they differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from teeny_embed.graph import functions as f
from teeny_embed.graph import scalar as s
from teeny_embed.graph.op import Attribute, Op, Sample, Vjp, register
from teeny_embed.graph.ops.elementwise import elementwise, float_type, where
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.tensor import Tensor, call


def activation(
    name: str,
    summary: str,
    scalar: Callable[..., Scalar],
    vjp: Vjp,
    attributes: Mapping[str, float] | None = None,
) -> None:
    """Register a function of one float32 with attributes that are numbers, given with their defaults."""
    numbers = {n: Attribute("number", default=d, check=float) for n, d in (attributes or {}).items()}

    def samples(rng: np.random.Generator) -> list[Sample]:
        return [Sample((rng.uniform(-4, 4, (2, 3)).astype(np.float32),))]

    register(Op(name, summary, float_type, vjp, scalar=scalar, attributes=numbers, samples=samples))


def _at_least(x: Scalar, low: float) -> Scalar:
    """NaN stays NaN."""
    return s.select(s.less(x, low), low, x)


def _between(x: Scalar, low: float, high: float) -> Scalar:
    return s.select(s.less(high, x), high, _at_least(x, low))


def _inside(g: Tensor, x: Tensor, low: float, high: float) -> Tensor:
    """g where x lies between, else 0."""
    return where(call("logical_and", x > low, x < high), g, 0.0)


# ---- In pieces ------------------------------------------------------------------------------------------

activation(
    "leaky_relu", "x, or slope x where x < 0",
    lambda x, slope: s.select(s.less(x, 0), x * slope, x),
    lambda g, ans, x, slope: (where(x < 0.0, g * slope, g),),
    {"slope": 0.01},
)  # fmt: skip
elementwise(
    "prelu",
    "x, or slope x where x < 0",
    lambda x, slope: s.select(s.less(x, 0), x * slope, x),
    lambda g, ans, x, slope: (where(x < 0.0, g * slope, g), where(x < 0.0, g * x, 0.0)),
    float_type,
    operand_count=2,
)
activation(
    "threshold", "x where x > threshold, else value",
    lambda x, threshold, value: s.select(s.less_equal(x, threshold), value, x),
    lambda g, ans, x, threshold, value: (where(x <= threshold, 0.0, g),),
    {"threshold": 1.0, "value": 0.0},
)  # fmt: skip
activation(
    "clip", "min(max(x, low), high); NaN stays NaN",
    _between, lambda g, ans, x, low, high: (_inside(g, x, low, high),), {"low": -1.0, "high": 1.0},
)  # fmt: skip
activation(
    "hard_sigmoid", "max(0, min(1, alpha x + beta))",
    lambda x, alpha, beta: _between(x * alpha + beta, 0.0, 1.0),
    lambda g, ans, x, alpha, beta: (_inside(g * alpha, ans, 0.0, 1.0),),
    {"alpha": 1 / 6, "beta": 0.5},
)  # fmt: skip
activation(
    "hard_swish", "x max(0, min(1, x / 6 + 1/2))",
    lambda x: x * _between(x * (1 / 6) + 0.5, 0.0, 1.0),
    lambda g, ans, x: (where(x < -3.0, 0.0, where(x < 3.0, g * (x * (1 / 3) + 0.5), g)),),
)  # fmt: skip
activation(
    "hard_shrink", "x, or 0 where |x| <= size",
    lambda x, size: s.select(_within(x, size), 0.0, x),
    lambda g, ans, x, size: (where(call("abs", x) <= size, 0.0, g),),
    {"size": 0.5},
)  # fmt: skip
activation(
    "soft_shrink", "x moved by size towards 0, and 0 where |x| <= size",
    lambda x, size: s.select(_within(x, size), 0.0, s.select(s.less(x, 0), x + size, x - size)),
    lambda g, ans, x, size: (where(call("abs", x) <= size, 0.0, g),),
    {"size": 0.5},
)  # fmt: skip
activation(
    "softsign", "x / (1 + |x|)",
    lambda x: x / (s.select(s.less(x, 0), s.negative(x), x) + 1.0),
    lambda g, ans, x: (g / ((call("abs", x) + 1.0) * (call("abs", x) + 1.0)),),
)  # fmt: skip


def _within(x: Scalar, size: float) -> Scalar:
    return s.logical_and(s.less_equal(x, size), s.less_equal(-size, x))


# ---- Exponential ----------------------------------------------------------------------------------------


def _elu(x: Scalar, alpha: float) -> Scalar:
    return s.select(s.less(x, 0), f.expm1(x) * alpha, x)


activation(
    "elu", "x, or alpha (e^x - 1) where x < 0", _elu,
    lambda g, ans, x, alpha: (where(x < 0.0, g * (ans + alpha), g),), {"alpha": 1.0},
)  # fmt: skip
activation(
    "selu", "gamma x, or gamma alpha (e^x - 1) where x < 0",
    lambda x, alpha, gamma: _elu(x, alpha) * gamma,
    lambda g, ans, x, alpha, gamma: (where(x < 0.0, g * (ans + alpha * gamma), g * gamma),),
    {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805},
)  # fmt: skip
activation(
    "celu", "x, or alpha (e^(x / alpha) - 1) where x < 0",
    lambda x, alpha: s.select(s.less(x, 0), f.expm1(x / alpha) * alpha, x),
    lambda g, ans, x, alpha: (where(x < 0.0, g * (ans / alpha + 1.0), g),),
    {"alpha": 1.0},
)  # fmt: skip
activation(
    "silu", "x sigmoid(x)",
    lambda x: x * f.sigmoid(x),
    lambda g, ans, x: (g * (_sigmoid(x) * (1.0 + x - ans)),),
)  # fmt: skip
activation(
    "softplus", "ln(1 + e^x)", lambda x: _softplus(x), lambda g, ans, x: (g * _sigmoid(x),)
)  # fmt: skip
activation(
    "log_sigmoid", "ln sigmoid(x)",
    lambda x: s.negative(_softplus(s.negative(x))),
    lambda g, ans, x: (g * _sigmoid(-x),),
)  # fmt: skip
activation(
    "mish", "x tanh(ln(1 + e^x))", lambda x: x * f.tanh(_softplus(x)), lambda g, ans, x: (g * _mish_slope(x),)
)
activation(
    "tanh_shrink", "x - tanh(x)",
    lambda x: x - f.tanh(x),
    lambda g, ans, x: (g * (call("tanh", x) * call("tanh", x)),),
)  # fmt: skip


def _softplus(x: Scalar) -> Scalar:
    """max(x, 0) + ln(1 + e^-|x|): no overflow."""
    positive = s.less(0.0, x)
    rest = f.log1p(f.exp(s.select(positive, s.negative(x), x)))
    return s.select(positive, x + rest, rest)


def _sigmoid(x: Tensor) -> Tensor:
    return call("sigmoid", x)


def _mish_slope(x: Tensor) -> Tensor:
    t = call("tanh", call("softplus", x))
    return t + x * (1.0 - t * t) * _sigmoid(x)


# ---- Gaussian -------------------------------------------------------------------------------------------

_ROOT_HALF, _DENSITY = math.sqrt(0.5), 1.0 / math.sqrt(2.0 * math.pi)
_TANH_SCALE, _TANH_CUBE = math.sqrt(2.0 / math.pi), 0.044715


def _gelu_slope(x: Tensor) -> Tensor:
    below = 0.5 + 0.5 * call("erf", x * _ROOT_HALF)
    return below + x * (call("exp", x * x * -0.5) * _DENSITY)


def _gelu_tanh_slope(x: Tensor) -> Tensor:
    t = call("tanh", (x + x * x * x * _TANH_CUBE) * _TANH_SCALE)
    inner = (1.0 + x * x * (3.0 * _TANH_CUBE)) * _TANH_SCALE
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner


activation(
    "gelu", "x times the share of a normal distribution below x",
    lambda x: x * 0.5 * (f.erf(x * _ROOT_HALF) + 1.0),
    lambda g, ans, x: (g * _gelu_slope(x),),
)  # fmt: skip
activation(
    "gelu_tanh", "gelu by tanh: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))",
    lambda x: x * 0.5 * (f.tanh((x + x * x * x * _TANH_CUBE) * _TANH_SCALE) + 1.0),
    lambda g, ans, x: (g * _gelu_tanh_slope(x),),
)  # fmt: skip
