"""The order of steps: several greedy ones; which is best, the placement decides."""

from __future__ import annotations

from collections.abc import Iterator

from teeny_embed.graph.dependencies import Dependencies
from teeny_embed.graph.step import Buffer, Schedule, Step


def orders(schedule: Schedule) -> Iterator[tuple[Step, ...]]:
    """Valid orders: the given one first, then the one that frees most memory at each step."""
    yield schedule.steps
    found = _greedy(schedule)
    if found != schedule.steps:
        yield found


def _greedy(schedule: Schedule) -> tuple[Step, ...]:
    """At each step, of the steps that may run, the one after which least memory is live; ties as given."""
    work = Dependencies(schedule)
    position = {step: i for i, step in enumerate(schedule.steps)}
    waiting = dict.fromkeys(schedule.steps, 0)
    for step in schedule.steps:
        for following in set(work.successors(step)):
            waiting[following] += 1
    uses = {b: len(users) for b, users in work.users.items()}
    bytes_of = {b: b.type.size_bytes if b.kind == "activation" else 0 for b in schedule.buffers()}
    bytes_of |= {value: 0 for _, value in schedule.assigns}  # lives in its variable
    ready = [step for step in schedule.steps if not waiting[step]]
    done: list[Step] = []
    while ready:
        step = min(ready, key=lambda s: (_growth_bytes(s, uses, bytes_of), position[s]))
        ready.remove(step)
        done.append(step)
        for buffer in step.buffers_read():
            uses[buffer] -= 1
        for following in set(work.successors(step)):
            waiting[following] -= 1
            if not waiting[following]:
                ready.append(following)
    return tuple(done)


def _growth_bytes(step: Step, uses: dict[Buffer, int], bytes_of: dict[Buffer, int]) -> int:
    """By how much a step changes what is live after it."""
    born = sum(bytes_of[b] for b in step.buffers_written())
    return born - sum(bytes_of[b] for b in step.buffers_read() if uses[b] == 1)
