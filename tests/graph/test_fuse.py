"""Fusion and what kernels prepare change no bit of random programs, and keep little in memory."""

from __future__ import annotations

import numpy as np
import pytest

from support.random_programs import SIZE, random_step
from support.runs import assert_equal_bits
from teeny_embed import nn
from teeny_embed import target as targets
from teeny_embed.autograd.training import train_step
from teeny_embed.graph import evaluate
from teeny_embed.graph.canonicalize import canonicalize
from teeny_embed.graph.fuse import fuse
from teeny_embed.graph.lower import environment, lower
from teeny_embed.graph.node import Variable
from teeny_embed.graph.step import Schedule
from teeny_embed.graph.tensor import Tensor, call, constant, input, read, trace
from teeny_embed.kernels.choose import prepare

TARGETS = [targets.load(name) for name in ("host", "cortex-m4f")]


def results(schedule: Schedule, variables: list[Variable], x: np.ndarray) -> dict[str, np.ndarray]:
    memory = environment(schedule, {"x": x}, {v: v.initial for v in variables})
    evaluate.run(schedule, memory)
    found = {b.name: memory[b] for b in schedule.outputs}
    return found | {variable.name: memory[variable] for variable, _ in schedule.assigns}


@pytest.mark.parametrize("seed", range(10))
def test_random_programs_compute_the_same_after_each_pass(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for number in range(20):
        a, b = (Variable(n, rng.standard_normal((SIZE, SIZE), dtype=np.float32), "state") for n in "ab")
        step = random_step(rng)
        graph = trace(lambda x, a=a, b=b, step=step: step(a, b, x), input("x", (SIZE, SIZE)), names=("y",))
        x = rng.standard_normal((SIZE, SIZE), dtype=np.float32)
        schedule = lower(graph, "step")
        expected = results(schedule, [a, b], x)
        reference = lower(canonicalize(graph), "step")
        fused = fuse(reference)
        passes = {"canonicalize": reference, "fuse": fused}
        passes |= {f"prepare for {t.name}": prepare(fused, t) for t in TARGETS}
        for name, rewritten in passes.items():
            assert_equal_bits(results(rewritten, [a, b], x), expected, f"program {number}, {name}")


def test_a_gather_at_a_computed_position_fuses_with_what_computes_it() -> None:
    table, places = constant(np.arange(8, dtype=np.int32) * 3), constant(np.array([5, 1, 4, 0], np.int32))

    def lookup(x: Tensor) -> Tensor:
        return call("take", table, call("take", places, x + 1)) + 1

    graph = trace(lookup, input("x", (4,), "int32"), names=("y",))
    reference = lower(graph, "step")
    x = np.array([-1, 2, 0, 1], np.int32)
    fused = fuse(reference)
    assert len(fused.steps) == 1
    assert_equal_bits(results(fused, [], x), results(reference, [], x), "fused")
    np.testing.assert_array_equal(results(fused, [], x)["y"], [16, 1, 4, 13])


def test_small_integers_are_widened_where_they_are_read() -> None:
    """Two sums that end as int8 meet in an addition: neither is kept in memory as int32."""

    def residual(x: Tensor) -> Tensor:
        a, b = (
            call("max_pool", x, kernel=(k, k), stride=(1, 1), padding=((k // 2,) * 2,) * 2) for k in (1, 3)
        )
        total = a.astype("int32") * 3 + b.astype("int32") * 5
        return (total - 7).astype("int8")

    fused = fuse(lower(trace(residual, input("x", (1, 4, 4, 2), "int8")), "step"))
    assert {b.type.dtype for step in fused.steps for b in step.buffers_written()} == {"int8"}


def test_what_two_steps_read_widened_is_kept_small() -> None:
    """Both readers of a sum fold it, so neither can join the step that makes it."""

    def net(x: Tensor) -> dict[str, Tensor]:
        small = call("maximum", x, constant(3, "int8"))
        wide = call("max_pool", small, kernel=(2, 2)).astype("int32")
        return {"rows": wide.sum(axis=1), "columns": wide.sum(axis=2) * 2}

    x = np.random.default_rng(1).integers(-128, 128, (1, 8, 8, 2)).astype(np.int8)
    reference = lower(trace(net, input("x", x.shape, "int8")), "step")
    fused = fuse(reference)
    kept = {b.type.dtype for step in fused.steps for b in step.buffers_written() if b.kind == "activation"}
    assert kept == {"int8"}
    for name, expected in results(reference, [], x).items():
        np.testing.assert_array_equal(results(fused, [], x)[name], expected)


@pytest.mark.parametrize("axes", [(1, 0), (0, 1)])
def test_the_gradient_of_a_transposed_weight_is_used_up_by_its_update(axes: tuple[int, int]) -> None:
    """The step of the gradient runs in the order of the weight, whatever order the net reads it in."""
    weight = Variable("w", np.ones((4, 6), np.float32).transpose(axes), "parameter")

    def net(x: Tensor) -> Tensor:
        return call("conv", x, read(weight).transpose(*axes))

    step = train_step(net, nn.mse, nn.SGD(momentum=0.9), input("x", (2, 6)), input("y", (2, 4)))
    fused = fuse(lower(canonicalize(step), "step"))
    stored = {b for s in fused.steps for b in s.buffers_written() if b.type.count == weight.value.size}
    assert stored == {value for _, value in fused.assigns}
