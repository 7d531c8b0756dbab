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


def adamax(p: Array, target: Array, steps: int) -> Array:
    m, u = np.zeros_like(p), np.zeros_like(p)
    for t in range(1, steps + 1):
        g = 2 * (p - target)
        m, u = 0.9 * m + 0.1 * g, np.maximum(0.999 * u, abs(g) + 1e-8)
        p = p - RATE / (1 - 0.9**t) * m / u
    return p


def nadam(p: Array, target: Array, decay: float, steps: int) -> Array:
    m, v, product = np.zeros_like(p), np.zeros_like(p), 1.0
    for t in range(1, steps + 1):
        g = 2 * (p - target)
        now, later = (0.9 * (1 - 0.5 * 0.96 ** (n * decay)) for n in (t, t + 1))
        product *= now
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        direction = (1 - now) / (1 - product) * g + later / (1 - product * later) * m
        p = p - RATE * direction / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return p


def radam(p: Array, target: Array, beta2: float, steps: int) -> Array:
    m, v, most = np.zeros_like(p), np.zeros_like(p), 2 / (1 - beta2) - 1
    for t in range(1, steps + 1):
        g = 2 * (p - target)
        m, v = 0.9 * m + 0.1 * g, beta2 * v + (1 - beta2) * g * g
        r, step = most - 2 * t * beta2**t / (1 - beta2**t), m / (1 - 0.9**t)
        if r > 5:
            step *= np.sqrt((r - 4) * (r - 2) * most / ((most - 4) * (most - 2) * r))
            step /= np.sqrt(v) / np.sqrt(1 - beta2**t) + 1e-8
        p = p - RATE * step
    return p


def rprop(p: Array, target: Array, steps: int) -> Array:
    before, size = np.zeros_like(p), np.full_like(p, RATE)
    for _ in range(steps):
        g = 2 * (p - target)
        size = np.clip(size * np.choose(np.sign(g * before).astype(int) + 1, (0.5, 1, 1.2)), 1e-6, 50)
        before = np.where(g * before < 0, 0, g)
        p = p - np.sign(before) * size
    return p


def adagrad(p: Array, target: Array, rate_decay: float, steps: int) -> Array:
    v = np.zeros_like(p)
    for t in range(steps):
        g = 2 * (p - target)
        v = v + g * g
        p = p - RATE / (1 + t * rate_decay) * g / (np.sqrt(v) + 1e-10)
    return p


def adadelta(p: Array, target: Array, steps: int) -> Array:
    v, u = np.zeros_like(p), np.zeros_like(p)
    for _ in range(steps):
        g = 2 * (p - target)
        v = 0.9 * v + 0.1 * g * g
        d = np.sqrt(u + 1e-6) / np.sqrt(v + 1e-6) * g
        u = 0.9 * u + 0.1 * d * d
        p = p - RATE * d
    return p


def asgd(p: Array, target: Array, steps: int) -> Array:
    for t in range(steps):
        eta = RATE / (1 + 0.5 * RATE * t) ** 0.75
        p = p * (1 - 0.5 * eta) - eta * 2 * (p - target)
    return p


def muon(p: Array, target: Array, nesterov: bool, steps: int) -> Array:
    """Two rows and three columns: what is made orthogonal is wide."""
    m = np.zeros_like(p)
    for _ in range(steps):
        g = 2 * (p - target)
        m = 0.95 * m + 0.05 * g
        x = 0.05 * g + 0.95 * m if nesterov else m
        x = x / np.linalg.norm(x)
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
        p = p * (1 - RATE * 0.1) - RATE * x
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
    "adamax": (nn.Adamax(), adamax),
    "nadam": (nn.NAdam(), lambda p, t, n: nadam(p, t, 4e-3, n)),
    "nadam with more decay": (nn.NAdam(momentum_decay=2), lambda p, t, n: nadam(p, t, 2, n)),
    "radam": (nn.RAdam(), lambda p, t, n: radam(p, t, 0.999, n)),
    "radam, known from the start": (nn.RAdam(beta2=0.7), lambda p, t, n: radam(p, t, 0.7, n)),
    "rprop": (nn.Rprop(), rprop),
    "adagrad": (nn.Adagrad(), lambda p, t, n: adagrad(p, t, 0, n)),
    "adagrad with decay": (nn.Adagrad(rate_decay=0.1), lambda p, t, n: adagrad(p, t, 0.1, n)),
    "adadelta": (nn.Adadelta(), adadelta),
    "asgd": (nn.ASGD(decay=0.5), asgd),
    "muon": (nn.Muon(), lambda p, t, n: muon(p, t, True, n)),
    "muon without nesterov": (nn.Muon(nesterov=False), lambda p, t, n: muon(p, t, False, n)),
}


