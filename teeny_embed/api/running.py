"""Where a build runs: NumPy, this machine, or its target's board under QEMU; and what its statuses mean."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from teeny_embed.api.building import Build
from teeny_embed.deploy.host import HostLibrary
from teeny_embed.deploy.qemu import QemuBoard
from teeny_embed.deploy.reference import ReferenceRunner
from teeny_embed.deploy.runner import Array, Runner
from teeny_embed.deploy.status import MEANINGS, OK
from teeny_embed.deploy.toolchain import board_of, build_firmware
from teeny_embed.errors import DataError

_DEVICE_BUILD_FLAGS = ("-O2",)  # for the C of a device, which has no flags of its own here
PLACES = ("numpy", "host", "qemu")

@contextmanager
def open_runner(
    build: Build, on: str = "host", compiler: str | None = None, flags: Sequence[str] | None = None
) -> Iterator[Runner]:
    """Runs `build` on "numpy", "host" or "qemu"; reset, so that it can be called.

    `compiler` ("gcc", "clang" or another) and `flags` (after the target's own, such as "-O0") are for the
    model's sources alone. Raises DataError, ToolError, DeviceError.
    """
    if on not in PLACES:
        raise DataError(f"there is no place {on!r} to run on", hint="known are " + ", ".join(PLACES))
    with (
        tempfile.TemporaryDirectory(prefix="teeny_embed_") as folder,
        _runner(build, on, Path(folder), compiler, flags) as runner,
    ):
        expect_ok(runner.reset(), "reset")
        yield runner


def host_flags(build: Build) -> tuple[str, ...]:
    """How this machine compiles `build`: as its target says if that is the host."""
    if build.target.board is None:
        return (build.target.optimize, *build.target.flags)
    return _DEVICE_BUILD_FLAGS


def _runner(build: Build, on: str, folder: Path, compiler: str | None, flags: Sequence[str] | None) -> Runner:
    if on == "numpy":
        return ReferenceRunner(build.interface, build.program.entry_points)
    if on == "host":
        options = host_flags(build) if flags is None else flags
        return HostLibrary(build.interface, build.directory, compiler or "gcc", options)
    board = board_of(build.target)
    elf = build_firmware(
        build.target, build.interface, build.directory, folder, extra_flags=flags or (), compiler=compiler
    )
    return QemuBoard(elf, board, build.interface)


def expect_ok(status: int, what: str) -> None:
    """Raises DataError that says what a status means: the model has refused its inputs."""
    if status != OK:
        raise DataError(f"{what} is refused with status {status}, {MEANINGS.get(status, 'unknown')}")


def call(runner: Runner, entry: str, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
    """The outputs of an entry point. Raises DataError if the model refuses the inputs."""
    status, outputs = runner.call(entry, inputs)
    expect_ok(status, entry)
    return outputs


def differing_bits(a: npt.ArrayLike, b: npt.ArrayLike) -> int:
    """Bits in which two arrays of one type differ. Any NaN equals any NaN, +0 does not equal -0."""
    left, right = np.ascontiguousarray(a), np.ascontiguousarray(b)
    word = f"u{left.dtype.itemsize}"
    bits = np.bitwise_count(left.view(word) ^ right.view(word))
    if left.dtype.kind == "f":
        bits = np.where(np.isnan(left) & np.isnan(right), 0, bits)
    return int(bits.sum(dtype=np.int64))
