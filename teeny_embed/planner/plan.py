"""The plan of a program: order of steps, shared storages, byte offsets in one arena, bound and gap."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from teeny_embed.errors import PlanError
from teeny_embed.graph.step import Buffer, Schedule
from teeny_embed.kernels.choose import distance, scratch_distance
from teeny_embed.kernels.turns import Distance
from teeny_embed.planner import problem as placing
from teeny_embed.planner.order import orders
from teeny_embed.planner.placement import place
from teeny_embed.planner.problem import ARENA, Placement, Problem
from teeny_embed.planner.storage import Choose, in_arena, share
from teeny_embed.planner.validate import check


@dataclass(frozen=True, eq=False)
class EntryPlan:
    """One entry point: its steps in order, the storage of every buffer, and offsets in the arena."""

    schedule: Schedule
    storage: Mapping[Buffer, Buffer]
    offsets: Mapping[Buffer, int]
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


def plan(schedules: Sequence[Schedule], choose: Choose, io: str = "caller") -> Plan:
    """The best plan that the greedy orders and placements give, validated.

    `choose` gives the kernel of a step, and `io` says where inputs and outputs of rank > 0 lie: "caller" (not
    in this plan) or "arena". Results lie over operands only where the arena would else be higher: kernels
    that keep clear of theirs may say so to the compiler, and are shared by more steps.
    """
    near, apart = (
        [_plan_entry(schedule, in_arena(schedule, io), kernels) for schedule in schedules]
        for kernels in (choose, None)
    )
    arena_bytes = max((entry.arena_bytes for entry in near), default=0)
    return Plan(tuple(a if a.arena_bytes <= arena_bytes else n for a, n in zip(apart, near, strict=True)))


def _plan_entry(schedule: Schedule, placed: Collection[Buffer], choose: Choose | None) -> EntryPlan:
    found = [_place(replace(schedule, steps=steps), placed, choose) for steps in orders(schedule, placed)]
    best = min(found, key=lambda candidate: candidate.arena_bytes)
    check(best.problem, best.placement)
    _check_versions(best)
    return best


def _place(schedule: Schedule, placed: Collection[Buffer], choose: Choose | None) -> EntryPlan:
    storage = share(schedule, schedule.steps, placed, choose)
    lifetimes = _lifetimes(schedule, storage, placed)
    names = _unique_names(list(lifetimes))
    distances = _distances(schedule, storage, lifetimes, choose) if choose is not None else {}
    multiples: dict[Buffer, int] = {}
    for pair, each in distances.items():
        multiples |= {root: max(each.multiple, multiples.get(root, 1)) for root in pair}
    buffers = tuple(
        placing.Buffer(
            names[root], root.type.size_bytes, lower, upper, max(_alignment(root), multiples.get(root, 1))
        )
        for root, (lower, upper) in lifetimes.items()
    )
    near = {(names[below], names[above]): each.byte_count for (below, above), each in distances.items()}
    problem = Problem(buffers, distances=near)
    placement = place(problem)
    offsets = {root: placement.offsets[names[root]] for root in lifetimes}
    return EntryPlan(schedule, storage, offsets, problem, placement, names)


def _distances(
    schedule: Schedule,
    storage: Mapping[Buffer, Buffer],
    lifetimes: Mapping[Buffer, tuple[int, int]],
    choose: Choose,
) -> dict[tuple[Buffer, Buffer], Distance]:
    """How near a result, or a scratch, may come to an operand that dies in the step, from below.

    A distance that is to be a multiple of a number, which alignments can only see to for a power of two, is
    left out where it is none.
    """
    found: dict[tuple[Buffer, Buffer], Distance] = {}
    for i, step in enumerate(schedule.steps):
        results = list(dict.fromkeys(storage[b] for b in step.buffers_written()))
        for operand in step.buffers_read():
            root = storage[operand]
            if root in results or root not in lifetimes or lifetimes[root][1] != i + 1:
                continue
            pairs = [(r, distance) for r in results if r in lifetimes and lifetimes[r][0] == i]
            pairs += [(step.scratch, scratch_distance)] if step.scratch is not None else []
            for below, distance_of in pairs:
                each = distance_of(step, choose(step), operand)
                if each is not None and placing.is_power_of_two(each.multiple):
                    found[below, root] = each
    return {pair: each for pair, each in found.items() if each.byte_count < pair[0].type.size_bytes}


def _alignment(buffer: Buffer) -> int:
    """Bytes: that of the element, and at least a word; two words for kernels, which load pairs of them."""
    return 8 if buffer.kind == "scratch" else max(4, buffer.type.size_bytes // buffer.type.count)


def _lifetimes(
    schedule: Schedule, storage: Mapping[Buffer, Buffer], placed: Collection[Buffer]
) -> dict[Buffer, tuple[int, int]]:
    """[first step, last step + 1) of every storage that lies in the arena.

    An input lives from the start, an output to the end.
    """
    last = max(0, len(schedule.steps) - 1)
    uses = [(0, b) for b in schedule.inputs]
    uses += [(i, b) for i, step in enumerate(schedule.steps) for b in step.buffers()]
    uses += [(last, b) for b in schedule.outputs]
    found: dict[Buffer, tuple[int, int]] = {}
    for i, buffer in uses:
        root = storage[buffer]
        if root in placed:
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
