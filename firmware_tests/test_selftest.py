"""The self-test on emulated cores: equal bits or TE_ERR_SELFTEST, in every mode of the FPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import teeny_embed as te
from support.nets import CASES
from support.tools import need
from teeny_embed import resources
from teeny_embed.deploy import firmware, toolchain

OK, ERR_SELFTEST = 0, -10
MAIN = """
#include "net_selftest.h"
#include "te_firmware.h"
void te_protocol_run(void)
{
    static net_state_t state;
    static net_arena_t arena;
    static net_selftest_t io;
    static net_ctx_t ctx;
    const uint32_t mode = MODEu;
    if (mode != 0u) {
        uint32_t fpscr;
        __asm volatile("vmrs %0, fpscr" : "=r"(fpscr));
        __asm volatile("vmsr fpscr, %0" : : "r"(fpscr | mode));
    }
    if (net_init(&ctx, &state, sizeof state, &arena, sizeof arena) != TE_OK) {
        te_exit(1);
    }
    const te_status_t status = net_selftest(&ctx, &io);
    __asm volatile("" : : : "memory");
    te_exit(-status);
}
"""
FLUSH, DEFAULT_NAN, ROUND_UP, ROUND_TO_ZERO = 1 << 24, 1 << 25, 1 << 22, 3 << 22


def status(core: str, folder: Path, flags: tuple[str, ...] = ("-O2",), mode: int = 0) -> int:
    need("arm-none-eabi-gcc", "qemu-system-arm")
    case = next(c for c in CASES if c.net == "normalized")
    build = te.build(case.program(), core, folder / "c", selftest=True)
    board = toolchain.board_of(build.target)
    firmware.render(build.interface, board, folder / "board")
    (folder / "selftest_main.c").write_text(MAIN.replace("MODE", str(mode)))
    templates = resources.directory("templates") / "firmware"
    own = [templates / f"{name}.c" for name in ("startup", "runtime", "text", "semihosting")]
    names = (*build.interface.sources, "net_selftest.c")
    sources = [folder / "selftest_main.c", *own, *(build.directory / name for name in names)]
    options = ["-std=gnu11", "-ffreestanding", "-mno-unaligned-access", *build.target.flags, *flags]
    options += [f"-I{path}" for path in (build.directory, folder / "board", templates)]
    linking = ["-nostdlib", f"-Wl,-T,{folder / 'board' / 'link.ld'}", "-lgcc", "-o", folder / "firmware.elf"]
    toolchain.run(build.target.compiler, [*options, *sources, *linking])
    (folder / "request").touch()  # the channel, which is not used
    command = ["qemu-system-arm", "-M", board.machine, "-kernel", str(folder / "firmware.elf"), "-nographic"]
    command += ["-monitor", "none", "-serial", "none", "-semihosting-config", "enable=on,target=native"]
    return -subprocess.run(command, cwd=folder, timeout=120).returncode


@pytest.mark.parametrize(
    ("core", "flags"),
    [
        ("cortex-m4f", ("-O3", "-ffp-contract=fast")),
        ("cortex-m55", ("-O3",)),
        pytest.param("cortex-m4f", ("-O0",), marks=pytest.mark.full),
        pytest.param("cortex-m7", ("-O2",), marks=pytest.mark.full),
        pytest.param("cortex-m33", ("-Os",), marks=pytest.mark.full),
        pytest.param("cortex-m0", ("-O2",), marks=pytest.mark.full),
        pytest.param("cortex-m3", ("-O2",), marks=pytest.mark.full),
    ],
    ids=str,
)
def test_the_bits_are_numpys(core: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    assert status(core, tmp_path, flags) == OK


@pytest.mark.parametrize(
    ("core", "mode"),
    [
        ("cortex-m4f", FLUSH),
        ("cortex-m4f", ROUND_UP),
        pytest.param("cortex-m4f", ROUND_TO_ZERO, marks=pytest.mark.full),
        pytest.param("cortex-m7", FLUSH, marks=pytest.mark.full),
        pytest.param("cortex-m55", FLUSH, marks=pytest.mark.full),
    ],
)
def test_another_mode_of_the_fpu_is_noticed(core: str, mode: int, tmp_path: Path) -> None:
    assert status(core, tmp_path, mode=mode) == ERR_SELFTEST


def test_default_nans_change_no_bit_that_counts(tmp_path: Path) -> None:
    """All NaN are one, so a core that replaces their payloads still computes NumPy's bits."""
    assert status("cortex-m4f", tmp_path, mode=DEFAULT_NAN) == OK


@pytest.mark.parametrize(
    ("core", "flags"),
    [
        ("cortex-m4f", ("-O2", "-ffp-contract=fast", "-DTE_EXACT_FLOAT=")),
        pytest.param(
            "cortex-m55", ("-O3", "-ffp-contract=off", "-DTE_EXACT_FLOAT="), marks=pytest.mark.full
        ),
    ],
    ids=["fused", "vectors that flush"],
)
def test_a_removed_defence_is_noticed(core: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    assert status(core, tmp_path, flags) == ERR_SELFTEST
