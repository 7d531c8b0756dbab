"""Every form reads the same through a view as from a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed.graph.lower import evaluate_graph
from teeny_embed.graph.op import REGISTRY, Sample
from teeny_embed.graph.tensor import Tensor, call


def cases() -> list[Any]:
    found = []
    for op in REGISTRY.values():
        if op.samples is None or op.view is not None:
            continue
        samples = [c for c in op.samples(np.random.default_rng(3)) if all(np.ndim(o) for o in c.operands)]
        for i, sample in enumerate(samples):
            found += [pytest.param(op.name, sample, k, id=f"{op.name}-{i}-{k}") for k in VIEWS]
    return found


def as_slice(values: np.ndarray[Any, Any]) -> Tensor:
    """A part of a larger tensor whose other elements are worth noticing."""
    padded = np.pad(values, [(1, 2)] * values.ndim, constant_values=1)
    key = tuple(slice(1, 1 + e) for e in values.shape)
    return te.constant(padded, values.dtype.name)[key]


def as_transpose(values: np.ndarray[Any, Any]) -> Tensor:
    return te.constant(values.T.copy(), values.dtype.name).transpose()


VIEWS = {"slice": as_slice, "transpose": as_transpose}


@pytest.mark.parametrize(("name", "sample", "view"), cases())
def test_a_view_is_read_like_a_copy(name: str, sample: Sample, view: str) -> None:
    operands = [np.asarray(o) for o in sample.operands]
    direct = [te.constant(o, o.dtype.name) for o in operands]
    viewed = [VIEWS[view](o) for o in operands]
    graph = te.trace(
        lambda: {
            "direct": call(name, *direct, **sample.attributes),
            "viewed": call(name, *viewed, **sample.attributes),
        }
    )
    outputs, _ = evaluate_graph(graph, {})
    np.testing.assert_array_equal(outputs["viewed"], outputs["direct"])


def test_one_number_is_seen_as_many() -> None:
    graph = te.trace(lambda x: te.expand(x, shape=(2, 3)), te.input("x", ()))
    outputs, _ = evaluate_graph(graph, {"x": np.float32(3)})
    np.testing.assert_array_equal(outputs["output"], np.full((2, 3), 3, np.float32))
