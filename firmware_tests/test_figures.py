"""Training steps cost what docs/figures.json records, and no more than the limits here.

Counts are those of one compiler; where another is installed they are printed. After a change of the generated
code, TEENY_EMBED_UPDATE_FIGURES=1 measures anew and writes the record, its part of docs/figures.md and the
optimisation levels in targets/cpus/*.toml.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import figures, figures_text
from support.figures import CASES, COMPILER, LENET_OTHERS, M4F
from support.nets import Case
from support.runners import CORES
from teeny_embed import target as targets


@dataclass(frozen=True)
class Limit:
    """Of one training step on a Cortex-M4F."""

    instructions: int | None = None
    m4_cycles: int | None = None
    arena_bytes: int | None = None
    stack_bytes: int | None = None


LIMITS = {
    "mlp-momentum-1": Limit(37_000, 48_000, 1_000, 256),
    "mlp-momentum-32": Limit(530_000, 670_000, stack_bytes=256),
    "lenet5-sgd-1": Limit(3_200_000, arena_bytes=25_000),
    "lenet5-momentum-1": Limit(arena_bytes=25_000),
    "lenet5-adam-1": Limit(arena_bytes=25_000),
}

ON_M4F = (*CASES, *LENET_OTHERS)
ALL = [(core, case) for core in CORES for case in figures.cases_of(core)]


def _full_unless(quick: bool, *values: object) -> Any:
    return pytest.param(*values, marks=() if quick else pytest.mark.full, id="-".join(map(str, values)))


@pytest.fixture(scope="module", autouse=True)
def _updated() -> None:
    if os.environ.get("TEENY_EMBED_UPDATE_FIGURES"):
        figures_text.update()


@pytest.fixture
def data(request: pytest.FixtureRequest, case: Case) -> None:
    """Skips visibly where the digits of `case` are missing."""
    if case.net == "mlp":
        pytest.importorskip("sklearn")
    else:
        request.getfixturevalue("mnist")


def need_compiler(found: object) -> None:
    """Counts of another compiler are shown, not compared."""
    if (compiler := figures.found_compiler()) != COMPILER:
        print(compiler, found)
        pytest.skip(f"counts are recorded for {COMPILER}, this is {compiler}: {found}")


# ---- The record keeps the limits --------------------------------------------------------------------------


@pytest.mark.parametrize("case", LIMITS)
@pytest.mark.parametrize("what", Limit.__dataclass_fields__)
def test_recorded_costs_keep_their_limits(case: str, what: str) -> None:
    limit = getattr(LIMITS[case], what)
    if limit is not None:
        assert getattr(figures.read_record()[M4F][case], what) <= limit


def test_the_board_has_used_no_more_stack_than_the_worst_case() -> None:
    for rows in figures.read_record().values():
        for cost in rows.values():
            assert cost.painted_stack_bytes <= cost.stack_bytes + 64  # and the frame of its caller


def test_the_document_tells_the_record() -> None:
    text = figures_text.device_section(figures.read_record())
    assert figures_text.section("device_figures", text) in figures_text.DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.parametrize("core", CORES)
def test_the_level_of_a_core_is_the_best_of_its_figures(core: str) -> None:
    target = targets.load(core)
    assert target.figures_compiler == COMPILER
    assert target.optimize == figures.best_level(target.figures)


# ---- The record is what is measured -----------------------------------------------------------------------


@pytest.mark.parametrize("case", ON_M4F, ids=str)
def test_arena_and_state_are_those_recorded(case: Case, tmp_path: Path) -> None:
    interface = figures.build(case, M4F, tmp_path).interface
    recorded = figures.read_record()[M4F][str(case)]
    assert (interface.arena_bytes, interface.state_bytes) == (recorded.arena_bytes, recorded.state_bytes)


@pytest.mark.usefixtures("emulator", "data")
@pytest.mark.parametrize(
    ("core", "case"), [_full_unless(core == M4F and case in CASES, core, case) for core, case in ALL]
)
def test_costs_are_those_recorded(core: str, case: Case, tmp_path: Path) -> None:
    measured = figures.cost(case, core, tmp_path)
    need_compiler(measured)
    assert measured == figures.read_record()[core][str(case)]


@pytest.mark.usefixtures("emulator", "shared")
@pytest.mark.parametrize("core", [_full_unless(core == M4F, core) for core in CORES])
def test_levels_cost_what_the_target_says(core: str, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    measured = figures.level_figures(core, tmp_path)
    need_compiler(measured)
    assert measured == targets.load(core).figures
