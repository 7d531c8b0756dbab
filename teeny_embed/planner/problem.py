"""What a planner is asked and what it answers, as plain data; no search happens here.

A `Problem` is the buffers of one entry point, a `Placement` their byte offsets. Aliases (in place,
views) are resolved before: one `Buffer` stands for all tensors that share a storage. Entry points that
share an arena are one problem each, all starting at offset 0; the arena is as high as the highest.

Lifetimes are half-open as in Moffitt, "MiniMalloc" (ASPLOS 2023): a buffer with `[2, 5)` is live in
steps 2, 3 and 4, so one that starts at 5 may take its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from teeny_embed.errors import PlanError

ARENA = "arena"


@dataclass(frozen=True)
class Buffer:
    """Bytes that must not move while they are live."""

    name: str
    """Unique within a problem."""
    size_bytes: int
    """At least 1."""
    lower: int
    """First step in which it is live, 0 or more."""
    upper: int
    """First step in which it is dead again, greater than `lower`."""
    alignment: int = 4
    """Its offset is a multiple of this many bytes; a power of two."""
    fixed_offset: int | None = None
    """Bytes from the start of its memory, where the choice is not the planner's."""
    memory: str = ARENA
    """The memory of the target it lies in; offsets in different memories are independent."""

    def __post_init__(self) -> None:
        fixed = self.fixed_offset or 0
        for broken, rule in (
            (self.size_bytes < 1, f"its size is {self.size_bytes} bytes, not 1 or more"),
            (not 0 <= self.lower < self.upper, f"its lifetime [{self.lower}, {self.upper}) holds no step"),
            (not is_power_of_two(self.alignment), f"its alignment is {self.alignment}, not a power of two"),
            (
                fixed < 0 or align_up(fixed, self.alignment) != fixed,
                f"its fixed offset {fixed} is not a multiple of {self.alignment} from 0 up",
            ),
        ):
            if broken:
                raise PlanError(f"buffer {self.name} cannot be placed: {rule}")

    def is_live_at(self, step: int) -> bool:
        return self.lower <= step < self.upper

    def meets(self, other: Buffer) -> bool:
        """Whether there is a step in which both are live in the same memory: then they share no byte."""
        return self.memory == other.memory and self.lower < other.upper and other.lower < self.upper


Distances = Mapping[tuple[str, str], int]
NONE: Distances = {}


@dataclass(frozen=True)
class Problem:
    """The buffers of one entry point and the bytes each memory has; None is no limit."""

    buffers: tuple[Buffer, ...]
    capacities: Mapping[str, int | None] = field(default_factory=lambda: {ARENA: None})
    distances: Distances = field(default_factory=dict)
    """(below, above): bytes by which `below` must start before `above`, where that is less than its size.

    For two buffers that are live together in one step only, in which one replaces the other."""

    def __post_init__(self) -> None:
        names: set[str] = set()
        for b in self.buffers:
            if b.name in names:
                raise PlanError(f"two buffers are called {b.name}")
            names.add(b.name)
            self._require_room(b)

    def _require_room(self, b: Buffer) -> None:
        if b.memory not in self.capacities:
            known = ", ".join(self.capacities) or "none"
            raise PlanError(f"buffer {b.name} is in memory {b.memory}, known are: {known}")
        capacity, end = self.capacities[b.memory], fixed_end(b)
        if capacity is not None and end > capacity:
            raise PlanError(f"buffer {b.name} is fixed to end at {end:,}, {b.memory} ends at {capacity:,}")

    def in_memory(self, memory: str) -> tuple[Buffer, ...]:
        return tuple(b for b in self.buffers if b.memory == memory)


