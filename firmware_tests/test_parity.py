"""The promise: NumPy, every compiler and every core train every net to the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from support.data import Digits
from support.nets import ALL_CASES, CASES, NETS, Case
from support.runners import CORES, EVERYWHERE, HOSTS, Place
from support.runs import Run, assert_equal_runs, train
from teeny_embed import api
from teeny_embed.deploy.reference import ReferenceRunner

SHORT_STEPS, LONG_STEPS = 4, 50
SHORT_PLACES = (*HOSTS, Place("cortex-m4f"))

Runs = Callable[[Case, int], Run]
Builds = Callable[[Case, str], api.Build]


@pytest.fixture(scope="module")
def numpy_run(mnist: Digits, build: Builds) -> Runs:
    """The run that all others are compared with, made once."""

    @cache
    def run(case: Case, steps: int) -> Run:
        built = build(case, "host")
        with ReferenceRunner(built.interface, built.program.entry_points) as runner:
            return train(runner, case, mnist, steps)

    return run


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    """C for a target, made once."""

    @cache
    def make(case: Case, target: str) -> api.Build:
        return api.build(case.program(), target, tmp_path_factory.mktemp(f"{case}-{target}"))

    return make


def short_table() -> Iterator[tuple[Case, Place]]:
    yield from ((case, place) for case in CASES for place in SHORT_PLACES)
    others = [Place(core) for core in CORES if core != "cortex-m4f"]
    nets = [Case(net, "adam", 1) for net in NETS if net != "lenet5"]
    yield from zip(nets, others, strict=True)


def full_table() -> Iterator[tuple[Case, Place]]:
    """LeNet-5 in soft float takes minutes per run, so it has one sample per step there."""
    for case in ALL_CASES:
        for place in EVERYWHERE:
            if not (case.net == "lenet5" and case.batch > 1 and place.target in ("cortex-m0", "cortex-m3")):
                yield case, place


@pytest.mark.parametrize(("case", "place"), list(short_table()), ids=str)
def test_a_few_steps_give_numpys_bits(
    case: Case, place: Place, numpy_run: Runs, build: Builds, mnist: Digits, tmp_path: Path
) -> None:
    check(case, place, SHORT_STEPS, numpy_run, build, mnist, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(("case", "place"), list(full_table()), ids=str)
def test_fifty_steps_give_numpys_bits(
    case: Case, place: Place, numpy_run: Runs, build: Builds, mnist: Digits, tmp_path: Path
) -> None:
    check(case, place, LONG_STEPS, numpy_run, build, mnist, tmp_path)


def check(
    case: Case, place: Place, steps: int, numpy_run: Runs, build: Builds, mnist: Digits, folder: Path
) -> None:
    expected = numpy_run(case, steps)
    assert [status for status, _ in expected.results] == [0] * (steps + 2)
    with place.runner(build(case, place.target), folder) as runner:
        assert_equal_runs(train(runner, case, mnist, steps), expected)
