"""Compiling emitted C as its users do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from support.tools import need
from teeny_embed.api import Build
from teeny_embed.deploy import toolchain

WARNINGS = (
    "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wcast-align", "-Wcast-qual",
    "-Wsign-conversion", "-Wdouble-promotion", "-Wundef", "-Wstrict-prototypes", "-Wmissing-prototypes",
    "-Werror",
)  # fmt: skip
CPP_WARNINGS = tuple(w for w in WARNINGS if "prototypes" not in w)


def objects(
    built: Build, folder: Path, compiler: str | None = None, flags: Sequence[str] = ("-std=c99", "-O2")
) -> list[Path]:
    """Object files of a build, for its target."""
    compiler = compiler or built.target.compiler
    need(compiler)
    machine = ("--target=arm-none-eabi",) if compiler == "clang" and built.target.board else ()
    freestanding = ("-ffreestanding",) if built.target.board else ()
    made = []
    for name in built.interface.sources:
        made.append(folder / f"{Path(name).stem}.o")
        options = [*machine, *freestanding, *built.target.flags, *flags, "-c", built.directory / name]
        toolchain.run(compiler, [*options, "-o", made[-1]])
    return made
