"""A broken input is refused with the state as it was, or computed as NumPy computes it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from support.data import Array, Digits
from support.nets import Case, Feed
from support.runners import EVERYWHERE, HOSTS, Place
from support.runs import assert_equal_bits
from support.tools import need
from teeny_embed.api import Build, build
from teeny_embed.deploy import toolchain
from teeny_embed.deploy.reference import (
    ERR_ARGUMENT,
    ERR_NONFINITE,
    ERR_RANGE,
    ERR_STATE,
    OK,
    ReferenceRunner,
)
from teeny_embed.deploy.runner import Runner

VALUES = {
    "NaN": np.nan,
    "infinity": np.inf,
    "minus infinity": -np.inf,
    "subnormal": 1e-40,
    "smallest": -1e-45,
}
CASES = [
    Case("mlp", "momentum", 1),
    Case("normalized", "adam", 1),
    Case("autoencoder", "momentum", 1),
    Case("clipped", "sgd", 1),
]
LABELLED = [Case("mlp", "adam", 8), Case("next_digit", "momentum", 8), Case("normalized", "sgd", 1)]
STEPS_BEFORE = 2

PLACES = [*HOSTS, *(pytest.param(p, marks=pytest.mark.full) for p in EVERYWHERE if p not in HOSTS)]
PLACE = pytest.mark.parametrize("place", PLACES, ids=str)

Emit = Callable[[Case, str], Build]


@pytest.fixture(scope="module")
def emit(tmp_path_factory: pytest.TempPathFactory) -> Emit:
    @cache
    def make(case: Case, target: str) -> Build:
        return build(case.program(), target, tmp_path_factory.mktemp("emitted"))

    return make


def prepared(runner: Runner, case: Case, digits: Digits) -> dict[str, Array]:
    """The state after some good steps, so that moments are not 0."""
    assert runner.reset() == OK
    for step in range(STEPS_BEFORE):
        assert runner.call("train_step", case.feed(digits, step))[0] == OK
    return runner.read_state()


# ---- Numbers ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broken:
    """One broken element, and what NumPy makes of it."""

    where: str
    feed: Feed
    status: int
    outputs: dict[str, Array]
    state: dict[str, Array]
    inferred: dict[str, Array]


def broken_feeds(case: Case, digits: Digits) -> Iterator[tuple[str, str, Feed]]:
    """A good batch with one element replaced, for every element of every float tensor and every value."""
    good = case.feed(digits, STEPS_BEFORE)
    for name, tensor in good.items():
        if not isinstance(tensor, np.ndarray) or tensor.dtype != np.float32:
            continue
        for position, (kind, value) in ((p, v) for p in range(tensor.size) for v in VALUES.items()):
            changed = tensor.copy()
            changed.reshape(-1)[position] = value
            yield kind, f"{kind} at {name}[{position}]", {**good, name: changed}


@pytest.fixture(scope="module")
def numpys(emit: Emit, mnist: Digits) -> Callable[[Case], list[Broken]]:
    """What NumPy makes of each, computed once."""

    @cache
    def run(case: Case) -> list[Broken]:
        built = emit(case, "host")
        reference = ReferenceRunner(built.interface, built.program.entry_points)
        before = prepared(reference, case, mnist)
        found = []
        for kind, where, feed in broken_feeds(case, mnist):
            _, inferred = reference.call("infer", {"image": feed["image"]})
            status, outputs = reference.call("train_step", feed)
            assert status == ERR_NONFINITE if kind == "NaN" else status in (OK, ERR_NONFINITE), where
            found.append(Broken(where, feed, status, outputs, reference.read_state(), inferred))
            reference.write_state(before)
        return found

    return run


@PLACE
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_broken_element_is_refused_or_computed_as_numpy_does(
    case: Case,
    place: Place,
    emit: Emit,
    numpys: Callable[[Case], list[Broken]],
    mnist: Digits,
    tmp_path: Path,
) -> None:
    with place.runner(emit(case, place.target), tmp_path) as runner:
        before = prepared(runner, case, mnist)
        for each in numpys(case):
            status, inferred = runner.call("infer", {"image": each.feed["image"]})
            assert status == OK
            assert_equal_bits(inferred, each.inferred, f"infer, {each.where}")
            status, outputs = runner.call("train_step", each.feed)
            assert status == each.status, each.where
            assert_equal_bits(outputs, each.outputs, each.where)
            assert_equal_bits(runner.read_state(), each.state, f"the state, {each.where}")
            if status == OK:
                runner.write_state(before)
            else:
                assert_equal_bits(each.state, before, each.where)


# ---- Scalars and labels -------------------------------------------------------------------------------


def assert_refused(runner: Runner, feed: Feed, status: int) -> None:
    """The status, no output, and the state as it was."""
    before = runner.read_state()
    found, outputs = runner.call("train_step", feed)
    assert found == status
    assert not any(array.any() for array in outputs.values())
    assert_equal_bits(runner.read_state(), before, "the state")


@PLACE
def test_rates_that_are_no_rates_are_refused(
    place: Place, emit: Emit, mnist: Digits, tmp_path: Path
) -> None:
    case = CASES[0]
    with place.runner(emit(case, place.target), tmp_path) as runner:
        prepared(runner, case, mnist)
        good = case.feed(mnist, STEPS_BEFORE)
        for rate in (np.nan, np.inf, -np.inf, -0.1, -1e-45):
            assert_refused(runner, {**good, "learning_rate": np.float32(rate)}, ERR_ARGUMENT)
        for rate in (0.0, -0.0, 1e-45):
            assert runner.call("train_step", {**good, "learning_rate": np.float32(rate)})[0] == OK


@PLACE
@pytest.mark.parametrize("case", LABELLED, ids=str)
def test_indices_out_of_range_are_refused(
    case: Case, place: Place, emit: Emit, mnist: Digits, tmp_path: Path
) -> None:
    with place.runner(emit(case, place.target), tmp_path) as runner:
        prepared(runner, case, mnist)
        good = case.feed(mnist, STEPS_BEFORE)
        for name, values in ((n, np.asarray(v)) for n, v in good.items() if np.asarray(v).dtype == np.int32):
            for position in range(values.size):
                for wrong in (-1, 10, np.iinfo(np.int32).min, np.iinfo(np.int32).max):
                    changed = values.copy().reshape(-1)
                    changed[position] = wrong
                    assert_refused(runner, {**good, name: changed.reshape(values.shape)}, ERR_RANGE)
        assert runner.call("train_step", good)[0] == OK


@PLACE
def test_a_call_before_reset_is_refused(place: Place, emit: Emit, mnist: Digits, tmp_path: Path) -> None:
    case = CASES[0]
    with place.runner(emit(case, place.target), tmp_path) as runner:
        feed = case.feed(mnist, 0)
        assert_refused(runner, feed, ERR_STATE)
        assert runner.call("infer", {"image": feed["image"]})[0] == ERR_STATE
        assert runner.reset() == OK
        assert runner.call("train_step", feed)[0] == OK


# ---- Memory -------------------------------------------------------------------------------------------

MEMORY = r"""
#include "net.h"
#include <stdio.h>
#define EXPECT(call, status) if ((call) != (status)) { printf("line %d\n", __LINE__); return 1; }

