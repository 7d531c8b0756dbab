"""Activations that hold small integers in a wider type, kept in the small one: their readers widen them."""

from __future__ import annotations

from dataclasses import replace

from teeny_embed.graph import scalar as s
from teeny_embed.graph.interval import is_integer, limits
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.simplify import merge_reads, rewrite
from teeny_embed.graph.step import Buffer, Output, Schedule, Step


def narrow(schedule: Schedule) -> Schedule:
    """`schedule` with smaller buffers for what a step only widens. No bit changes."""
    kept = {*schedule.outputs, *(b for pair in schedule.assigns for b in pair)}
    kept |= {check.buffer for check in schedule.checks}
    kept |= {r.buffer for step in schedule.steps for r in step.reads.values() if r.fill is not None}
    smaller: dict[Buffer, Buffer] = {}
    steps = []
    for step in schedule.steps:
        outputs = []
        same = {o.value: o.buffer for o in step.outputs}
        for output in step.outputs:
            inner = _widened(output.value)
            if inner is None or output.buffer in kept or output.buffer.kind != "activation":
                outputs.append(output)
                continue
            if inner not in same:
                same[inner] = replace(output.buffer, type=output.buffer.type.with_dtype(inner.dtype))
                outputs.append(Output(same[inner], inner))
            smaller[output.buffer] = same[inner]
        steps.append(_reading(replace(step, outputs=tuple(outputs)), smaller))
    return replace(schedule, steps=tuple(steps))


def _widened(value: Scalar) -> Scalar | None:
    """The integer whose type `value` only makes larger, or None."""
    if value.op != "cast" or not is_integer(value.dtype) or not is_integer(value.args[0].dtype):
        return None
    (low, high), (least, greatest) = limits(value.args[0].dtype), limits(value.dtype)
    return value.args[0] if least <= low and high <= greatest and value.dtype != "bool" else None


def _reading(step: Step, smaller: dict[Buffer, Buffer]) -> Step:
    """`step` with its reads of what is smaller now."""
    names = [name for name, read in step.reads.items() if read.buffer in smaller]
    if not names:
        return step
    reads = dict(step.reads)
    scalars = {}
    for name in names:
        small, dtype = smaller[reads[name].buffer], reads[name].buffer.type.dtype
        reads[name] = replace(reads[name], buffer=small)
        scalars[s.var(name, dtype)] = s.cast(s.var(name, small.type.dtype), dtype)
    return merge_reads(rewrite(replace(step, reads=reads), scalars))
