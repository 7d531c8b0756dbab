"""Optimisers against torch's formulas, written out in float64, over several steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from teeny_embed import nn
from teeny_embed.autograd.training import train_step
from teeny_embed.graph.lower import Evaluator
from teeny_embed.graph.node import Graph, Variable
from teeny_embed.graph.tensor import Tensor, input, read

Array = npt.NDArray[Any]
RATE = 0.01


class Quadratic(nn.Module):
    """(parameter - target)^2: its gradient is 2 (parameter - target)."""

    def __init__(self) -> None:
        self.weight = Variable("", np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return read(self.weight) * x


def squares(prediction: Tensor, target: Tensor) -> Tensor:
    error = prediction - target
    return (error * error).sum()


def step_graph(net: nn.Module, optimizer: nn.Optimizer, clip: Any = None) -> Graph:
    inputs = input("x", (2, 3)), input("target", (2, 3))
    return train_step(net, squares, optimizer, *inputs, clip=clip)


def trained(optimizer: nn.Optimizer, target: Array, steps: int, clip: Any = None) -> Array:
    net = Quadratic()
    run = Evaluator(step_graph(net, optimizer, clip))
    for _ in range(steps):
        _, assigned = run({"x": np.ones((2, 3)), "target": target, "learning_rate": RATE})
        for variable, value in assigned.items():
            variable.set(value)
    return net.weight.value


def sgd(p: Array, target: Array, momentum: float, nesterov: bool, decay: float, steps: int) -> Array:
    buffer = np.zeros_like(p)
    for _ in range(steps):
        g = 2 * (p - target) + decay * p
        buffer = momentum * buffer + g
        p = p - RATE * (g + momentum * buffer if nesterov else buffer)
    return p


def adam(p: Array, target: Array, decay: float, decoupled: bool, steps: int) -> Array:
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t in range(1, steps + 1):
        g = 2 * (p - target)
        if decoupled:
            p = p * (1 - RATE * decay)
        else:
            g = g + decay * p
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p = p - RATE / (1 - 0.9**t) * m / (np.sqrt(v) / np.sqrt(1 - 0.999**t) + 1e-8)
    return p


def rmsprop(p: Array, target: Array, momentum: float, decay: float, steps: int) -> Array:
    v, buffer = np.zeros_like(p), np.zeros_like(p)
    for _ in range(steps):
        g = 2 * (p - target) + decay * p
        v = 0.99 * v + 0.01 * g * g
        buffer = momentum * buffer + g / (np.sqrt(v) + 1e-8)
        p = p - RATE * buffer
    return p


NESTEROV = nn.SGD(momentum=0.9, nesterov=True, weight_decay=0.1)
RMSPROP = nn.RMSprop(momentum=0.9, weight_decay=0.1)
CASES: dict[str, tuple[nn.Optimizer, Callable[..., Array]]] = {
    "sgd": (nn.SGD(), lambda p, t, n: sgd(p, t, 0, False, 0, n)),
    "weight decay": (nn.SGD(weight_decay=0.1), lambda p, t, n: sgd(p, t, 0, False, 0.1, n)),
    "momentum": (nn.SGD(momentum=0.9), lambda p, t, n: sgd(p, t, 0.9, False, 0, n)),
    "nesterov": (NESTEROV, lambda p, t, n: sgd(p, t, 0.9, True, 0.1, n)),
    "adam": (nn.Adam(), lambda p, t, n: adam(p, t, 0, False, n)),
    "adam with decay": (nn.Adam(weight_decay=0.1), lambda p, t, n: adam(p, t, 0.1, False, n)),
    "adamw": (nn.AdamW(weight_decay=0.1), lambda p, t, n: adam(p, t, 0.1, True, n)),
    "rmsprop": (nn.RMSprop(), lambda p, t, n: rmsprop(p, t, 0, 0, n)),
    "rmsprop with all": (RMSPROP, lambda p, t, n: rmsprop(p, t, 0.9, 0.1, n)),
}


@pytest.mark.parametrize("name", CASES)
def test_five_steps_follow_the_formula(name: str) -> None:
    optimizer, formula = CASES[name]
    target = np.random.default_rng(3).standard_normal((2, 3), dtype=np.float32)
    expected = formula(Quadratic().weight.value.astype(np.float64), target, 5)
    error = abs(trained(optimizer, target, 5) - expected).max()
    assert error <= 1e-5 * abs(expected).max()


def test_bias_correction_keeps_its_low_bits_over_many_steps() -> None:
    net, optimizer = Quadratic(), nn.Adam()
    run = Evaluator(step_graph(net, optimizer))
    for _ in range(20):
        _, assigned = run({"x": np.ones((2, 3)), "target": np.ones((2, 3)), "learning_rate": RATE})
        for variable, value in assigned.items():
            variable.set(value)
    (kept,) = (v.value for v in assigned if v.name == "optimizer.one_minus_beta2_power")
    assert float(kept) == pytest.approx(1 - 0.999**20, rel=1e-6)


def test_moments_are_state_named_after_the_parameter() -> None:
    graph = step_graph(Quadratic(), nn.Adam())
    assert {v.name: v.kind for v, _ in graph.assigns} == {
        "optimizer.one_minus_beta2_power": "state", "optimizer.one_minus_beta1_power": "state",
        "weight.m": "state", "weight.v": "state", "weight": "parameter",
    }  # fmt: skip


def test_one_optimizer_keeps_its_moments_between_traces() -> None:
    net, optimizer = Quadratic(), nn.SGD(momentum=0.9)
    first, second = step_graph(net, optimizer), step_graph(net, optimizer)
    assert [v for v, _ in first.assigns] == [v for v, _ in second.assigns]


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_clipping_by_norm_follows_the_formula(limit: float) -> None:
    target = np.random.default_rng(3).standard_normal((2, 3), dtype=np.float32)
    start = Quadratic().weight.value
    g = 2 * (start - target)
    expected = start - RATE * g * min(1.0, limit / (np.linalg.norm(g) + 1e-6))
    clipped = trained(nn.SGD(), target, 1, nn.clip_by_norm(limit))
    np.testing.assert_allclose(clipped, expected, rtol=1e-6)


def test_clipping_by_value_follows_the_formula() -> None:
    target = np.random.default_rng(3).standard_normal((2, 3), dtype=np.float32)
    start = Quadratic().weight.value
    expected = start - RATE * np.clip(2 * (start - target), -0.5, 0.5)
    clipped = trained(nn.SGD(), target, 1, nn.clip_by_value(0.5))
    np.testing.assert_allclose(clipped, expected, rtol=1e-6)
