"""Evaluation in float64: the same function as in float32, but for rounding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed import nn
from teeny_embed.graph.lower import Evaluator
from teeny_embed.graph.node import Variable
from teeny_embed.graph.op import REGISTRY, Sample
from teeny_embed.graph.scalar import FUNCTIONS
from teeny_embed.graph.tensor import Tensor, call, input, trace


def cases() -> Iterator[Any]:
    for op in REGISTRY.values():
        for number, sample in enumerate(op.samples(np.random.default_rng(0)) if op.samples else ()):
            yield pytest.param(op.name, sample, id=f"{op.name}-{number}")


@pytest.mark.parametrize("name, sample", list(cases()))
def test_every_operator_agrees_with_float32(name: str, sample: Sample) -> None:
    arrays = [np.asarray(x) for x in sample.operands]
    inputs = [input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
    graph = trace(lambda *xs: call(name, *xs, **sample.attributes), *inputs)
    feed = {f"x{i}": x for i, x in enumerate(arrays)}
    narrow, wide = (Evaluator(graph, float64)(feed)[0]["output"] for float64 in (False, True))
    assert wide.dtype == ("float64" if narrow.dtype == "float32" else narrow.dtype)
    np.testing.assert_allclose(narrow, wide, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [n for n, f in FUNCTIONS.items() if f.max_ulp is not None])
def test_functions_are_numpys_own(name: str) -> None:
    assert FUNCTIONS[name].numpy is not None


def test_results_have_the_precision_of_float64() -> None:
    x = np.random.default_rng(0).standard_normal((4, 30))
    graph = trace(lambda x: call("log", call("exp", x).sum(axis=1)), input("x", (4, 30)))
    (found,) = Evaluator(graph, float64=True)({"x": x})[0].values()
    np.testing.assert_allclose(found, np.log(np.exp(x).sum(1)), rtol=1e-15)


def test_constants_stay_those_of_float32() -> None:
    graph = trace(lambda x: x * 0.1, input("x", ()))
    (found,) = Evaluator(graph, float64=True)({"x": 1.0})[0].values()
    assert found == float(np.float32(0.1))


def test_variables_are_read_and_assigned_in_float64() -> None:
    total = Variable("total", np.float32(1), "state")

    def add(x: Tensor) -> Tensor:
        te.assign(total, te.read(total) + x)
        return te.read(total)

    _, assigned = Evaluator(trace(add, input("x", ())), float64=True)({"x": 1e-12})
    assert assigned[total] == 1 + 1e-12 and assigned[total].dtype == np.float64


def test_random_masks_are_those_of_float32() -> None:
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(8, 2)).initialize(1)
    x, y = input("x", (3, 8)), input("y", (3, 2))
    graph = te.train_step(net, nn.mse, nn.SGD(), x, y)
    feed = {"x": np.ones((3, 8)), "y": np.zeros((3, 2)), "learning_rate": 0.1}
    narrow, wide = (Evaluator(graph, float64)(feed)[0]["loss"] for float64 in (False, True))
    np.testing.assert_allclose(narrow, wide, rtol=1e-6)
