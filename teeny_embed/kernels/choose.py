"""Which kernel runs a step on a target, and with which tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from teeny_embed.graph.step import Step
from teeny_embed.kernels.tiles import choose_tile
from teeny_embed.kernels.vectors import Vector, vector_of
from teeny_embed.target import Target


@dataclass(frozen=True)
class Choice:
    """A kernel for one step.

    `loops` is the order of the output loops, `tile` how many neighbouring outputs of a dim are computed
    together, each in an accumulator of its own. Blocking over outputs changes no bit.
    """

    kernel: str
    loops: tuple[str, ...]
    tile: Mapping[str, int] = field(default_factory=dict)
    vector: Vector | None = None
    scratch_bytes: int = 0


def choose(step: Step, target: Target) -> Choice:
    """The kernel for `step` on `target`."""
    loops = tuple(d for d, _ in step.dims)
    if target.vector_bytes:
        found = vector_of(step, target)
        vector, tile = found if found else (None, choose_tile(step, target) if step.folds else {})
        return Choice("nest", loops, tile, vector)
    return Choice("nest", loops, choose_tile(step, target))
