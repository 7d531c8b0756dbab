"""The plan of a program: order of steps, shared storages, byte offsets in one arena, bound and gap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from teeny_embed.errors import PlanError
from teeny_embed.graph.step import Buffer, Schedule, Step
from teeny_embed.graph.types import TensorType
from teeny_embed.planner import problem as placing
from teeny_embed.planner.order import orders
from teeny_embed.planner.placement import place
from teeny_embed.planner.problem import ARENA, Placement, Problem
from teeny_embed.planner.storage import share
from teeny_embed.planner.validate import check

ScratchBytes = Callable[[Step], int]


@dataclass(frozen=True, eq=False)
class EntryPlan:
    """One entry point: its steps in order, the storage of every buffer, and offsets in the arena."""

    schedule: Schedule
    storage: Mapping[Buffer, Buffer]
    offsets: Mapping[Buffer, int]
    scratch: Mapping[Step, Buffer]
    problem: Problem
    placement: Placement
    names: Mapping[Buffer, str]
    """Unique names of the storages in the problem."""

    @property
    def arena_bytes(self) -> int:
        return self.placement.height_bytes.get(ARENA, 0)

    @property
    def lower_bound_bytes(self) -> int:
        return self.placement.lower_bound_bytes.get(ARENA, 0)


@dataclass(frozen=True, eq=False)
class Plan:
    """All entry points. They do not overlap in time, so the arena is as large as the largest needs."""

    entries: tuple[EntryPlan, ...]

    @property
    def arena_bytes(self) -> int:
        return max((e.arena_bytes for e in self.entries), default=0)

    @property
    def lower_bound_bytes(self) -> int:
        return max((e.lower_bound_bytes for e in self.entries), default=0)


def plan(
    schedules: Sequence[Schedule],
    scratch_bytes: ScratchBytes = lambda step: 0,
    capacity_bytes: int | None = None,
    alignment: int = 4,
) -> Plan:
    """The best plan that the greedy orders and placements give, validated. PlanError if it does not fit."""
    return Plan(tuple(_plan_entry(s, scratch_bytes, capacity_bytes, alignment) for s in schedules))


def _plan_entry(
    schedule: Schedule, scratch_bytes: ScratchBytes, capacity_bytes: int | None, alignment: int
) -> EntryPlan:
    found = []
    for steps in orders(schedule):
        candidate = _place(replace(schedule, steps=steps), scratch_bytes, None, alignment)
        found.append(candidate)
    best = min(found, key=lambda c: c.arena_bytes)
    if capacity_bytes is not None and best.arena_bytes > capacity_bytes:
        best = _place(best.schedule, scratch_bytes, capacity_bytes, alignment)
    check(best.problem, best.placement)
    _check_versions(best)
    return best


def _place(
    schedule: Schedule, scratch_bytes: ScratchBytes, capacity_bytes: int | None, alignment: int
) -> EntryPlan:
    storage = share(schedule, schedule.steps)
    scratch = {
        step: Buffer(f"scratch{i}", TensorType((scratch_bytes(step),), "uint8"), "activation")
        for i, step in enumerate(schedule.steps)
        if scratch_bytes(step)
    }
    lifetimes = _lifetimes(schedule.steps, storage, scratch)
    names = _unique_names(list(lifetimes))
    buffers = tuple(
        placing.Buffer(names[root], root.type.size_bytes, lower, upper, alignment)
        for root, (lower, upper) in lifetimes.items()
    )
    problem = Problem(buffers, {ARENA: capacity_bytes})
    placement = place(problem)
    offsets = {root: placement.offsets[names[root]] for root in lifetimes}
    return EntryPlan(schedule, storage, offsets, scratch, problem, placement, names)


def _lifetimes(
    steps: Sequence[Step], storage: Mapping[Buffer, Buffer], scratch: Mapping[Step, Buffer]
) -> dict[Buffer, tuple[int, int]]:
    """[first step, last step + 1) of every storage that lies in the arena."""
    found: dict[Buffer, tuple[int, int]] = {}
    for i, step in enumerate(steps):
        touched = [storage[b] for b in (*step.buffers_written(), *step.buffers_read())]
        if step in scratch:
            touched.append(scratch[step])
        for root in touched:
            if root.kind == "activation":
                found[root] = (found.get(root, (i, i))[0], i + 1)
    return found


def _unique_names(buffers: Sequence[Buffer]) -> dict[Buffer, str]:
    names: dict[Buffer, str] = {}
    taken: set[str] = set()
    for buffer in buffers:
        name, number = buffer.name, 1
        while name in taken:
            name, number = f"{buffer.name}.{number}", number + 1
        taken.add(name)
        names[buffer] = name
    return names


def _check_versions(entry: EntryPlan) -> None:
    """Every reader of a variable's old version runs before the step that overwrites it."""
    for variable, value in entry.schedule.assigns:
        written = next((i for i, s in enumerate(entry.schedule.steps) if value in s.buffers_written()), None)
        for i, step in enumerate(entry.schedule.steps):
            if written is not None and i > written and variable in step.buffers_read():
                raise PlanError(f"{step!r} reads {variable.name} after step {written} has overwritten it")
