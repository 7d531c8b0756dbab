"""Finds offsets: greedy placement in several orders, the lowest result wins.

Placing to the lowest height is NP-hard (dynamic storage allocation, Garey and Johnson SR2). Greedy
placement takes buffers one by one and puts each in a gap between those already placed that it meets in
time; big ones first is the usual good order (Pisarchyk and Lee, "Efficient Memory Management for Deep
Neural Net Inference", 2020). Which order is best differs from model to model and each costs
milliseconds, so all are tried, until one reaches the lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from teeny_embed.errors import PlanError
from teeny_embed.planner.problem import (
    Buffer,
    Placement,
    Problem,
    align_up,
    fixed_end,
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
)
FITS: tuple[Fit, ...] = (
    lambda gap: (gap.offset,),  # first fit
    lambda gap: (gap.slack_bytes, gap.offset),  # best fit
)


def place(problem: Problem) -> Placement:
    """Places each memory of `problem`. Raises PlanError if fixed offsets collide or a memory is too small."""
    offsets: Offsets = {}
    for memory in problem.capacities:
        offsets |= place_memory(problem.in_memory(memory))
    placement = Placement.of(problem, offsets)
    for memory in problem.capacities:
        _require_fit(problem, placement, memory)
    return placement


def place_memory(buffers: tuple[Buffer, ...]) -> Offsets:
    """The lowest greedy offsets of buffers that all lie in one memory; equal input gives equal offsets."""
    neighbours = {b.name: tuple(o for o in buffers if o is not b and o.meets(b)) for b in buffers}
    fixed = _fixed_offsets(buffers)
    bound = lower_bound_bytes(buffers)
    best: Offsets | None = None
    for candidate in _candidates(buffers, fixed, neighbours):
        if best is None or height_bytes(buffers, candidate) < height_bytes(buffers, best):
            best = candidate
        if height_bytes(buffers, best) == bound:
            break
    return best or {}


def _candidates(buffers: tuple[Buffer, ...], fixed: Offsets, neighbours: Neighbours) -> Iterator[Offsets]:
    movable = [b for b in buffers if b.name not in fixed]
    orders = dict.fromkeys(tuple(sorted(movable, key=_full_key(order))) for order in ORDERS)  # each once
    for order in orders:
        for fit in FITS:
            yield _greedy(order, fixed, neighbours, fit)


def _full_key(order: Order) -> Callable[[Buffer], tuple[object, ...]]:
    return lambda b: (*order(b), -b.size_bytes, b.lower - b.upper, b.lower, -b.alignment, b.name)


def _greedy(order: Iterable[Buffer], fixed: Offsets, neighbours: Neighbours, fit: Fit) -> Offsets:
    offsets = dict(fixed)
    for b in order:
        taken = sorted(
            (offsets[o.name], offsets[o.name] + o.size_bytes) for o in neighbours[b.name] if o.name in offsets
        )
        offsets[b.name] = min(_gaps(b, taken), key=fit).offset
    return offsets


def _gaps(b: Buffer, taken: Iterable[tuple[int, int]]) -> Iterator[Gap]:
    """Where `b` fits between the byte ranges `taken`, sorted by start; the last gap is above them all."""
    offset = 0
    for start, end in taken:
        slack = start - offset - b.size_bytes
        if slack >= 0:
            yield Gap(offset, slack)
        offset = max(offset, align_up(end, b.alignment))
    yield Gap(offset, math.inf)


def _fixed_offsets(buffers: tuple[Buffer, ...]) -> Offsets:
    fixed = {b.name: b.fixed_offset for b in buffers if b.fixed_offset is not None}
    for a, b in combinations([b for b in buffers if b.name in fixed], 2):
        if a.meets(b) and fixed[a.name] < fixed_end(b) and fixed[b.name] < fixed_end(a):
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
