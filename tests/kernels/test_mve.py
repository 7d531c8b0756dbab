"""MVE kernels: the C99 that stands beside the assembly, on packed tables, equals NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.mve import MVE_CASES, assert_equals_numpy, quantized_program
from support.tools import need
from teeny_embed import target as targets
from teeny_embed.api import build
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
