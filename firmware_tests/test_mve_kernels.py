"""MVE kernels on the emulated Cortex-M55: assembly and its C99 twin equal NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.dsp import DSP_CASES
from support.mve import MAP_CASES, MVE_CASES, assert_equals_numpy, map_program, quantized_program
from support.runners import Place
from teeny_embed.api import Program, build

PLACES = (
    Place("cortex-m55"),
    Place("cortex-m55", "clang"),
    Place("cortex-m55", flags=("-O0",)),
    Place("cortex-m55", flags=("-DTE_PORTABLE",)),
)
IN_EVERY_RUN = ("linear", "pointwise", "padded, stride 2", "depthwise, 16 channels", "depthwise, stride 2")


def run(case: str, positive: bool, place: Place, folder: Path) -> None:
    check(quantized_program(*MVE_CASES[case], positive=positive), place, folder)


def check(program: Program, place: Place, folder: Path) -> None:
    with place.runner(build(program, place.target, folder / "c"), folder / "firmware") as runner:
        assert_equals_numpy(program, runner)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("case", IN_EVERY_RUN)
def test_assembly_equals_numpy(case: str, positive: bool, tmp_path: Path) -> None:
    run(case, positive, PLACES[0], tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("case", MVE_CASES)
def test_all_cases_under_all_compilers(case: str, positive: bool, place: Place, tmp_path: Path) -> None:
    run(case, positive, place, tmp_path)


def test_results_of_16_bits_run_on_dsp_instructions(tmp_path: Path) -> None:
    check(quantized_program(*DSP_CASES["linear, int16"], positive=False), PLACES[0], tmp_path)
    assert "net_dsp_linear_16(" in (tmp_path / "c" / "net.c").read_text()


@pytest.mark.parametrize("case", MAP_CASES)
def test_maps_equal_numpy(case: str, tmp_path: Path) -> None:
    check(map_program(*MAP_CASES[case]), PLACES[0], tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("place", PLACES[1:], ids=str)
@pytest.mark.parametrize("case", MAP_CASES)
def test_all_maps_under_all_compilers(case: str, place: Place, tmp_path: Path) -> None:
    check(map_program(*MAP_CASES[case]), place, tmp_path)
