"""Activations: against their formulas in float64, and against torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from support.data import Array
from teeny_embed import nn
from teeny_embed.errors import AttributeValueError, ShapeError

X = np.linspace(-5, 5, 42, dtype=np.float32).reshape(7, 6)
TOLERANCE = 1.5e-6
"""A few units in the last place of each function and product."""


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


def normal(x: Array) -> Array:
    return np.vectorize(lambda v: math.erfc(-v / math.sqrt(2)) / 2)(x)


CASES: dict[str, tuple[nn.Module, Callable[[Array], Array], str]] = {
    "LeakyReLU": (nn.LeakyReLU(), lambda x: np.where(x < 0, 0.01 * x, x), "LeakyReLU()"),
    "PReLU": (nn.PReLU(6), lambda x: np.where(x < 0, 0.25 * x, x), "PReLU(6)"),
    "Threshold": (nn.Threshold(0.5, -2), lambda x: np.where(x > 0.5, x, -2), "Threshold(0.5, -2)"),
    "Hardtanh": (nn.Hardtanh(-2, 3), lambda x: np.clip(x, -2, 3), "Hardtanh(-2, 3)"),
    "Hardsigmoid": (nn.Hardsigmoid(), lambda x: np.clip(x / 6 + 0.5, 0, 1), "Hardsigmoid()"),
    "Hardswish": (nn.Hardswish(), lambda x: x * np.clip(x / 6 + 0.5, 0, 1), "Hardswish()"),
    "Hardshrink": (nn.Hardshrink(1), lambda x: np.where(abs(x) <= 1, 0, x), "Hardshrink(1)"),
    "Softshrink": (
        nn.Softshrink(1), lambda x: np.sign(x) * np.maximum(abs(x) - 1, 0), "Softshrink(1)",
    ),
    "Tanhshrink": (nn.Tanhshrink(), lambda x: x - np.tanh(x), "Tanhshrink()"),
    "Softsign": (nn.Softsign(), lambda x: x / (1 + abs(x)), "Softsign()"),
    "ELU": (nn.ELU(2), lambda x: np.where(x < 0, 2 * np.expm1(x), x), "ELU(2)"),
    "SELU": (
        nn.SELU(), lambda x: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * np.expm1(x), x),
        "SELU()",
    ),
    "CELU": (nn.CELU(2), lambda x: np.where(x < 0, 2 * np.expm1(x / 2), x), "CELU(2)"),
    "GELU": (nn.GELU(), lambda x: x * normal(x), "GELU()"),
    "GELU, tanh": (
        nn.GELU("tanh"), lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        "GELU('tanh')",
    ),
    "SiLU": (nn.SiLU(), lambda x: x * sigmoid(x), "SiLU()"),
    "Mish": (nn.Mish(), lambda x: x * np.tanh(softplus(x)), "Mish()"),
    "Softplus": (nn.Softplus(), softplus, "Softplus()"),
    "LogSigmoid": (nn.LogSigmoid(), lambda x: -softplus(-x), "LogSigmoid()"),
    "GLU": (nn.GLU(), lambda x: x[:, :3] * sigmoid(x[:, 3:]), "GLU()"),
    "LogSoftmax": (
        nn.LogSoftmax(), lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True)), "LogSoftmax(-1)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_activation_is_its_formula(name: str) -> None:
    layer, formula, _ = CASES[name]
    expected = formula(X.astype(np.float64))
    np.testing.assert_allclose(layer(te.constant(X)).numpy(), expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_torchs(name: str) -> None:
    import torch

    layer, _, theirs = CASES[name]
    given, x = te.constant(X), torch.tensor(X, requires_grad=True)
    y = layer(given)
    expected = eval(f"torch.nn.{theirs}", {"torch": torch})(x)
    weight = np.random.default_rng(2).standard_normal(y.shape).astype(np.float32)
    (gradient,) = te.grad((y * weight).sum(), [given])
    (expected * torch.tensor(weight)).sum().backward()
    for ours, other in ((y.numpy(), expected.detach().numpy()), (gradient.numpy(), x.grad.numpy())):  # type: ignore[union-attr]
        assert abs(ours - other).max() <= 1e-5 * abs(other).max()


def test_large_arguments_do_not_overflow() -> None:
    x = te.constant(np.array([-1e4, 1e4], np.float32))
    names = ("Softplus", "LogSigmoid", "Mish", "SiLU")
    found: Any = {name: CASES[name][0](x).numpy().tolist() for name in names}
    assert found == {"Softplus": [0, 1e4], "LogSigmoid": [-1e4, 0], "Mish": [0, 1e4], "SiLU": [0, 1e4]}


def test_slopes_of_a_prelu_are_trained() -> None:
    x, target = te.input("x", (1, 6)), te.input("target", (1, 6))
    step = te.train_step(nn.PReLU(6), nn.mse, nn.SGD(), x, target)
    assert [v.name for v, _ in step.assigns] == ["weight"]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(AttributeValueError, match="approximate"):
        nn.GELU("erf")
    with pytest.raises(ShapeError, match="halves"):
        nn.GLU(0)(te.constant(X))
