"""MVE kernels: the C99 that stands beside the assembly, on packed tables, equals NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.mve import MAP_CASES, MVE_CASES, assert_equals_numpy, map_program, quantized_program
from support.tools import need
from teeny_embed import target as targets
from teeny_embed.api import Program, build
from teeny_embed.deploy.host import HostLibrary
from teeny_embed.kernels import mve
from teeny_embed.kernels.choose import quantized_kernels

FLAGS = ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all")


def test_cores_with_mve_use_them() -> None:
    assert quantized_kernels(targets.load("cortex-m55")) is mve.pack


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("case", MVE_CASES)
def test_portable_twins_equal_numpy(case: str, positive: bool, tmp_path: Path) -> None:
    need("gcc")
    program = quantized_program(*MVE_CASES[case], positive=positive)
    built = build(program, "cortex-m55", tmp_path / "c")
    with HostLibrary(built.interface, built.directory, "gcc", FLAGS) as runner:
        assert_equals_numpy(program, runner)


@pytest.mark.parametrize("case", MAP_CASES)
def test_maps_of_small_integers_are_printed_in_vectors(case: str, tmp_path: Path) -> None:
    text = source(map_program(*MAP_CASES[case]), tmp_path)
    assert "net_int32x4_t" in text and "vldr" in text


def test_maps_that_may_wrap_are_not(tmp_path: Path) -> None:
    program = map_program((("int32", (8,)), ("int32", (8,))), lambda x, y: x + y)
    assert "net_int32x4_t" not in source(program, tmp_path)


def source(program: Program, folder: Path) -> str:
    build(program, "cortex-m55", folder)
    return (folder / "net.c").read_text()
