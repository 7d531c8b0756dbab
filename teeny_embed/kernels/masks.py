"""Choices between a number and +0 by an integer test, as a mask of the number's bits.

A core that predicts branches mispredicts such a choice where the test follows the data, as in the gradient of
a pool; a mask costs two integer operations instead. The bits are the same: all kept, or all cleared.
"""

from __future__ import annotations

from dataclasses import replace

from teeny_embed.graph import scalar as s
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.step import Output, Schedule, Step
from teeny_embed.target import Target


def mask_choices(schedule: Schedule, target: Target) -> Schedule:
    """The schedule with masks in its maps, for targets that run vectors (and so predict branches)."""
    if not target.vector_bytes:
        return schedule
    return replace(schedule, steps=tuple(step if step.folds else _masked(step) for step in schedule.steps))


def _masked(step: Step) -> Step:
    values = [o.value for o in step.outputs]
    masks = {node: _mask(node) for node in s.walk(values) if _is_choice(node)}
    if not masks:
        return step
    return replace(step, outputs=tuple(Output(o.buffer, s.substitute(o.value, masks)) for o in step.outputs))


def _is_choice(node: Scalar) -> bool:
    if node.op != "select" or node.dtype != "float32" or node.args[2] is not s.const(0.0, "float32"):
        return False
    test = node.args[0]
    return bool(test.args) and all(a.dtype == "int32" for a in test.args)


def _mask(node: Scalar) -> Scalar:
    test, number, _ = node.args
    kept = s.const(0, "uint32") - s.cast(test, "uint32")
    return s.from_bits(s.bits(number) & kept)
