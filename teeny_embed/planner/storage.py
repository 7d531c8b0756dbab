"""Which buffers lie in the arena, and which share storage there: new versions of variables lie in these, and
results may take a dying operand's place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from teeny_embed.graph.spaces import is_identity
from teeny_embed.graph.step import Buffer, Schedule, Step
from teeny_embed.kernels.choose import Choice, in_place

Choose = Callable[[Step], Choice]


def in_arena(schedule: Schedule, io: str = "caller") -> frozenset[Buffer]:
    """The buffers that the planner finds a place for, if they do not live in a variable.

    They are what steps make for each other; with `io` "arena" inputs and outputs, too, but those of rank 0.
    """
    kinds = {"activation", "scratch", *(("input", "output") if io == "arena" else ())}
    own = ("activation", "scratch")
    return frozenset(b for b in schedule.buffers() if b.kind in kinds and (b.kind in own or b.type.shape))


def share(
    schedule: Schedule, steps: Sequence[Step], placed: Collection[Buffer], choose: Choose | None
) -> dict[Buffer, Buffer]:
    """Every buffer's storage, named by the buffer that it began as.

    A new version lives in its variable (the order of steps has every reader of the old version before the
    writer). A result that is `placed` takes the storage of an operand of the same type and size that is, too,
    that dies in this step, and that is read in the epilogue only, at the same element, or that the kernel
    which `choose` gives may compute in place. Outputs never die.
    """
    storage = {buffer: buffer for buffer in schedule.buffers()}
    for variable, value in schedule.assigns:
        storage[value] = variable
    last_use = {b: i for i, step in enumerate(steps) for b in (*step.buffers_read(), *step.buffers_written())}
    last_use |= dict.fromkeys(schedule.outputs, len(steps))
    for i, step in enumerate(steps):
        taken: set[Buffer] = set()
        for output in step.outputs:
            if output.buffer not in placed or storage[output.buffer] is not output.buffer:
                continue
            for operand in _dying_operands(step, i, output.buffer, storage, last_use, placed):
                may = _is_replaced(step, operand) or (choose and in_place(step, choose(step), operand))
                if may and storage[operand] not in taken:
                    taken.add(storage[operand])
                    storage[output.buffer] = storage[operand]
                    break
    return storage


def _is_replaced(step: Step, operand: Buffer) -> bool:
    """Whether each element is read where the result's is made of it, in whatever order that is done."""
    if operand in [r.buffer for r in step.fold_reads().values()]:
        return False
    return all(is_identity(r, step.dims) for r in step.reads.values() if r.buffer is operand)


def _dying_operands(
    step: Step,
    position: int,
    result: Buffer,
    storage: dict[Buffer, Buffer],
    last_use: dict[Buffer, int],
    placed: Collection[Buffer],
) -> list[Buffer]:
    """Operands whose place `result` could take."""
    found = []
    for operand in step.buffers_read():
        root = storage[operand]
        together = [b for b in storage if storage[b] is root]
        fits = root in placed and root.type.dtype == result.type.dtype
        fits = fits and root.type.size_bytes == result.type.size_bytes
        if fits and max(last_use[b] for b in together if b in last_use) <= position:
            found.append(operand)
    return found
