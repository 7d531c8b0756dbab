"""Which kernel runs a step on a target, and with which tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from teeny_embed.graph.coalesce import coalesce
from teeny_embed.graph.step import Buffer, Schedule, Step
from teeny_embed.kernels import dsp, mve, paired
from teeny_embed.kernels.constants import pack_constants
from teeny_embed.kernels.masks import mask_choices
from teeny_embed.kernels.quantized import Pack, Packed, packed_for, split_requantized, with_scratch
from teeny_embed.kernels.scatter import Scatter, scatter_of, split_epilogues
from teeny_embed.kernels.tiles import Group, choose_tile
from teeny_embed.kernels.turns import Distance, Turns, nest_turns
from teeny_embed.kernels.vectors import Vector, integer_vector_of, pack, vector_of
from teeny_embed.target import Target


@dataclass(frozen=True)
class Choice:
    """A kernel for one step: the name of its template, and what that is told.

    `tile` is how many neighbouring outputs of a dim are computed together, each in an accumulator of its
    own, which changes no bit. `vector` puts one dim in lanes; `group` says what is loaded in one instruction.
    """

    kernel: str
    tile: Mapping[str, int] = field(default_factory=dict)
    vector: Vector | None = None
    group: Group | None = None
    scatter: Scatter | None = None
    lanes: int = 1
    integers: Vector | None = None
    """The dim that vectors of int32 may run along, where an instruction set has them beside the tile."""
    packed: Packed | None = None
    in_order: bool = True
    """Whether outputs are computed in the nest's order: not where compilers are to make vectors of it."""


def distance(step: Step, choice: Choice, operand: Buffer) -> Distance | None:
    """How far before `operand`, which dies in the step, results must begin at least; None: unknown."""
    found = _turns(step, choice, operand)
    result = step.outputs[0].buffer.type
    if found is None or any(o.buffer.type.dtype != result.dtype for o in step.outputs):
        return None
    return found.distance(*(t.size_bytes // t.count for t in (operand.type, result)))


def scratch_distance(step: Step, choice: Choice, operand: Buffer) -> Distance | None:
    """The same for the scratch of the step."""
    return choice.packed.scratch_before_x if choice.packed is not None else None


def in_place(step: Step, choice: Choice, operand: Buffer) -> bool:
    """Whether the result may lie exactly where `operand` does, which dies in the step and has its size."""
    found = distance(step, choice, operand)
    return found is not None and found.byte_count == 0


def _turns(step: Step, choice: Choice, operand: Buffer) -> Turns | None:
    if choice.packed is not None:
        return choice.packed.turns
    if choice.kernel != "nest" or choice.vector or choice.integers or not choice.in_order:
        return None
    return nest_turns(step, choice.tile, operand)


def prepare(schedule: Schedule, target: Target) -> Schedule:
    """The schedule with what kernels want done beforehand as steps of its own. Changes no bit."""
    family = quantized_kernels(target)
    if family is not None:
        schedule = split_requantized(schedule)
    schedule = replace(schedule, steps=tuple(_prepared(step, family, target) for step in schedule.steps))
    return mask_choices(pack(split_epilogues(schedule, target), target), target)


def _prepared(step: Step, family: Pack | None, target: Target) -> Step:
    """With scratch for a quantised kernel; for all others with fewer dims and constants packed."""
    packed = packed_for(step, family) if family is not None else None
    return pack_constants(coalesce(step), target) if packed is None else with_scratch(step, packed)


_QUANTIZED: tuple[tuple[str, Pack], ...] = (
    ("mve", mve.pack),
    ("dsp", dsp.pack),
    ("thumb", paired.pack),
)
"""Kernels for quantised convolutions by the feature that they need, the richest instruction set first."""


def quantized_kernels(target: Target) -> Pack | None:
    """The kernels for quantised convolutions on `target`, or None where the portable nest runs them."""
    return next((family for feature, family in _QUANTIZED if target.has(feature)), None)


def choose(step: Step, target: Target) -> Choice:
    """The kernel for `step` on `target`."""
    family = quantized_kernels(target)
    packed = packed_for(step, family) if family is not None else None
    if packed is not None:
        return Choice(packed.kernel, packed=packed)
    scatter = scatter_of(step, target)
    if scatter is not None and step.outputs[0].value is step.folds[0].accumulator:
        return Choice("scatter", scatter=scatter, lanes=target.vector_bytes // 4)
    if target.vector_bytes and not step.folds:
        return Choice("nest", in_order=False)  # the compiler makes vectors of maps
    vector = vector_of(step, target)
    if vector is not None:
        return Choice("nest", tile=vector[1], vector=vector[0])
    tile, group = choose_tile(step, target)
    return Choice("nest", tile, group=group, integers=integer_vector_of(step, target))
