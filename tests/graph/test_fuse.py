"""Fusion and what kernels prepare change no bit of random programs."""

from __future__ import annotations

import numpy as np
import pytest

from support.random_programs import SIZE, random_step
from support.runs import assert_equal_bits
from teeny_embed import target as targets
from teeny_embed.graph import evaluate
from teeny_embed.graph.canonicalize import canonicalize
from teeny_embed.graph.fuse import fuse
from teeny_embed.graph.lower import environment, lower
from teeny_embed.graph.node import Variable
from teeny_embed.graph.step import Schedule
from teeny_embed.graph.tensor import input, trace
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
