"""Where a build can run: this machine under some compiler and flags, or an emulated core."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.tools import need
from teeny_embed import target as targets
from teeny_embed.api import Build
from teeny_embed.deploy import toolchain
from teeny_embed.deploy.host import HostLibrary
from teeny_embed.deploy.qemu import QemuBoard
from teeny_embed.deploy.runner import Runner

CORES = ("cortex-m0", "cortex-m3", "cortex-m4f", "cortex-m7", "cortex-m33", "cortex-m55")
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Place:
    """A target with the compiler and flags to use, those of the target if not given."""

    target: str
    compiler: str | None = None
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.target, *([self.compiler] if self.compiler else []), *self.flags])

    @contextmanager
    def runner(self, build: Build, folder: Path) -> Iterator[Runner]:
        """`build`, which is for this target, ready to be called."""
        if self.target == "host":
            need(self.compiler or "gcc")
            yield HostLibrary(build.interface, build.directory, self.compiler or "gcc", self.flags)
            return
        need("arm-none-eabi-gcc", "qemu-system-arm", *([self.compiler] if self.compiler else []))
        found = targets.load(self.target)
        elf = toolchain.build_firmware(
            found, build.interface, build.directory, folder, extra_flags=self.flags, compiler=self.compiler
        )
        with QemuBoard(elf, toolchain.board_of(found), build.interface, timeout_s=TIMEOUT_S) as board:
            yield board


HOSTS = (
    Place("host", "gcc", ("-O0",)),
    Place("host", "gcc", ("-O3",)),
    Place("host", "clang", ("-O2",)),
)
EVERYWHERE = (
    *HOSTS,
    Place("host", "gcc", ("-O3", "-march=native")),
    *(Place(core) for core in CORES),
    Place("cortex-m4f", "clang"),
    Place("cortex-m55", "clang"),
)
