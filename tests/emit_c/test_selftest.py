"""The self-test: equal bits or TE_ERR_SELFTEST, whatever the flags, the FPU's mode or the flash."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from support.compilers import CPP_WARNINGS, WARNINGS
from support.nets import CASES
from support.quantized import quantized_conv
from support.tools import need
from teeny_embed.deploy.toolchain import run
from teeny_embed.emit_c.lint import lint
from teeny_embed.errors import GraphError

OK, ERR_ARGUMENT, ERR_SELFTEST = 0, -1, -10
MAIN = """
#include <fenv.h>
#include <stdio.h>
#include <string.h>
#include "NAME_selftest.h"
#if defined(__SSE__)
#include <xmmintrin.h>
#endif
STATE
static NAME_arena_t arena;
static NAME_selftest_t io;
static NAME_ctx_t ctx;
int main(void)
{
    if (INIT != TE_OK) {
        return 1;
    }
    MODE;
    printf("%d\\n", (int)NAME_selftest(&ctx, &io));
    return 0;
}
"""


def status(
    build: te.Build,
    folder: Path,
    flags: Sequence[str] = ("-O2",),
    mode: str = "(void)0",
    compiler: str = "gcc",
) -> int:
    """What the self-test returns, compiled with `flags`, after the statement `mode`."""
    need(compiler)
    name, interface = build.program.name, build.interface
    state = f"static {name}_state_t state;" if interface.state else ""
    given = "&state, sizeof state, " if interface.state else ""
    text = MAIN.replace("STATE", state).replace("INIT", f"{name}_init(&ctx, {given}&arena, sizeof arena)")
    (folder / "main.c").write_text(text.replace("MODE", mode).replace("NAME", name))
    sources = [build.directory / s for s in (*interface.sources, f"{name}_selftest.c")]
    options = [*flags, f"-I{build.directory}", folder / "main.c", *sources, "-lm"]
    run(compiler, [*options, "-o", folder / "main"])
    return int(subprocess.run([folder / "main"], capture_output=True, check=True, timeout=60).stdout)


def integer_program() -> te.Program:
    """Without state and without floats; three kinds of inputs."""
    x, y = te.input("x", (1, 5, 5, 4), "int8"), te.input("first", (3,), "uint8")
    z = te.input("z", (2,), "int64")

    def infer(a: te.Tensor, b: te.Tensor, c: te.Tensor) -> tuple[te.Tensor, ...]:
        conv = quantized_conv(a, (6, 3, 3, 4), np.random.default_rng(1), input_zero_point=3)
        return conv, b + 250, c * 7, c < 0

    return te.Program("whole", infer=te.trace(infer, x, y, z))


def case_of(net: str) -> Any:
    return next(c for c in CASES if c.net == net)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> te.Build:
    folder = tmp_path_factory.mktemp("selftest")
    return te.build(case_of("normalized").program(), out=folder / "c", selftest=True)


# ---- Equal bits -----------------------------------------------------------------------------------------

FLAGS = [
    ("gcc", ("-O0",)),
    ("gcc", ("-O3", "-std=gnu11", "-march=native", "-ffp-contract=fast")),
    ("gcc", ("-O2", "-flto")),
    ("clang", ("-O2",)),
]


@pytest.mark.parametrize(("compiler", "flags"), FLAGS, ids=str)
def test_the_bits_are_numpys_under_any_flags(
    net: te.Build, compiler: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    assert status(net, tmp_path, flags, compiler=compiler) == OK


@pytest.mark.parametrize("io", ["caller", "arena"])
@pytest.mark.parametrize("name", ["mlp", "next_digit", "autoencoder"])
def test_other_programs_pass(name: str, io: str, tmp_path: Path) -> None:
    build = te.build(case_of(name).program(), out=tmp_path / "c", selftest=True, io=io)
    assert status(build, tmp_path, ("-std=c99", *WARNINGS, "-D_GNU_SOURCE")) == OK


@pytest.mark.parametrize("io", ["caller", "arena"])
def test_integers_without_state_pass(io: str, tmp_path: Path) -> None:
    build = te.build(integer_program(), out=tmp_path / "c", selftest=True, io=io)
    assert status(build, tmp_path) == OK
    text = (build.directory / "whole_selftest.c").read_text()
    assert "selftest_arithmetic" not in text and "0x1p" not in text


# ---- Others ---------------------------------------------------------------------------------------------

MODES = {
    "flush results": "_mm_setcsr(_mm_getcsr() | 0x8000u)",
    "flush operands": "_mm_setcsr(_mm_getcsr() | 0x40u)",
    "round up": "fesetround(FE_UPWARD)",
    "round to zero": "fesetround(FE_TOWARDZERO)",
}


@pytest.mark.parametrize("mode", MODES)
def test_another_mode_of_the_fpu_is_noticed(net: te.Build, mode: str, tmp_path: Path) -> None:
    assert status(net, tmp_path, mode=MODES[mode]) == ERR_SELFTEST


def test_fused_products_are_noticed_where_the_defence_is_removed(net: te.Build, tmp_path: Path) -> None:
    fused = ("-O2", "-march=haswell", "-ffp-contract=fast", "-DTE_EXACT_FLOAT=")
    if "fma" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this machine has no fused multiply-add")
    assert status(net, tmp_path, fused) == ERR_SELFTEST


def test_a_changed_constant_is_noticed(tmp_path: Path) -> None:
    build = te.build(case_of("mlp").program(), out=tmp_path / "c", selftest=True)
    params = build.directory / "net_params.c"
    params.write_text(params.read_text().replace("0x1.", "0x1.0", 1))
    assert status(build, tmp_path) == ERR_SELFTEST


def test_arguments_that_are_null_are_refused(net: te.Build, tmp_path: Path) -> None:
    mode = "int32_t bad = net_selftest(NULL, &io) + net_selftest(&ctx, NULL); if (bad != -2) return 1"
    assert status(net, tmp_path, mode=mode) == OK


def test_the_state_is_reset_behind_it(net: te.Build, tmp_path: Path) -> None:
    mode = (
        "static net_state_t before; net_reset(&ctx); memcpy(&before, &state, sizeof state);"
        "net_selftest(&ctx, &io); if (memcmp(&before, &state, sizeof state) != 0) return 1"
    )
    assert status(net, tmp_path, mode=mode) == OK


# ---- C --------------------------------------------------------------------------------------------------


def test_it_compiles_without_a_warning_and_keeps_the_promises(net: te.Build, tmp_path: Path) -> None:
    source = net.directory / "net_selftest.c"
    for compiler, machine in (("clang", ()), ("arm-none-eabi-gcc", ("-mcpu=cortex-m0", "-mthumb"))):
        need(compiler)
        run(compiler, [*machine, "-std=c99", "-O2", *WARNINGS, "-c", source, "-o", tmp_path / "object.o"])
    run("g++", ["-x", "c++", "-std=c++11", *CPP_WARNINGS, "-fsyntax-only", source.with_suffix(".h")])
    assert lint([net.directory / name for name in ("net.h", "net.c", "net_selftest.c")], "net") == []


def test_it_is_written_on_request_and_not_for_fast_floats(tmp_path: Path) -> None:
    te.build(case_of("mlp").program(), out=tmp_path)
    assert not (tmp_path / "net_selftest.c").exists()
    with pytest.raises(GraphError, match="self-test"):
        te.build(case_of("mlp").program(), out=tmp_path, selftest=True, float="fast")
