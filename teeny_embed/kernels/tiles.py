"""Tiles: how many neighbouring outputs are computed together, and which parts of the output space need tests.

Neighbours share loads and loop overhead; each has an accumulator of its own, so the order of its sum, and
with it every bit, stays as it is.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, fixed
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.step import Read, Step
from teeny_embed.target import Target

Tile = Mapping[str, int]
Bound = tuple[Affine, int]


@dataclass(frozen=True)
class Block:
    """One vector of a tile: its first position within the tile, and the lanes that are stored."""

    offset: int
    first_lane: int
    end_lane: int


@dataclass(frozen=True)
class Range:
    """Positions begin .. end - 1 of one output dim, `tile` at a time; `inside`: no bound needs a test.

    A tile of several positions that is not inside is tested as a whole at each fold point, and position by
    position where that fails.
    """

    begin: int
    end: int
    tile: int
    inside: bool
    blocks: tuple[Block, ...] = ()
    """Vectors that a tile is made of, where the dim runs in lanes."""

    @property
    def offsets(self) -> tuple[int, ...]:
        """Tile positions, or the first positions of its vectors."""
        return tuple(b.offset for b in self.blocks) or tuple(range(self.tile))

    @property
    def single(self) -> bool:
        """Whether one tile covers it."""
        return self.end - self.begin == self.tile


def fold_bounds(step: Step) -> tuple[Bound, ...]:
    """Index maps of the fold that can leave their tensor, with the extent that they must stay below."""
    found = [
        (i, extent)
        for read in step.fold_reads().values()
        for i, extent in zip(read.index, read.shape, strict=True)
        if read.fill is None and isinstance(i, Affine) and not i.in_range(extent, step.sizes)
    ]
    return tuple(dict.fromkeys(found))


def ranges(step: Step, bounds: Sequence[Bound], d: str, tile: int) -> list[Range]:
    """Border, interior and rest of one output dim."""
    extent = step.sizes[d]
    concerned = tuple(b for b in bounds if d in b[0].dims)
    if tile == 1:
        return [Range(0, extent, 1, not concerned)]
    begin, end = _interior(step, concerned, d)
    if end - begin < tile:  # as in a weight gradient, where the fold crosses the border
        begin, end, inside = 0, extent, False
    else:
        inside = True
    whole = begin + (end - begin) // tile * tile
    parts = [Range(0, begin, 1, False), Range(begin, whole, tile, inside)]
    parts += [Range(whole, end, end - whole, inside), Range(end, extent, 1, False)]
    return [p for p in parts if p.begin < p.end]


_MOST_PARTS = 64
"""Of a map; each has code of its own."""


def seams(step: Step) -> list[tuple[Scalar, str, int]]:
    """(test, d, end) of the choices of a map between what lies before and behind position `end` of dim d."""
    if step.folds:
        return []
    found = []
    for test in s.walk([o.value for o in step.outputs]):
        if test.op == "less" and test.args[0].op == "index" and test.args[1].op == "const":
            found.append((test, test.args[0].attr, int(test.args[1].attr)))
    parts = prod(1 + len({end for _, name, end in found if name == d}) for d, _ in step.dims)
    return found if parts <= _MOST_PARTS else []


def between_seams(step: Step, d: str, tile: int) -> list[Range]:
    """An output dim in parts within which no choice between positions changes; none if there is no choice."""
    extent = step.sizes[d]
    ends = sorted({end for _, name, end in seams(step) if name == d and 0 < end < extent})
    parts = []
    for begin, end in itertools.pairwise([0, *ends, extent] if ends else []):
        whole = begin + (end - begin) // tile * tile
        parts += [Range(begin, whole, tile, True), Range(whole, end, end - whole, True)]
    return [p for p in parts if p.begin < p.end]


@functools.lru_cache(maxsize=32)  # each candidate of choose_tile asks again
def _interior(step: Step, bounds: tuple[Bound, ...], d: str) -> tuple[int, int]:
    """Positions of `d` at which the index maps stay inside for every fold point."""
    extent = step.sizes[d]
    inside = [p for p in range(extent) if all(_stays_inside(step, b, d, p) for b in bounds)]
    return (inside[0], inside[-1] + 1) if inside else (extent, extent)


def _stays_inside(step: Step, bound: Bound, d: str, position: int) -> bool:
    i, extent = bound
    if i.exact:
        return False
    low, high = i.substitute({d: fixed(position)}).bounds(step.sizes)
    return low >= 0 and high // i.divisor < extent


# ---- Choosing -------------------------------------------------------------------------------------------

_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)
_SPARE_REGISTERS = 5  # of 32: one operand's value, the guard, the scheduler's room
_MAP_TILE = 8  # outputs of a map per turn of its loop: amortises the loop's own instructions
_MAP_OPERATIONS = 32  # of integers, per turn of it: with more their values do not stay in registers


@dataclass(frozen=True)
class Group:
    """Reads that move along the output dim `dim` by one element load `size` elements in one instruction."""

    dim: str
    size: int


def choose_tile(step: Step, target: Target) -> tuple[Tile, Group | None]:
    """The tile with the least estimated cycles for a core with floating-point registers; none for others."""
    if not target.float_registers or not step.dims:
        return {}, None
    if not step.folds:
        name, extent = step.dims[-1]
        most = _map_tile(step)
        return {name: next(t for t in (_MAP_TILE, 6, 5, 4, 3, 2, 1) if extent % t == 0 and t <= most)}, None
    if any(f.term is None for f in step.folds):
        return {}, None
    bounds = fold_bounds(step)
    fixed_dims = absence_dims(step) | {d for i, _ in bounds if i.exact for d in i.dims}
    free = [d for d, _ in step.dims if d not in fixed_dims]
    in_groups = group_dim(step)
    if in_groups in free:
        return _grouped_tile(step, bounds, free, in_groups, target.float_registers)
    candidates = list(_candidates(step, free, target.float_registers - _SPARE_REGISTERS))
    return min(candidates, key=lambda tile: (_cycles(step, bounds, tile), len(tile))), None


_FEW_POINTS = 32


def is_brief(step: Step) -> bool:
    """Whether a step of integers visits so few points that code for speed would cost more than it wins."""
    buffers = (*step.buffers_read(), *step.buffers_written())
    return prod(step.sizes.values()) <= _FEW_POINTS and not any(
        b.type.dtype.startswith("float") for b in buffers
    )


def _map_tile(step: Step) -> int:
    """How many outputs of a map one turn of its loop computes at most."""
    if any(o.value.dtype.startswith("float") for o in step.outputs):
        return _MAP_TILE  # in registers of their own
    if is_brief(step):
        return 1
    operations = sum(1 for node in s.walk([o.value for o in step.outputs]) if node.args)
    return max(1, _MAP_OPERATIONS // max(1, operations))


def group_dim(step: Step) -> str | None:
    """The output dim along which weights lie together: a constant moves along it by one element."""
    if len(step.folds) != 1 or any(f.absent is not None for f in step.folds):
        return None
    reads = step.fold_reads().values()
    found = [d for r in reads if r.buffer.kind == "constant" for d, _ in step.dims if in_group(r, d)]
    return found[-1] if found else None


def in_group(read: Read, d: str) -> bool:
    """Whether neighbours along `d` read neighbouring numbers, with no test between them."""
    flat = read.flat()
    return (
        read.fill is None
        and read.buffer.type.dtype == "float32"
        and flat is not None
        and flat.coefficient(d) == 1
    )


_GROUP = 8  # registers: what remains of 32 holds up to 20 accumulators, another operand and a product


def _grouped_tile(
    step: Step, bounds: Sequence[Bound], free: Sequence[str], d: str, register_count: int
) -> tuple[Tile, Group | None]:
    candidates = [
        (tile, Group(d, _group_size(tile[d])))
        for tile in _candidates(step, free, register_count, range(1, register_count))
        if d in tile and _registers(step, tile, Group(d, _group_size(tile[d]))) <= register_count
    ]
    if not candidates:
        return {}, None
    return min(candidates, key=lambda c: (_cycles(step, bounds, *c), len(c[0])))


def _group_size(tile: int) -> int:
    """The largest of equal groups that a tile consists of."""
    return next(n for n in range(min(tile, _GROUP), 0, -1) if tile % n == 0)


def _registers(step: Step, tile: Tile, group: Group) -> int:
    """Accumulators, a product, and what each read holds at a time.

    That is all positions along the group's dim where another dim makes use of them again, else one group.
    """
    total = prod(tile.values()) + 1
    for read in step.fold_reads().values():
        if group.dim not in read.dims():
            total += 1
        elif any(t > 1 and d not in read.dims() for d, t in tile.items()):
            total += tile[group.dim]
        else:
            total += group.size
    return total


def absence_dims(step: Step) -> set[str]:
    """Dims on which it depends whether a term is absent: tiles along them could not share the test."""
    absences = [f.absent for f in step.folds if f.absent is not None]
    names = {leaf.attr for leaf in s.leaves(*absences) if leaf.op == "var"}
    direct = {leaf.attr for leaf in s.leaves(*absences) if leaf.op == "index"}
    return direct | {d for n in names for d in step.reads[n].dims()}


def _candidates(
    step: Step, free: Sequence[str], register_count: int, steps: Sequence[int] = _SIZES
) -> Iterable[Tile]:
    sizes = step.sizes
    yield {}
    for d in free:
        yield from ({d: t} for t in steps if 1 < t <= min(sizes[d], register_count))
    for a, b in itertools.combinations(free, 2):
        for t, u in itertools.product(steps, steps):
            if 1 < t <= sizes[a] and 1 < u <= sizes[b] and t * u <= register_count:
                yield {a: t, b: u}


def _cycles(step: Step, bounds: Sequence[Bound], tile: Tile, group: Group | None = None) -> float:
    """Estimated cycles of all fold points, in the costs of an Armv7E-M core: load 2, arithmetic 1, loop 5.

    A group of loads takes one cycle more than it has elements. With groups, what happens once for each
    tile counts, too.
    """
    reads = step.fold_reads().values()
    parts = [ranges(step, bounds, d, tile.get(d, 1)) for d, _ in step.dims]
    once = 0.0 if group is None else 20 / step.fold_count
    total = 0.0
    for combination in itertools.product(*parts):
        used = {d: r.tile for (d, _), r in zip(step.dims, combination, strict=True)}
        turns = prod((r.end - r.begin) // r.tile for r in combination)
        guard = 4 if any(f.absent is not None for f in step.folds) else 0
        border = 0 if all(r.inside for r in combination) else 2
        loads = sum(_load_cycles(r, used, group) for r in reads)
        work = loads + 2 * prod(used.values()) + 5 + guard + border + once
        total += turns * work + 40  # code of its own for each combination
    return total


def _load_cycles(read: Read, used: Tile, group: Group | None) -> float:
    count = _distinct(read, used)
    if group is None:
        return 2 * count
    spilled = 4 * max(0, _pointers(read, used) - _POINTERS)
    if used[group.dim] == 1 or not in_group(read, group.dim):
        return 2 * count + spilled
    return count + -(-count // group.size) + spilled


_POINTERS = 6  # of 13 core registers; others count, and point to weights and outputs


def _pointers(read: Read, used: Tile) -> int:
    """Base addresses that the positions of a tile need: an instruction reaches 1,020 bytes from one."""
    flat = read.flat()
    if flat is None:
        return 1
    return prod(t for d, t in used.items() if 4 * abs(flat.coefficient(d)) * (t - 1) > 1020)


def _distinct(read: Read, used: Tile) -> int:
    """Different elements that the positions of one tile read at one fold point."""
    return prod(used.get(d, 1) for d in read.dims())
