"""Kernels for cores with DSP instructions: the C99 beside the assembly, on packed tables, equals NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.dsp import DSP_CASES, KERNELS
from support.mve import assert_equals_numpy, quantized_program
from support.tools import need
from teeny_embed import target as targets
from teeny_embed.api import build
from teeny_embed.deploy.host import HostLibrary
from teeny_embed.kernels import dsp
from teeny_embed.kernels.choose import quantized_kernels

FLAGS = ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all")


@pytest.mark.parametrize("core", ["cortex-m4f", "cortex-m7", "cortex-m33"])
def test_cores_with_dsp_instructions_use_them(core: str) -> None:
    assert quantized_kernels(targets.load(core)) is dsp.pack


@pytest.mark.parametrize("case", DSP_CASES)
def test_a_kernel_is_there_for_the_case(case: str, tmp_path: Path) -> None:
    build(quantized_program(*DSP_CASES[case], positive=False), "cortex-m4f", tmp_path)
    kernel = next((k for prefix, k in KERNELS.items() if case.startswith(prefix)), "net_dsp_dot(")
    assert kernel in (tmp_path / "net.c").read_text()


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("case", DSP_CASES)
def test_portable_twins_equal_numpy(case: str, positive: bool, tmp_path: Path) -> None:
    need("gcc")
    program = quantized_program(*DSP_CASES[case], positive=positive)
    built = build(program, "cortex-m4f", tmp_path / "c")
    with HostLibrary(built.interface, built.directory, "gcc", FLAGS) as runner:
        assert_equals_numpy(program, runner)