@pytest.mark.parametrize("name", CASES)
def test_ten_steps_follow_the_formula(name: str) -> None:
    optimizer, formula = CASES[name]
    target = np.random.default_rng(3).standard_normal((2, 3), dtype=np.float32)
    expected = formula(Quadratic().weight.value.astype(np.float64), target, 10)
    error = abs(trained(optimizer, target, 10) - expected).max()
    assert error <= 1e-5 * abs(expected).max()


def torch_optimizers() -> dict[str, tuple[nn.Optimizer, Any]]:
    """Ours and torch's, called with the parameters."""
    import torch

    o = torch.optim
    return {
        "SGD": (nn.SGD(momentum=0.9, nesterov=True, weight_decay=0.1),
                lambda p: o.SGD(p, RATE, momentum=0.9, nesterov=True, weight_decay=0.1)),
        "Adam": (nn.Adam(weight_decay=0.1), lambda p: o.Adam(p, RATE, weight_decay=0.1)),
        "AdamW": (nn.AdamW(), lambda p: o.AdamW(p, RATE)),
        "Adamax": (nn.Adamax(weight_decay=0.1), lambda p: o.Adamax(p, RATE, weight_decay=0.1)),
        "NAdam": (nn.NAdam(weight_decay=0.1), lambda p: o.NAdam(p, RATE, weight_decay=0.1)),
        "RAdam": (nn.RAdam(weight_decay=0.1), lambda p: o.RAdam(p, RATE, weight_decay=0.1)),
        "RMSprop": (nn.RMSprop(momentum=0.9), lambda p: o.RMSprop(p, RATE, momentum=0.9)),
        "Rprop": (nn.Rprop(), lambda p: o.Rprop(p, RATE)),
        "Adagrad": (nn.Adagrad(weight_decay=0.1, rate_decay=0.1),
                    lambda p: o.Adagrad(p, RATE, weight_decay=0.1, lr_decay=0.1)),
        "Adadelta": (nn.Adadelta(), lambda p: o.Adadelta(p, RATE)),
        "ASGD": (nn.ASGD(weight_decay=0.1, start=3), lambda p: o.ASGD(p, RATE, weight_decay=0.1, t0=3)),
    }  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "Adagrad", "Adadelta", "ASGD"],
)
def test_ten_steps_are_torchs(name: str) -> None:
    """Muon is compared with its paper alone: torch's iterates in bfloat16."""
    import torch

    ours, theirs = torch_optimizers()[name]
    target = np.random.default_rng(3).standard_normal((2, 3), dtype=np.float32)
    weight = torch.nn.Parameter(torch.tensor(Quadratic().weight.value))
    optimizer = theirs([weight])
    for _ in range(10):
        optimizer.zero_grad()
        ((weight - torch.tensor(target)) ** 2).sum().backward()
        optimizer.step()
    expected = weight.detach().numpy()
    assert abs(trained(ours, target, 10) - expected).max() <= 1e-5 * abs(expected).max()


def test_muon_leaves_what_has_one_axis_to_another_optimizer() -> None:
    net = nn.Linear(3, 4)
    target = input("target", (2, 4))
    graph = train_step(net, squares, nn.Muon(others=nn.SGD(momentum=0.5)), input("x", (2, 3)), target)
    assert {v.name for v, _ in graph.assigns} == {
        "weight", "weight.momentum", "bias", "bias.momentum",
    }  # fmt: skip


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