static net_state_t state;
static net_arena_t arena;
static float image[NET_IMAGE_COUNT], output[NET_OUTPUT_COUNT], loss;

int main(void)
{
    net_ctx_t ctx = {0};
    uint8_t *const bytes = (uint8_t *)&arena;
    EXPECT(net_reset(NULL), TE_ERR_ARGUMENT)
    EXPECT(net_reset(&ctx), TE_ERR_ARGUMENT)
    EXPECT(net_infer(&ctx, image, output), TE_ERR_ARGUMENT)
    EXPECT(net_init(NULL, &state, sizeof state, &arena, sizeof arena), TE_ERR_ARGUMENT)
    EXPECT(net_init(&ctx, NULL, sizeof state, &arena, sizeof arena), TE_ERR_ARGUMENT)
    EXPECT(net_init(&ctx, &state, sizeof state, NULL, sizeof arena), TE_ERR_ARGUMENT)
    EXPECT(net_init(&ctx, &state, NET_STATE_BYTES - 1u, &arena, sizeof arena), TE_ERR_SIZE)
    EXPECT(net_init(&ctx, &state, sizeof state, &arena, NET_ARENA_BYTES - 1u), TE_ERR_SIZE)
    EXPECT(net_init(&ctx, (uint8_t *)&state + 4, sizeof state, &arena, sizeof arena), TE_ERR_ALIGN)
    EXPECT(net_init(&ctx, &state, sizeof state, bytes + 8, sizeof arena), TE_ERR_ALIGN)
    EXPECT(net_infer(&ctx, image, output), TE_ERR_ARGUMENT)
    EXPECT(net_init(&ctx, &state, sizeof state, &arena, sizeof arena), TE_OK)
    EXPECT(net_infer(&ctx, image, output), TE_ERR_STATE)
    EXPECT(net_reset(&ctx), TE_OK)
    EXPECT(net_infer(NULL, image, output), TE_ERR_ARGUMENT)
    EXPECT(net_infer(&ctx, NULL, output), TE_ERR_ARGUMENT)
    EXPECT(net_infer(&ctx, image, NULL), TE_ERR_ARGUMENT)
    EXPECT(net_infer(&ctx, image, output), TE_OK)
    EXPECT(net_train_step(&ctx, NULL, 1, 0.1f, &loss), TE_ERR_ARGUMENT)
    EXPECT(net_train_step(&ctx, image, 1, 0.1f, NULL), TE_ERR_ARGUMENT)
    EXPECT(net_train_step(&ctx, image, 1, 0.1f, &loss), TE_OK)
    state.signature ^= 1u;
    EXPECT(net_train_step(&ctx, image, 1, 0.1f, &loss), TE_ERR_STATE)
    return 0;
}
"""


def test_missing_small_and_misaligned_memory_is_refused(emit: Emit, tmp_path: Path) -> None:
    need("gcc")
    built = emit(CASES[0], "host")
    (tmp_path / "main.c").write_text(MEMORY)
    sources = [tmp_path / "main.c", *(built.directory / name for name in built.interface.sources)]
    options = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover=all"]
    toolchain.run("gcc", [*options, "-I", built.directory, *sources, "-o", tmp_path / "main"])
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, timeout=10)
    assert done.returncode == 0, done.stdout + done.stderr
