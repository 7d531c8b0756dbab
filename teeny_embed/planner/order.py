"""The order of steps: several greedy ones; which is best, the placement decides."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from teeny_embed.graph.dependencies import Dependencies
from teeny_embed.graph.step import Buffer, Schedule, Step


def orders(schedule: Schedule, placed: Collection[Buffer]) -> Iterator[tuple[Step, ...]]:
    """Valid orders: the given one first, then the one that frees most memory (of `placed`) at each step."""
    yield schedule.steps
    found = _greedy(schedule, placed)
    if found != schedule.steps:
        yield found


def _greedy(schedule: Schedule, placed: Collection[Buffer]) -> tuple[Step, ...]:
    """Of the steps that may run, always the one after which least memory is live."""
    work = Dependencies(schedule)
    bytes_of = {b: b.type.size_bytes if b in placed else 0 for b in schedule.buffers()}
    bytes_of |= {value: 0 for _, value in schedule.assigns}  # lives in its variable
    waiting = {b: set(users) for b, users in work.users.items()}
    kept = set(schedule.outputs)

    def growth_bytes(step: Step) -> int:
        born = sum(bytes_of[b] for b in step.buffers_written())
        return born - sum(bytes_of[b] for b in step.buffers_read() if waiting[b] == {step} and b not in kept)

    done: list[Step] = []
    for step in work.ordered(growth_bytes):
        done.append(step)
        for buffer in step.buffers_read():
            waiting[buffer].discard(step)
    return tuple(done)
