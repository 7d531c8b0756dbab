"""Which buffers share storage: new versions of variables, and results that take a dying operand's place."""

from __future__ import annotations

from collections.abc import Sequence

from teeny_embed.graph.spaces import is_identity
from teeny_embed.graph.step import Buffer, Schedule, Step


def share(schedule: Schedule, steps: Sequence[Step]) -> dict[Buffer, Buffer]:
    """Every buffer's storage, named by the buffer that it began as.

    A new version lives in its variable (the order of steps has every reader of the old version before the
    writer). An activation takes the storage of an operand of the same type and size that dies in this step
    and is read in the epilogue only, at the same element.
    """
    storage = {buffer: buffer for buffer in schedule.buffers()}
    for variable, value in schedule.assigns:
        storage[value] = variable
    last_use = {b: i for i, step in enumerate(steps) for b in (*step.buffers_read(), *step.buffers_written())}
    for i, step in enumerate(steps):
        taken: set[Buffer] = set()
        for output in step.outputs:
            if output.buffer.kind != "activation" or storage[output.buffer] is not output.buffer:
                continue
            for operand in _dying_operands(step, i, output.buffer, storage, last_use):
                if storage[operand] not in taken:
                    taken.add(storage[operand])
                    storage[output.buffer] = storage[operand]
                    break
    return storage


def _dying_operands(
    step: Step, position: int, result: Buffer, storage: dict[Buffer, Buffer], last_use: dict[Buffer, int]
) -> list[Buffer]:
    """Operands whose place `result` may take."""
    found = []
    folded = {r.buffer for r in step.fold_reads().values()}
    for operand in step.buffers_read():
        root = storage[operand]
        together = [b for b in storage if storage[b] is root]
        fits = root.kind == "activation" and root.type.dtype == result.type.dtype
        fits = fits and root.type.size_bytes == result.type.size_bytes
        if not fits or operand in folded or max(last_use[b] for b in together if b in last_use) > position:
            continue
        if all(is_identity(r, step.dims) for r in step.reads.values() if r.buffer is operand):
            found.append(operand)
    return found
