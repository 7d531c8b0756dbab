"""Compilers and other programs: finding them, running them, and building libraries and firmware.

Every build passes `-std=c99 -ffp-contract=off`: exact bits need both to be the same everywhere.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from teeny_embed import resources
from teeny_embed.deploy import firmware
from teeny_embed.emit_c.interface import Interface
from teeny_embed.errors import ToolError
from teeny_embed.target import Board, Target

LANGUAGE_FLAGS = ("-std=c99", "-ffp-contract=off")

# The cores trap unaligned accesses here (startup.c), so the compiler must not make any of its own.
_BARE_METAL_FLAGS = (
    "-ffreestanding", "-mno-unaligned-access", "-ffunction-sections", "-fdata-sections", "-g",
)  # fmt: skip

# Without the last one gcc turns the loops of memset and memcpy into calls of themselves.
_FIRMWARE_FLAGS = ("-Os", "-Wall", "-Wextra", "-Werror", "-fno-tree-loop-distribute-patterns")

_BINUTILS = ("nm", "objdump", "readelf", "size")
_PACKAGES = {
    "arm-none-eabi-gcc": "gcc-arm-none-eabi",
    **{f"arm-none-eabi-{tool}": "binutils-arm-none-eabi" for tool in _BINUTILS},
    **dict.fromkeys(_BINUTILS, "binutils"),
}


def find(tool: str) -> str:
    """The path of a program. Raises ToolError that names the package to install."""
    path = shutil.which(tool)
    if path is None:
        raise ToolError(f"{tool} is not installed", hint=f"apt install {_PACKAGES.get(tool, tool)}")
    return path


def run(tool: str, arguments: Sequence[str | Path], cwd: Path | None = None, where: str | None = None) -> str:
    """Runs a program and returns its standard output. Raises ToolError with all it printed."""
    command = [find(tool), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        printed = (done.stdout + done.stderr).strip()
        raise ToolError(f"{tool} failed with code {done.returncode}:\n{printed}", where=where)
    return done.stdout


def build_host_library(
    sources: Sequence[Path], out: Path, compiler: str = "gcc", flags: Sequence[str] = ("-O2",)
) -> Path:
    """Compiles C files to the shared library `out` and returns it. Raises ToolError."""
    arguments: list[str | Path] = [*LANGUAGE_FLAGS, *flags, "-fPIC", "-shared", *sources, "-o", out]
    run(compiler, arguments, where=str(sources[0].parent))
    return out


def build_firmware(
    target: Target,
    interface: Interface,
    source_directory: Path,
    out_directory: Path,
    channel: str = "semihosting",
    extra_flags: Sequence[str] = (),
    optimize: str | None = None,
    compiler: str | None = None,
    measure: bool = False,
) -> Path:
    """Builds the test firmware with one model for the target's board and returns the ELF file.

    `channel` is "semihosting" (emulator only) or "uart". `extra_flags`, `optimize` and `compiler`
    ("clang") are for the model's sources alone; unset, they are the target's. `measure` marks
    each node for an instruction counter, see `firmware.first_marks`. Raises ToolError, also when the
    model does not fit the board.
    """
    board = board_of(target)
    source_directory, out_directory = source_directory.resolve(), out_directory.resolve()
    firmware.render(interface, board, out_directory)
    templates = resources.directory("templates") / "firmware"
    places = (source_directory, out_directory, templates)
    anonymous = [f"-ffile-prefix-map={path}=." for path in places]  # equal debug information everywhere
    model = [source_directory / name for name in interface.sources]
    model_flags = [*anonymous, f"-I{source_directory}", optimize or target.optimize, *extra_flags]
    own = [templates / name for name in firmware.sources(board, channel, measure)]
    own_flags = [*anonymous, *_FIRMWARE_FLAGS, *(f"-I{path}" for path in places)]
    if measure:
        model_flags += _measuring_flags(interface)
        own_flags += ["-DTE_MEASURE"]
    _compile(compiler or target.compiler, target, model, model_flags, out_directory / "model")
    _compile(target.compiler, target, [out_directory / "main.c", *own], own_flags, out_directory / "firmware")
    return _link(target, out_directory)


def board_of(target: Target) -> Board:
    """The board that a target's programs run on. Raises ToolError for the host."""
    if target.board is None:
        raise ToolError(f"target {target.name} has no board", hint="choose a Cortex-M CPU or a board")
    return target.board


def _measuring_flags(interface: Interface) -> tuple[str, ...]:
    header = resources.directory("templates") / "firmware" / "te_mark.h"
    hook = f"-D{interface.name.upper()}_AFTER_NODE(ctx,node)=te_mark((uint32_t)(node)+1u)"
    return ("-include", str(header), hook)


def _compile(
    compiler: str, target: Target, sources: Sequence[Path], flags: Sequence[str], objects: Path
) -> None:
    """Compiles into an empty directory of object files, so that names cannot collide."""
    shutil.rmtree(objects, ignore_errors=True)
    objects.mkdir(parents=True)
    # short enums are the default of arm-none-eabi-gcc, with which everything else is compiled
    machine = ("--target=arm-none-eabi", "-fshort-enums") if compiler == "clang" else ()
    common = (*LANGUAGE_FLAGS, *machine, *target.flags, *_BARE_METAL_FLAGS)
    run(compiler, [*common, *flags, "-c", *sources], cwd=objects, where=target.name)


def _link(target: Target, out_directory: Path) -> Path:
    elf = out_directory / "firmware.elf"
    objects = sorted(out_directory.glob("model/*.o")) + sorted(out_directory.glob("firmware/*.o"))
    script = out_directory / "link.ld"
    options = ["-nostdlib", "-Wl,--gc-sections,--fatal-warnings,-z,noexecstack", f"-Wl,-T,{script}"]
    try:
        run(target.compiler, [*target.flags, *options, *objects, "-lgcc", "-o", elf], where=target.name)
    except ToolError as error:
        if "will not fit" in error.what:
            raise ToolError(f"the program does not fit the board: {error.what}", where=target.name) from None
        raise
    return elf