@dataclass(frozen=True)
class Placement:
    """Where each buffer starts. `Placement.of` derives the heights; a search only finds the offsets."""

    offsets: Mapping[str, int]
    """By buffer name: bytes from the start of the buffer's memory."""
    height_bytes: Mapping[str, int]
    """By memory: the end of the highest buffer, 0 without one."""
    lower_bound_bytes: Mapping[str, int]
    """By memory: no placement is lower than this."""

    @classmethod
    def of(cls, problem: Problem, offsets: Mapping[str, int]) -> Placement:
        members = {memory: problem.in_memory(memory) for memory in problem.capacities}
        return cls(
            offsets={b.name: offsets[b.name] for b in problem.buffers},
            height_bytes={m: height_bytes(members[m], offsets) for m in members},
            lower_bound_bytes={m: lower_bound_bytes(members[m], problem.distances) for m in members},
        )

    @property
    def gap(self) -> dict[str, float]:
        """By memory: how far the height may be from the best, as a fraction of the lower bound."""
        bounds = self.lower_bound_bytes
        return {m: height / bounds[m] - 1.0 if bounds[m] else 0.0 for m, height in self.height_bytes.items()}


def is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def align_up(number: int, alignment: int) -> int:
    """The next multiple of `alignment`, a power of two."""
    return (number + alignment - 1) & -alignment


def fixed_end(b: Buffer) -> int:
    """The offset behind a buffer with a fixed offset, else 0."""
    return 0 if b.fixed_offset is None else b.fixed_offset + b.size_bytes


def height_bytes(buffers: Iterable[Buffer], offsets: Mapping[str, int]) -> int:
    """The end of the highest buffer of one memory."""
    return max((offsets[b.name] + b.size_bytes for b in buffers), default=0)


def naive_bytes(buffers: tuple[Buffer, ...]) -> int:
    """The height of one memory in which no byte is used twice: what planning is compared with.

    Stacked from coarse to fine alignment, so that padding stands only behind buffers, and from big to
    small: `placement.ORDERS` starts with the same order, hence is never higher.
    """
    top = max(map(fixed_end, buffers), default=0)
    for b in sorted(buffers, key=lambda b: (-b.alignment, -b.size_bytes)):
        if b.fixed_offset is None:
            top = align_up(top, b.alignment) + b.size_bytes
    return top


def live_at(buffers: Iterable[Buffer], step: int) -> tuple[Buffer, ...]:
    return tuple(b for b in buffers if b.is_live_at(step))


def live_bound_bytes(live: tuple[Buffer, ...], distances: Distances = NONE) -> int:
    """A height that buffers live in one step cannot go below.

    Not the sum of sizes padded to their own alignment: a finer buffer may use what a coarser one leaves.
    But buffers of alignment 8 and up, say, start at multiples of 8 whatever lies between them. So each
    alignment gives a bound, and the greatest holds. What two may share counts once.
    """
    bounds = [
        _stacked_bytes([b for b in live if b.alignment >= a], a, distances)
        for a in {b.alignment for b in live}
    ]
    return max([*bounds, *(b.size_bytes for b in live)], default=0)


def _stacked_bytes(buffers: list[Buffer], alignment: int, distances: Distances) -> int:
    """All but the highest padded; which is the highest is open, so the one with most padding is assumed."""
    padded = [align_up(b.size_bytes, alignment) for b in buffers]
    size = {b.name: b.size_bytes for b in buffers}
    shared = [
        min(size[below] - distance, size[above])
        for (below, above), distance in distances.items()
        if below in size and above in size
    ]
    spare = max(p - b.size_bytes for p, b in zip(padded, buffers, strict=True))
    return sum(padded) - spare - sum(align_up(n, alignment) for n in shared)


def peak_step(buffers: tuple[Buffer, ...], distances: Distances = NONE) -> int:
    """The first step of one memory with the greatest live bound, 0 without buffers."""
    starts = sorted({b.lower for b in buffers})  # elsewhere the live set, and with it the bound, only shrinks
    return max(starts, key=lambda step: live_bound_bytes(live_at(buffers, step), distances), default=0)


def lower_bound_bytes(buffers: tuple[Buffer, ...], distances: Distances = NONE) -> int:
    """A height in bytes that no placement of one memory can go below: the peak, or the highest fixed end."""
    peak = live_at(buffers, peak_step(buffers, distances))
    return max([live_bound_bytes(peak, distances), *map(fixed_end, buffers)])
