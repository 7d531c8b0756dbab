"""Converters against torch: values and gradients of small functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed.graph.lower import Evaluator
from teeny_embed.graph.tensor import Tensor

pytestmark = pytest.mark.full
FUNCTIONS = (
    "arithmetic", "functions", "rounding", "powers", "reciprocals", "comparisons", "logic", "clamp",
    "extremes", "masks", "integers", "relus", "elus", "sigmoids", "softplus", "gelus", "shrinks", "glu",
    "sums", "apart", "largest", "places", "variances", "softmax", "layer_norm", "group_norm",
    "instance_norm", "response_norm", "shapes", "parts", "splits", "chunks", "repeats", "flips", "pads",
    "mirrors", "pixels", "stretch", "lookups", "gathers", "made", "convolution", "transposed", "one_dim",
    "three_dims", "products", "additions", "einsum", "attention", "masked_attention", "max_pools",
    "ceilings", "avg_pools", "cubes", "divisors", "adaptive", "line_pools", "one_sample",
)  # fmt: skip
TOLERANCE = 1e-5
"""Of the largest magnitude: sums have another order, and exp and the like are not those of torch."""


@pytest.fixture(scope="session")
def functions() -> Any:
    """The module of functions, which needs torch."""
    return pytest.importorskip("support.torch_functions")


def assert_near(ours: Any, theirs: Any) -> None:
    theirs = np.asarray(theirs)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= TOLERANCE * np.abs(theirs).max()


def test_all_functions_are_compared(functions: Any) -> None:
    assert tuple(functions.FUNCTIONS) == FUNCTIONS


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradient_are_torchs(name: str, functions: Any) -> None:
    module, x = functions.made(name)
    net = te.from_torch(module, x)
    shapes = [node.type.shape for _, node in te.trace(net, *net.inputs).outputs]
    weights = [functions.torch.randn(shape) for shape in shapes]
    expected, gradient = functions.values_and_gradient(module, x, weights)

    def computed(x: Tensor) -> tuple[Tensor, ...]:
        found = net(x)
        results = found if isinstance(found, tuple) else (found,)
        total = sum((r.astype("float32") * w.numpy()).sum() for r, w in zip(results, weights, strict=True))
        return (*results, *te.grad(total, [x])) if gradient is not None else results

    outputs, _ = Evaluator(te.trace(computed, *net.inputs))({"x": x.numpy()})
    wanted = [*expected, *([] if gradient is None else [gradient])]
    for ours, theirs in zip(outputs.values(), wanted, strict=True):
        assert_near(ours, theirs)
