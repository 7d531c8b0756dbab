"""Says which rule a placement breaks. Shares no code with any search, so that both cannot be wrong alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from teeny_embed.errors import PlanError
from teeny_embed.planner.problem import Buffer, Placement, Problem


def validate(problem: Problem, placement: Placement) -> list[str]:
    """One line per broken rule, each starting with the rule's name and a colon; empty if all hold.

    Rules: missing, unknown, alignment, fixed offset, bounds, overlap, height, lower bound.
    """
    found = list(_names(problem, placement))
    placed = [b for b in problem.buffers if b.name in placement.offsets]
    for b in placed:
        found += _own_rules(b, placement.offsets[b.name], problem.capacities[b.memory])
    for memory in problem.capacities:
        members = [b for b in placed if b.memory == memory]
        found += _overlaps(members, placement.offsets, problem.distances)
        found += _heights(memory, members, placement)
    return found


def check(problem: Problem, placement: Placement) -> None:
    """Raises PlanError with every broken rule."""
    if broken := validate(problem, placement):
        raise PlanError("the memory plan is wrong\n" + "\n".join(f"  {line}" for line in broken))


def _names(problem: Problem, placement: Placement) -> Iterator[str]:
    names = {b.name for b in problem.buffers}
    for b in problem.buffers:
        if b.name not in placement.offsets:
            yield f"missing: {b.name} has no offset"
    for name in placement.offsets:
        if name not in names:
            yield f"unknown: {name} has an offset, but is no buffer"


def _own_rules(b: Buffer, offset: int, capacity: int | None) -> Iterator[str]:
    """The rules that one buffer keeps or breaks by itself."""
    if offset % b.alignment != 0:
        yield f"alignment: {b.name} is at {offset}, not a multiple of {b.alignment}"
    if b.fixed_offset is not None and offset != b.fixed_offset:
        yield f"fixed offset: {b.name} is at {offset}, not at {b.fixed_offset}"
    if offset < 0:
        yield f"bounds: {b.name} is at {offset}, below the start of {b.memory}"
    if capacity is not None and offset + b.size_bytes > capacity:
        yield f"bounds: {b.name} ends at {offset + b.size_bytes}, {b.memory} at {capacity}"


def _overlaps(
    members: list[Buffer], offsets: Mapping[str, int], distances: Mapping[tuple[str, str], int]
) -> Iterator[str]:
    """Replays the steps: whenever a buffer comes to life, it must be clear of all that are alive.

    But one that dies in this very step may be overlapped from below, at its distance.
    """
    alive: list[Buffer] = []
    for new in sorted(members, key=lambda b: (b.lower, b.name)):
        alive = [b for b in alive if b.upper > new.lower]
        for old in alive:
            start = max(offsets[old.name], offsets[new.name])
            end = min(offsets[old.name] + old.size_bytes, offsets[new.name] + new.size_bytes)
            if start < end and not any(
                _replaces(below, above, offsets, distances) for below, above in ((old, new), (new, old))
            ):
                yield f"overlap: {old.name} and {new.name} share bytes [{start}, {end}) in step {new.lower}"
        alive.append(new)


def _replaces(
    below: Buffer, above: Buffer, offsets: Mapping[str, int], distances: Mapping[tuple[str, str], int]
) -> bool:
    between, allowed = offsets[above.name] - offsets[below.name], distances.get((below.name, above.name))
    return allowed is not None and between >= allowed and above.upper == below.lower + 1


def _heights(memory: str, members: list[Buffer], placement: Placement) -> Iterator[str]:
    highest = max([0] + [placement.offsets[b.name] + b.size_bytes for b in members])
    height = placement.height_bytes.get(memory)
    bound = placement.lower_bound_bytes.get(memory, 0)
    if height != highest:
        yield f"height: {memory} is said to be {height} bytes high, its highest buffer ends at {highest}"
    if bound > highest:
        yield f"lower bound: {memory} is said to need {bound} bytes, its highest buffer ends at {highest}"
