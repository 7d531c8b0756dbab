"""Kernels for cores with DSP instructions on emulated ones: assembly and its C99 twin equal NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.dsp import DSP_CASES
from support.mve import assert_equals_numpy, quantized_program
from support.runners import Place
from teeny_embed.api import build

PLACES = (
    Place("cortex-m4f"),
    Place("cortex-m7"),
    Place("cortex-m33"),
    Place("cortex-m4f", "clang"),
    Place("cortex-m4f", flags=("-O0",)),
    Place("cortex-m4f", flags=("-DTE_PORTABLE",)),
)
IN_EVERY_RUN = (
    "linear, odd sizes",
    "pointwise, odd filters",
    "padded, stride 2",
    "depthwise",
    "depthwise, stride 2",
)


def run(case: str, positive: bool, place: Place, folder: Path) -> None:
    """With inputs and outputs in the arena: results then begin as near to the input as the kernel allows."""
    program = quantized_program(*DSP_CASES[case], positive=positive)
    built = build(program, place.target, folder / "c", io="arena")
    with place.runner(built, folder / "firmware") as runner:
        assert_equals_numpy(program, runner)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("case", IN_EVERY_RUN)
def test_assembly_equals_numpy(case: str, positive: bool, tmp_path: Path) -> None:
    run(case, positive, PLACES[0], tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("case", DSP_CASES)
def test_all_cases_under_all_compilers(case: str, positive: bool, place: Place, tmp_path: Path) -> None:
    run(case, positive, place, tmp_path)
