"""Finds offsets: greedy placement in several orders, the lowest result wins.

Placing to the lowest height is NP-hard (dynamic storage allocation, Garey and Johnson SR2). Greedy
placement takes buffers one by one and puts each in a gap between those already placed that it meets in
time; big ones first is the usual good order (Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference", 2020). Which order is best differs from model to model and each costs
milliseconds, so all are tried, until one reaches the lower bound. What ended highest in one attempt is
placed first in the next, as long as that helps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import combinations
from typing import NamedTuple

from teeny_embed.errors import PlanError
from teeny_embed.planner.problem import (
    NONE,
    Buffer,
    Distances,
    Placement,
    Problem,
    align_up,
    height_bytes,
    lower_bound_bytes,
)
from teeny_embed.planner.report import peak_table

Offsets = dict[str, int]
Neighbours = Mapping[str, tuple[Buffer, ...]]


class Gap(NamedTuple):
    """A place that is free for the whole lifetime of a buffer."""

    offset: int
    slack_bytes: float
    """What stays free above the buffer; infinite on top of everything."""


Order = Callable[[Buffer], tuple[int, ...]]
Fit = Callable[[Gap], tuple[float, ...]]

# What comes first in each order; `_full_key` breaks ties, so that nothing is left to chance.
# The first one keeps the promise of never being higher than `naive_bytes`.
ORDERS: tuple[Order, ...] = (
    lambda b: (-b.alignment, -b.size_bytes),
    lambda b: (-b.size_bytes,),
    lambda b: (-b.size_bytes * (b.upper - b.lower),),
    lambda b: (-(b.size_bytes**2) * (b.upper - b.lower),),  # between the two before
    lambda b: (b.lower - b.upper,),
    lambda b: (b.lower,),
    lambda b: (-b.upper,),
    lambda b: (-b.lower,),  # a chain in which each overlaps the one before grows upwards from its end
)
FITS: tuple[Fit, ...] = (
    lambda gap: (gap.offset,),  # first fit
    lambda gap: (gap.slack_bytes, gap.offset),  # best fit
)


def place(problem: Problem) -> Placement:
    """Places each memory of `problem`. Raises PlanError if fixed offsets collide or a memory is too small."""
    offsets: Offsets = {}
    for memory in problem.capacities:
        offsets |= place_memory(problem.in_memory(memory), problem.distances)
    placement = Placement.of(problem, offsets)
    for memory in problem.capacities:
        _require_fit(problem, placement, memory)
    return placement


def place_memory(buffers: tuple[Buffer, ...], distances: Distances = NONE) -> Offsets:
    """The lowest greedy offsets of buffers that all lie in one memory; equal input gives equal offsets."""
    neighbours = {b.name: tuple(o for o in buffers if o is not b and o.meets(b)) for b in buffers}
    fixed = _fixed_offsets(buffers, distances)
    bound = lower_bound_bytes(buffers, distances)
    movable = [b for b in buffers if b.name not in fixed]
    orders = dict.fromkeys(tuple(sorted(movable, key=_full_key(order))) for order in ORDERS)  # each once
    best, best_height = fixed, math.inf
    for order, fit in itertools.product(orders, FITS):
        greedy = partial(_greedy, fixed=fixed, neighbours=neighbours, distances=distances, fit=fit)
        for candidate in _promotions(list(order), greedy):
            height = height_bytes(buffers, candidate)
            if height >= best_height:
                break
            best, best_height = candidate, height
        if best_height == bound:
            break
    return best


def _promotions(order: list[Buffer], greedy: Callable[[list[Buffer]], Offsets]) -> Iterator[Offsets]:
    """Placements in an order, and then again and again with those first that ended highest before."""
    while order:
        offsets = greedy(order)
        yield offsets
        order.sort(key=lambda b: -(offsets[b.name] + b.size_bytes))


def _full_key(order: Order) -> Callable[[Buffer], tuple[object, ...]]:
    return lambda b: (*order(b), -b.size_bytes, b.lower - b.upper, b.lower, -b.alignment, b.name)


def _greedy(
    order: Iterable[Buffer], fixed: Offsets, neighbours: Neighbours, distances: Distances, fit: Fit
) -> Offsets:
    offsets = dict(fixed)
    for b in order:
        taken = sorted(
            (offsets[o.name] - _distance(b, o, distances), offsets[o.name] + _distance(o, b, distances))
            for o in neighbours[b.name]
            if o.name in offsets
        )
        offsets[b.name] = min(_gaps(b, taken), key=fit).offset
    return offsets


def _distance(below: Buffer, above: Buffer, distances: Distances) -> int:
    """How far `below` must at least start before `above`, if it lies below."""
    return distances.get((below.name, above.name), below.size_bytes)


def _gaps(b: Buffer, taken: Iterable[tuple[int, int]]) -> Iterator[Gap]:
    """Where `b` may start: not strictly between two ends of `taken`, sorted. The last gap is on top."""
    offset = 0
    for last, next in taken:
        if last >= offset:
            yield Gap(offset, last - offset)
        offset = max(offset, align_up(next, b.alignment))
    yield Gap(offset, math.inf)


def _fixed_offsets(buffers: tuple[Buffer, ...], distances: Distances) -> Offsets:
    fixed = {b.name: b.fixed_offset for b in buffers if b.fixed_offset is not None}
    for a, b in combinations([b for b in buffers if b.name in fixed], 2):
        low, high = sorted((a, b), key=lambda each: fixed[each.name])
        if a.meets(b) and fixed[high.name] - fixed[low.name] < _distance(low, high, distances):
            step = max(a.lower, b.lower)
            raise PlanError(f"the fixed offsets of {a.name} and {b.name} overlap", where=f"step {step}")
    return fixed


def _require_fit(problem: Problem, placement: Placement, memory: str) -> None:
    capacity, height = problem.capacities[memory], placement.height_bytes[memory]
    bound = placement.lower_bound_bytes[memory]
    if capacity is None or height <= capacity:
        return
    if bound > capacity:
        what = f"{memory} has {capacity:,} bytes, but no plan needs fewer than {bound:,}"
        hint = "make what is live at the peak smaller, or choose a target with more memory"
    else:
        what = f"{memory} has {capacity:,} bytes, but the best plan found needs {height:,}"
        hint = f"a plan of {bound:,} bytes is not ruled out; smaller buffers make it easier to find"
    raise PlanError(f"{what}\n{peak_table(problem, memory)}", hint=hint)
