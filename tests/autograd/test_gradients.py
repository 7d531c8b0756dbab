"""Every vjp against differences of the operator itself, along one random direction per sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from teeny_embed.autograd.reverse import grad
from teeny_embed.graph.lower import Evaluator
from teeny_embed.graph.op import NOT_DIFFERENTIABLE, REGISTRY, Sample
from teeny_embed.graph.tensor import Tensor, call, constant, input, trace

Array = npt.NDArray[Any]
Function = Callable[..., Tensor]

# All is evaluated in float64, where a central difference over a step of 2^-17 errs by about 2^-34 of the
# third derivative, and its rounding by as much; so small a step rarely meets a kink. Only numbers inside
# operators and their gradients, which stay those of float32, can be off by more: by 2^-25 of their size.
STEP = 2.0**-17
TOLERANCE = 2.0**-23


def cases() -> Iterator[Any]:
    for op in REGISTRY.values():
        if op.vjp is not NOT_DIFFERENTIABLE and op.samples is not None:
            for number, sample in enumerate(op.samples(np.random.default_rng(0))):
                yield pytest.param(op.name, sample, id=f"{op.name}-{number}")


def evaluated(function: Function, operands: Sequence[Array]) -> Callable[..., list[Array]]:
    """`function` of arrays, in float64."""
    inputs = [input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(operands)]
    run = Evaluator(trace(function, *inputs), float64=True)
    return lambda *values: list(run({f"x{i}": v for i, v in enumerate(values)})[0].values())


def assert_gradient(function: Function, operands: Sequence[Array], seed: int = 0) -> None:
    """<cotangent, directional derivative> equals <vjp(cotangent), direction>."""
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(x) for x in operands]
    forward = evaluated(function, arrays)
    cotangent = rng.standard_normal(forward(*arrays)[0].shape, dtype=np.float32)
    moving = [i for i, x in enumerate(arrays) if x.dtype == np.float32]
    directions = {i: rng.standard_normal(arrays[i].shape, dtype=np.float32) for i in moving}

    def gradients(*xs: Tensor) -> list[Tensor]:
        return grad(function(*xs), [xs[i] for i in moving], constant(cotangent))

    found = evaluated(gradients, arrays)(*arrays)
    ours = sum(_dot(g, directions[i]) for g, i in zip(found, moving, strict=True))
    size = sum(_dot(abs(g), abs(directions[i])) for g, i in zip(found, moving, strict=True)) + 1e-2

    def along(h: float) -> float:
        moved = [x + h * directions[i].astype(float) if i in directions else x for i, x in enumerate(arrays)]
        return _dot(forward(*moved)[0], cotangent)

    difference = (along(STEP) - along(-STEP)) / (2 * STEP)
    assert abs(difference - ours) <= TOLERANCE * size, f"gradient {ours}, difference {difference} of {size}"


def _dot(a: Array, b: Array) -> float:
    return float(np.sum(a.astype(np.float64) * b))


@pytest.mark.parametrize("name, sample", list(cases()))
def test_gradient_equals_differences(name: str, sample: Sample) -> None:
    arrays = [np.asarray(x) for x in sample.operands]
    result = call(name, *map(constant, arrays), **sample.attributes)
    if result.type.is_float:
        assert_gradient(lambda *xs: call(name, *xs, **sample.attributes), arrays)


def test_samples_exist_for_most_differentiable_operators() -> None:
    without = {o.name for o in REGISTRY.values() if o.vjp is not NOT_DIFFERENTIABLE and o.samples is None}
    assert without <= {"avg_pool_grad", "max_pool_grad", "max_pool_pick"}  # reached by derivatives below


SECOND = (
    "multiply", "divide", "exp", "tanh", "sigmoid", "conv", "matmul", "softmax", "log_softmax", "avg_pool",
    "max_pool", "mean", "take", "pick", "slice", "concat",
)  # fmt: skip


@pytest.mark.parametrize("name", SECOND)
def test_gradient_of_gradient_equals_differences(name: str) -> None:
    samples = REGISTRY[name].samples
    assert samples is not None
    sample = samples(np.random.default_rng(1))[0]
    operands = [np.asarray(x) for x in sample.operands]

    def first_gradient(*xs: Tensor) -> Tensor:
        ans = call(name, *xs, **sample.attributes)
        return grad(ans * ans, [xs[0]], constant(np.ones(ans.shape, np.float32)))[0]

    assert_gradient(first_gradient, operands)


@pytest.mark.parametrize("name", ["avg_pool", "max_pool"])
def test_third_derivatives_of_pools_reach_their_gradient_operators(name: str) -> None:
    x = np.random.default_rng(2).standard_normal((1, 4, 4, 2), dtype=np.float32)

    def second_gradient(x: Tensor) -> Tensor:
        ans = call(name, x, kernel=(2, 2))
        first = grad(ans * ans * ans, [x], constant(np.ones(ans.shape, np.float32)))[0]
        return grad(first * first, [x], constant(np.ones(x.shape, np.float32)))[0]

    assert_gradient(second_gradient, [x])
