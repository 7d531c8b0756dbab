"""CPUs and boards that code is generated, compiled and run for, read from `targets/*.toml`.

A CPU target (`cortex-m4f`) has no memories, so nothing is refused for its size; its programs run on
a default board. A board target (`microbit`) has the memories of the real part.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from teeny_embed import resources
from teeny_embed.errors import TargetError

_T = TypeVar("_T")


@dataclass(frozen=True)
class Memory:
    """One linker region, `origin` .. `origin + length` in bytes.

    The first memory of each role is the one that the firmware is linked to.
    """

    name: str
    role: str
    """"code" (flash: vectors, code), "constants" (theirs, if not that of the code) or "data" (RAM)."""
    origin: int
    length: int


@dataclass(frozen=True)
class Uart:
    """The serial port that the firmware speaks through; `driver` is "cmsdk", "stm32" or "nrf"."""

    driver: str
    base: int


@dataclass(frozen=True)
class RegisterWrite:
    """`*address = (*address & ~clear) | set`: clocks, pins and baud rate before the UART's use."""

    address: int
    clear: int
    set: int


@dataclass(frozen=True)
class Board:
    """A board, real or emulated."""

    name: str
    summary: str
    cpu: str
    machine: str
    """Name for `qemu-system-arm -M`."""
    stack_bytes: int
    """Size of the stack, at the low end of the first data memory: an overflow faults."""
    memories: tuple[Memory, ...]
    uart: Uart
    setup: tuple[RegisterWrite, ...]

    def memory(self, role: str) -> Memory:
        """The memory that code, constants or data are linked to."""
        roles = ("constants", "code") if role == "constants" else (role,)
        return next(memory for each in roles for memory in self.memories if memory.role == each)


@dataclass(frozen=True)
class Figure:
    """What one training step costs on a CPU if the generated C is compiled with `optimize`."""

    step: str
    """Net, optimizer and batch size."""
    optimize: str
    instructions: int
    m4_cycles: int | None = None
    """Estimated, for the Cortex-M4F only."""


@dataclass(frozen=True)
class Target:
    """What code is generated and compiled for."""

    name: str
    cpu: str
    """The CPU's own target name; equal to `name` unless a board was loaded."""
    compiler: str
    """"gcc" or "arm-none-eabi-gcc"."""
    flags: tuple[str, ...]
    optimize: str
    features: frozenset[str]
    """Of "thumb", "thumb2", "dsp", "fpu", "mve"."""
    float_registers: int
    """Single-precision registers a kernel may keep accumulators in; 0 for none, as with emulated floats."""
    vector_bytes: int
    """Widest vector register the compiler may use for exact float code; 0 if none."""
    board: Board | None
    memories: tuple[Memory, ...]
    figures_compiler: str = ""
    """The compiler and version that `figures` are for; others give other counts."""
    figures: tuple[Figure, ...] = ()
    """Measured: what `optimize` was chosen by."""
    small: bool = False
    """Whether code is to be small rather than fast."""

    def for_size(self) -> Target:
        """The same CPU for code that is to be small: floats neither in tiles nor in vectors."""
        return replace(self, optimize="-Os", float_registers=0, vector_bytes=0, small=True)

    def has(self, feature: str) -> bool:
        """Whether the CPU has `feature`."""
        return feature in self.features


def names() -> list[str]:
    """All CPU and board names, sorted."""
    return sorted([*_files("cpus"), *_files("boards")])


def load(name: str) -> Target:
    """The target called `name`, a CPU or a board. Raises TargetError."""
    if name in _files("boards"):
        board = _board(name)
        return _target(name, board.cpu, board, board.memories)
    if name not in _files("cpus"):
        close = get_close_matches(name, names(), n=1, cutoff=0.4)
        hint = f"did you mean {close[0]}?" if close else "known are " + ", ".join(names())
        raise TargetError(f"there is no target {name!r}", hint=hint)
    default_board = _table("cpus", name).get("board")
    return _target(name, name, _board(default_board) if default_board else None, ())


def _files(kind: str) -> dict[str, Path]:
    return {path.stem: path for path in sorted((resources.directory("targets") / kind).glob("*.toml"))}


def _table(kind: str, name: str) -> dict[str, Any]:
    return tomllib.loads(_files(kind)[name].read_text(encoding="utf-8"))


def _target(name: str, cpu: str, board: Board | None, memories: tuple[Memory, ...]) -> Target:
    table = {key: value for key, value in _table("cpus", cpu).items() if key not in ("summary", "board")}
    table["flags"] = tuple(table["flags"])
    table["features"] = frozenset(table["features"])
    where = f"cpus/{cpu}.toml"
    table["figures"] = tuple(_build(Figure, where, **figure) for figure in table.get("figures", ()))
    return _build(Target, where, name=name, cpu=cpu, board=board, memories=memories, **table)


def _board(name: str) -> Board:
    where = f"boards/{name}.toml"
    table = _table("boards", name)
    table["memories"] = tuple(_build(Memory, where, **memory) for memory in table["memories"])
    table["uart"] = _build(Uart, where, **table["uart"])
    table["setup"] = tuple(RegisterWrite(*triple) for triple in table["setup"])
    return _build(Board, where, name=name, **table)


def _build(kind: Callable[..., _T], where: str, **fields: Any) -> _T:
    try:
        return kind(**fields)
    except TypeError as error:
        raise TargetError(f"the description of a target is wrong: {error}", where=where) from None
