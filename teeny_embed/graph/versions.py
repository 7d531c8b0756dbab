"""New versions of variables: written over the old one where that is safe, copied there where not."""

from __future__ import annotations

from dataclasses import replace

from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import dim
from teeny_embed.graph.dependencies import Dependencies
from teeny_embed.graph.spaces import is_identity
from teeny_embed.graph.step import Buffer, Output, Read, Schedule, Source, Step


def separate_versions(schedule: Schedule) -> Schedule:
    """A copy behind each step that may not write over the old version; fusion may put it back.

    A step may not if it reads the old version elsewhere than at the element that it writes, or if it must run
    before another reader of the old version: `a, b = b, a`.
    """
    for variable, value in schedule.assigns:
        if not _may_overwrite(schedule, variable, value):
            schedule = _with_copy(schedule, variable, value)
    return schedule


def _may_overwrite(schedule: Schedule, variable: Buffer, value: Buffer) -> bool:
    work = Dependencies(schedule)
    writer = work.producer[value]
    folded = {read.buffer for read in writer.fold_reads().values()}
    reads = [read for read in writer.reads.values() if read.buffer is variable]
    if variable in folded or not all(is_identity(read, writer.dims) for read in reads):
        return False
    return not any(work.precedes(writer, user) for user in work.users.get(variable, ()))


def _with_copy(schedule: Schedule, variable: Buffer, value: Buffer) -> Schedule:
    version = Buffer(variable.name, value.type, "activation")
    dims = tuple((f"d{i}", e) for i, e in enumerate(value.type.shape) if e != 1)
    index = tuple(dim(d) for d, _ in dims)
    x = s.var("x", value.type.dtype)
    read = Read(value, tuple(e for _, e in dims), index)
    copy = Step(dims, (), {"x": read}, (), (Output(version, x),), (Source("assign", variable.name, ""),))
    assigns = tuple((v, version if v is variable else old) for v, old in schedule.assigns)
    return replace(schedule, steps=(*schedule.steps, copy), assigns=assigns)
