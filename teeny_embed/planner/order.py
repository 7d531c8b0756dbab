"""The order of steps: several greedy ones; which is best, the placement decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from teeny_embed.graph.fuse import Work
from teeny_embed.graph.step import Buffer, Schedule, Step

Priority = Callable[[Step, dict[Buffer, int]], tuple[float, ...]]


def orders(schedule: Schedule) -> Iterator[tuple[Step, ...]]:
    """Valid orders: the given one first, then the one that frees most memory at each step."""
    yield schedule.steps
    found = _greedy(schedule)
    if found != schedule.steps:
        yield found


def _greedy(schedule: Schedule) -> tuple[Step, ...]:
    """At each step, of the steps that may run, the one after which least memory is live; ties as given."""
    work = Work(schedule)
    position = {step: i for i, step in enumerate(schedule.steps)}
    waiting = dict.fromkeys(schedule.steps, 0)
    for step in schedule.steps:
        for following in set(work.successors(step)):
            waiting[following] += 1
    uses = {b: len(users) for b, users in work.users.items()}
    ready = [step for step in schedule.steps if not waiting[step]]
    done: list[Step] = []
    while ready:
        step = min(ready, key=lambda s: (_growth_bytes(s, uses), position[s]))
        ready.remove(step)
        done.append(step)
        for buffer in step.buffers_read():
            uses[buffer] -= 1
        for following in set(work.successors(step)):
            waiting[following] -= 1
            if not waiting[following]:
                ready.append(following)
    return tuple(done)


def _growth_bytes(step: Step, uses: dict[Buffer, int]) -> int:
    born = sum(b.type.size_bytes for b in step.buffers_written() if b.kind == "activation")
    dead = sum(b.type.size_bytes for b in step.buffers_read() if b.kind == "activation" and uses[b] == 1)
    return born - dead
