"""What the outside knows of an emitted module: entry points, arguments, state and sizes.

This is plain data. The header states it, `manifest.json` stores it, the firmware template and the
host library are driven by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from teeny_embed.graph.quantization import Quantization


@dataclass(frozen=True)
class Argument:
    """One argument of an entry point. Rank-0 inputs are passed by value, all else by pointer.

    What lies in the arena is not passed: the caller fills it or reads it there.
    """

    name: str
    dtype: str
    """A NumPy dtype name; bool travels as one byte."""
    shape: tuple[int, ...]
    direction: str
    """"in" or "out"."""
    offset_bytes: int | None = None
    """Where in the arena it lies; None: where the caller says."""
    quantization: Quantization | None = None
    """What its integers stand for, where it is known."""

    @property
    def by_value(self) -> bool:
        return self.direction == "in" and self.shape == ()

    @property
    def count(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class EntryPoint:
    """`te_status_t NAME_<name>(const NAME_ctx_t *ctx, <arguments that are passed, in order>)`."""

    name: str
    arguments: tuple[Argument, ...]
    node_names: tuple[str, ...]
    """C functions that it calls, in order; NAME_AFTER_NODE(ctx, i) runs after the i-th."""

    @property
    def passed(self) -> tuple[Argument, ...]:
        """The arguments that do not lie in the arena."""
        return tuple(a for a in self.arguments if a.offset_bytes is None)


@dataclass(frozen=True)
class StateField:
    """One named tensor of the state, row-major at `offset_bytes` from the start of the state."""

    name: str
    """Logical path, such as "conv0.weight" or "conv0.weight.momentum"."""
    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int
    kind: str = "state"
    """ "parameter" (what the net computes with) or "state" (everything else)."""


@dataclass(frozen=True)
class Interface:
    """An emitted module as its callers see it.

    C names: `NAME_ctx_t`, `NAME_state_t`, `NAME_arena_t`; `NAME_init(ctx, state, state_bytes, arena,
    arena_bytes)`, `NAME_reset(ctx)`, and one function per entry point. A program without state
    (`state_bytes == 0`) has no `NAME_state_t`, no `NAME_reset`, and `NAME_init(ctx, arena, arena_bytes)`.
    """

    name: str
    """C identifier and prefix of every external symbol; file names start with it too."""
    entry_points: tuple[EntryPoint, ...]
    state: tuple[StateField, ...]
    state_bytes: int
    arena_bytes: int
    sources: tuple[str, ...]
    """C file names to compile, such as ("digits.c", "digits_params.c")."""
