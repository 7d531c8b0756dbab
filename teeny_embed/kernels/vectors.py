"""Vectors for targets that have them: one output dim in lanes, each lane an accumulator of its own.

A fold vectorises along an output dim if every read either does not move along it (one value for all lanes)
or moves by one element (a vector load). A read that moves otherwise is packed first: copied so that the dim
comes last, by a step of its own, or at build time if it is a constant. Blocks may overlap at the end of the
dim: lanes are computed twice and stored once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import dim
from teeny_embed.graph.step import Buffer, Dims, Output, Read, Schedule, Source, Step
from teeny_embed.graph.types import TensorType
from teeny_embed.kernels.constants import packable, packed_constant
from teeny_embed.kernels.scatter import scatter_of
from teeny_embed.kernels.tiles import Block, Bound, Range, Tile, absence_dims, fold_bounds, ranges
from teeny_embed.target import Target

_MACS_PER_PACKED_ELEMENT = 8  # below this, packing costs more than vectors save
_REGISTERS = 32
ACCUMULATORS = 24  # of them
_TESTED = 4  # cycles of a position that is tested on its own
_LATENCY = 8  # accumulators that keep two adders with a latency of four busy


@dataclass(frozen=True)
class Vector:
    """The dim in lanes, and how many vectors of it one tile holds."""

    dim: str
    lanes: int
    block_count: int
    dtype: str = "float32"
    """Of an accumulator."""


def vector_of(step: Step, target: Target) -> tuple[Vector, Tile] | None:
    """How `step` runs in vectors as it is, without packing; None if it does not."""
    if not target.vector_bytes:
        return None
    found = [d for d in _dims_in_lanes(step) if not _moving_otherwise(step, d) and _fills_lanes(step, d)]
    if not found:
        return None
    name = max(found, key=lambda d: min(dict(step.dims)[d], target.vector_bytes // 4))
    lanes = _lanes(dict(step.dims)[name], target)
    return _best_tile(step, name, lanes)


def integer_vector_of(step: Step, target: Target) -> Vector | None:
    """How a map or sums of small integers run in four lanes of int32 (MVE); None if they do not."""
    if not target.has("mve") or not step.dims or len(step.levels) > 1:
        return None
    name, extent = step.dims[-1]
    types = {b.type.dtype for b in (*step.buffers_read(), *step.buffers_written())}
    if extent < 4 or name in _tested(step) or not types <= {"int8", "int16", "int32"}:
        return None
    if any(f.dtype != "int32" or f.absent is not None for f in step.folds):
        return None
    reads = step.reads.values() if not step.folds else step.fold_reads().values()
    flat = [r.flat() for r in reads]
    lies = all(f is not None and f.coefficient(name) in (0, 1) and f.divisor == 1 for f in flat)
    in_lanes = any(name in r.dims() for r in reads) or not step.folds
    return Vector(name, 4, 1, "int32") if lies and in_lanes and all(r.fill is None for r in reads) else None


def _fills_lanes(step: Step, d: str) -> bool:
    """Whether a read moves along `d`, and each that does has eight elements there, be it by padding."""
    moving = [r for r in step.fold_reads().values() if d in r.dims()]
    padded = all(r.shape and r.index[-1] == dim(d) and r.shape[-1] >= 8 for r in moving)
    return bool(moving) and (dict(step.dims)[d] >= 8 or padded)


def _lanes(extent: int, target: Target) -> int:
    return target.vector_bytes // 4 if extent >= target.vector_bytes // 4 else 8


def _dims_in_lanes(step: Step) -> list[str]:
    """Output dims along which no test differs, for a step whose folds are float32 sums of products."""
    plain = {"multiply", "add", "subtract", "var"}
    terms = [f.term for f in step.folds]
    if not terms or any(t is None or {n.op for n in s.walk([t])} - plain for t in terms):
        return []
    if any(
        r.buffer.type.dtype != "float32" or r.affine() is None
        for r in step.fold_reads().values()
        if r.fill is None
    ):
        return []
    return [d for d, _ in step.dims if d not in _tested(step)]


def _tested(step: Step) -> set[str]:
    """Dims along which a term may be absent."""
    return {d for i, _ in fold_bounds(step) for d in i.dims} | absence_dims(step)


def _moving_otherwise(step: Step, d: str) -> list[str]:
    """Reads of the fold that move along `d` by another distance than one element."""
    found = []
    for name, read in step.fold_reads().items():
        if d in read.dims():
            flat = read.flat()
            if flat is None or flat.coefficient(d) != 1 or read.fill is not None:
                found.append(name)
    return found


def _best_tile(step: Step, name: str, lanes: int) -> tuple[Vector, Tile]:
    extent = dict(step.dims)[name]
    block_total = -(-extent // lanes)
    exact = {d for i, _ in fold_bounds(step) if i.exact for d in i.dims}
    others = [d for d, _ in step.dims if d != name and d not in exact | absence_dims(step)]
    others.reverse()  # of equal ones the innermost: neighbours in memory
    bounds = fold_bounds(step)
    return min(
        _tiles(step, others, block_total, name, lanes),
        key=lambda found: _cost(step, bounds, name, found[0].block_count, found[1], block_total),
    )


def _tiles(
    step: Step, others: list[str], block_total: int, name: str, lanes: int
) -> Iterator[tuple[Vector, Tile]]:
    sizes = dict(step.dims)
    for block_count in range(1, min(block_total, ACCUMULATORS) + 1):
        vector = Vector(name, lanes, block_count)
        yield vector, {}
        for d, t in itertools.product(others, range(2, ACCUMULATORS // block_count + 1)):
            if t <= sizes[d] and _registers(step, vector, {d: t}) <= _REGISTERS:
                yield vector, {d: t}


def _registers(step: Step, vector: Vector, tile: Tile) -> int:
    """Accumulators, and the vectors that one fold point loads for them; single numbers need no register."""
    total = vector.block_count * prod(tile.values())
    for read in step.fold_reads().values():
        if vector.dim in read.dims():
            total += vector.block_count * prod(tile.get(d, 1) for d in read.dims())
    return total


def _cost(
    step: Step, bounds: Sequence[Bound], name: str, block_count: int, tile: Tile, block_total: int
) -> float:
    """Cycles per useful vector and fold point: two operations and two loads a cycle, latency, loop.

    Where a tile straddles a border, its positions are tested one by one.
    """
    total = 0.0
    parts = [[(d, r) for r in ranges(step, bounds, d, t)] for d, t in tile.items()]
    for combination in itertools.product(*parts):
        used = {d: r.tile for d, r in combination}
        accumulators = block_count * prod(used.values())
        loads = 0
        for read in step.fold_reads().values():
            loads += prod(used.get(d, 1) for d in read.dims()) * (block_count if name in read.dims() else 1)
        work = max(accumulators, loads / 2, _LATENCY / 2) + 1.5
        straddling = [(d, r) for d, r in combination if r.tile > 1 and not r.inside]
        work += _TESTED * accumulators * max((_straddles(step, bounds, *s) for s in straddling), default=0.0)
        total += work * prod((r.end - r.begin) // r.tile for _, r in combination)
    waste = -(-block_total // block_count) / block_total
    return total * waste / prod(step.sizes[d] for d in tile)


def _straddles(step: Step, bounds: Sequence[Bound], d: str, part: Range) -> float:
    """The share of fold points at which not all positions of a tile along `d` are inside."""
    share = 0.0
    for i, extent in bounds:
        if d not in i.dims:
            continue
        positions = np.zeros((), np.int64)
        for name, count in step.fold_dims:
            if name in i.dims:
                positions = np.add.outer(positions, i.coefficient(name) * np.arange(count))
        first, last = (positions + i.constant + i.coefficient(d) * p for p in (part.begin, part.end - 1))
        outside = np.minimum(first, last) < 0
        outside |= np.maximum(first, last) >= extent * i.divisor
        share = max(share, float(np.mean(outside)))
    return share


def blocks(extent: int, vector: Vector) -> tuple[int, tuple[Block, ...], tuple[Block, ...]]:
    """(end of the part done in whole tiles, blocks of a whole tile, blocks of the last, single tile)."""
    lanes, tile = vector.lanes, vector.lanes * vector.block_count
    whole = extent // tile * tile
    regular = tuple(Block(i * lanes, 0, lanes) for i in range(vector.block_count))
    rest = [Block(i - whole, 0, lanes) for i in range(whole, extent - lanes + 1, lanes)]
    covered = whole + len(rest) * lanes
    if extent < lanes:
        rest = [Block(0, 0, extent)]
    elif covered < extent:
        rest.append(Block(extent - lanes - whole, lanes - (extent - covered), lanes))
    return whole, regular, tuple(rest)


# ---- Packing --------------------------------------------------------------------------------------------


def pack(schedule: Schedule, target: Target) -> Schedule:
    """Steps that would run in vectors but for how an operand lies, each behind a step that packs it."""
    if not target.vector_bytes:
        return schedule
    steps = [new for step in schedule.steps for new in _packed(step, target)]
    return replace(schedule, steps=tuple(steps))


def _packed(step: Step, target: Target) -> list[Step]:
    if vector_of(step, target) is not None or scatter_of(step, target) is not None:
        return [step]
    best: list[Step] = [step]
    cost = step.count * step.fold_count / _MACS_PER_PACKED_ELEMENT
    for d in _dims_in_lanes(step):
        names = _moving_otherwise(step, d)
        reads = [step.reads[n] for n in names]
        if not names or dict(step.dims)[d] < 4 or any(r.fill is not None or r.flat() is None for r in reads):
            continue
        copied = [r for r in reads if not packable(r, step.sizes)]
        element_count = sum(prod(e for _, e in _dims_of(step, r)) for r in copied)
        if element_count < cost:
            cost, best = element_count, _pack_along(step, d, names, target)
    return best


def _dims_of(step: Step, read: Read) -> Dims:
    """Dims that a read moves along, those of the fold first."""
    return tuple((d, e) for d, e in (*step.fold_dims, *step.dims) if d in read.dims())


def _pack_along(step: Step, d: str, names: list[str], target: Target) -> list[Step]:
    """The steps that copy the reads `names` so that `d` comes last, and `step` reading the copies."""
    extent = dict(step.dims)[d]
    padded = max(extent, 8)
    packs, reads = [], dict(step.reads)
    for name in names:
        read = step.reads[name]
        dims = (*((n, e) for n, e in _dims_of(step, read) if n != d), (d, padded))
        if packable(read, step.sizes):
            reads[name] = packed_constant(read, dims, step.sizes, target.vector_bytes)
            continue
        buffer = Buffer(f"{read.buffer.name}.packed", TensorType(tuple(e for _, e in dims)), "activation")
        packs.append(_pack_step(step, read, dims, buffer, extent != padded))
        reads[name] = Read(buffer, buffer.type.shape, tuple(dim(n) for n, _ in dims))
    return [*packs, replace(step, reads=reads)]


def _pack_step(step: Step, read: Read, dims: Dims, buffer: Buffer, padded: bool) -> Step:
    source = replace(read, fill=s.const(0, "float32")) if padded else read
    value = s.var("x", "float32")
    sources = (Source("pack", step.sources[0].name, step.sources[0].where),)
    return Step(dims, (), {"x": source}, (), (Output(buffer, value),), sources)
