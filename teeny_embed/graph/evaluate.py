"""Ordered evaluation of steps in NumPy: the reference that every emitted program is compared with.

Two routines add terms, and both add them in ascending order to one running value per output:

    _fold_by_point   for each fold point one vectorised update over all outputs
    _fold_by_chunk   where the fold is long and the outputs are few: the terms of many points at once, then
                     np.add.reduce along axis 0 with the running value as row 0. That reduction is
                     sequential for two columns or more; a single column would be summed pairwise, so
                     np.add.accumulate takes its place.

Leaving an absent term out and adding +0 give the same bits, because a running value that started at +0 is
never -0; so the second routine adds 0 where a term is absent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, row_major
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.step import Buffer, Read, Schedule, Step, in_order

Array = npt.NDArray[Any]
Environment = dict[Buffer, Array]
Fixed = Mapping[str, int]
Box = dict[str, tuple[int, int, int]]
"""Per free dim: first position, count, stride."""

_CHUNK_OUTPUTS = 2048  # above this many outputs, one update per fold point is faster
_CHUNK_ELEMENTS = 1 << 20


def run(schedule: Schedule, env: Environment) -> None:
    """Runs every step; then assigns. `env` holds inputs, constants and variables and gains the rest."""
    for step in schedule.steps:
        run_step(step, env)
    values = [env[value].copy() for _, value in schedule.assigns]
    for (variable, _), value in zip(schedule.assigns, values, strict=True):
        env[variable] = value


def run_step(step: Step, env: Environment) -> None:
    """Writes the step's outputs into `env`."""
    with np.errstate(all="ignore"):
        _plan(step).run(env)


class _StepPlan:
    """A step with everything worked out that does not depend on values."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.shape = tuple(e for _, e in step.dims)
        self.out_sizes = dict(step.dims)
        self.fold_reads = step.fold_reads()
        self.epilogue_reads = step.epilogue_reads()
        self.constraints = [
            (i, extent)
            for r in self.fold_reads.values()
            if r.fill is None
            for i, extent in zip(r.index, r.shape, strict=True)
            if isinstance(i, Affine) and not i.in_range(extent, step.sizes)
        ]
        sums = all(f.term is not None for f in step.folds)
        inner_count = int(np.prod([e for _, e in step.levels[-1]])) if step.levels else 0
        self.chunked = sums and inner_count >= 8 and step.count <= _CHUNK_OUTPUTS
        self.points: dict[tuple[int, ...], _Point | None] = {}
        self.chunks: dict[tuple[int, ...], _Chunk] = {}
        self.out_box: Box = {d: (0, e, 1) for d, e in step.dims}
        self.epilogue = {n: _View(n, r, {}, self.out_box) for n, r in self.epilogue_reads.items()}

    def run(self, env: Environment) -> None:
        leaves: dict[Scalar, Any] = {}
        if self.step.folds:
            leaves.update(self._fold(0, {}, env))
        leaves.update(_index_leaves(self.out_box, {}))
        _load(self.epilogue, leaves, env)
        memo: dict[Scalar, Any] = {}
        results = [s.evaluate(o.value, leaves, memo) for o in self.step.outputs]
        for output, value in zip(self.step.outputs, results, strict=True):
            full = np.broadcast_to(value, self.shape).reshape(output.buffer.type.shape)
            env[output.buffer] = np.ascontiguousarray(full).reshape(output.buffer.type.shape)

    def _fold(self, level: int, fixed: Fixed, env: Environment) -> dict[Scalar, Array]:
        folds, dims = self.step.folds, self.step.levels[level]
        total = {f.accumulator: np.full(self.shape, f.start.attr, f.dtype) for f in folds}
        if level + 1 == len(self.step.levels):
            run_level = self._fold_by_chunk if self.chunked else self._fold_by_point
            run_level(total, fixed, env)
            return total
        for point in _points(dims):
            for accumulator, part in self._fold(level + 1, {**fixed, **point}, env).items():
                np.add(total[accumulator], part, out=total[accumulator])
        return total

    def _fold_by_point(self, total: dict[Scalar, Array], fixed: Fixed, env: Environment) -> None:
        for point in _points(self.step.levels[-1]):
            everything = {**fixed, **point}
            key = tuple(everything.values())
            if key not in self.points:
                box = _box(self.constraints, everything, self.out_sizes)
                self.points[key] = None if box is None else _Point(self, everything, box)
            found = self.points[key]
            if found is not None:
                found.update(total, env)

    def _fold_by_chunk(self, total: dict[Scalar, Array], fixed: Fixed, env: Environment) -> None:
        key = tuple(fixed.values())
        chunk = self.chunks.get(key)
        if chunk is None:
            chunk = _Chunk(self, fixed)
            if chunk.element_count * max(1, len(self.chunks)) <= 1 << 23:
                self.chunks[key] = chunk
        chunk.update(total, env)


@lru_cache(maxsize=1024)
def _plan(step: Step) -> _StepPlan:
    return _StepPlan(step)


class _Point:
    """One point of the fold: the block of outputs whose term exists there, and views of the reads."""

    def __init__(self, plan: _StepPlan, fixed: Fixed, box: Box) -> None:
        self.folds = plan.step.folds
        self.views = {n: _View(n, r, fixed, box) for n, r in plan.fold_reads.items()}
        self.leaves = _index_leaves(box, fixed)
        slices = [slice(f, f + (n - 1) * k + 1, k) for f, n, k in (box[d] for d in plan.out_sizes)]
        self.block: tuple[Any, ...] = (..., *slices)

    def update(self, total: dict[Scalar, Array], env: Environment) -> None:
        leaves = dict(self.leaves)
        _load(self.views, leaves, env)
        blocks = {a: t[self.block] for a, t in total.items()}
        leaves.update(blocks)
        memo: dict[Scalar, Any] = {}
        updates = []
        for fold in self.folds:
            if fold.term is None:
                updates.append(s.evaluate(fold.update, leaves, memo))
                continue
            updates.append(s.evaluate(fold.term, leaves, memo))
        for fold, value in zip(self.folds, updates, strict=True):
            block = blocks[fold.accumulator]
            if fold.term is None:
                block[...] = value
            elif fold.absent is None:
                np.add(block, value, out=block)
            else:
                absent = s.evaluate(fold.absent, leaves, memo)
                np.add(block, value, out=block, where=~absent if np.any(absent) else True)


class _Chunk:
    """All points of the innermost level at once; axis 0 runs over them in ascending order."""

    def __init__(self, plan: _StepPlan, fixed: Fixed) -> None:
        step = plan.step
        inner = step.levels[-1]
        self.folds, self.shape = step.folds, plan.shape
        self.dims = (*inner, *step.dims)
        box: Box = {d: (0, e, 1) for d, e in self.dims}
        self.views = {n: _View(n, r, fixed, box, gather=True) for n, r in plan.fold_reads.items()}
        self.leaves = _index_leaves(box, fixed)
        self.row_count = int(np.prod([e for _, e in inner]))
        self.element_count = self.row_count * int(np.prod(plan.shape)) * max(1, len(self.views))
        masks = [_mask(i, extent, fixed, box) for i, extent in plan.constraints]
        self.exists = np.logical_and.reduce(np.broadcast_arrays(*masks)) if masks else None

    def update(self, total: dict[Scalar, Array], env: Environment) -> None:
        leaves = dict(self.leaves)
        _load(self.views, leaves, env)
        memo: dict[Scalar, Any] = {}
        sizes = tuple(e for _, e in self.dims)
        for fold in self.folds:
            assert fold.term is not None
            terms = np.broadcast_to(s.evaluate(fold.term, leaves, memo), sizes)
            zero = np.zeros((), fold.dtype)
            if fold.absent is not None:
                terms = np.where(s.evaluate(fold.absent, leaves, memo), zero, terms)
            if self.exists is not None:
                terms = np.where(self.exists, terms, zero)
            running = total[fold.accumulator]
            rows = np.concatenate([running.reshape(1, -1), terms.reshape(self.row_count, -1)])
            running[...] = sum_rows(rows).reshape(running.shape)


def sum_rows(rows: Array) -> Array:
    """The sum of the rows of a contiguous matrix, added one after the other."""
    if rows.shape[1] == 1:
        return np.asarray(np.add.accumulate(rows, axis=0, dtype=rows.dtype)[-1])
    return np.asarray(np.add.reduce(rows, axis=0, dtype=rows.dtype))


class _View:
    """How to get a read's values over a box of free dims: a strided view where possible, else a gather."""

    def __init__(self, name: str, read: Read, fixed: Fixed, box: Box, gather: bool = False) -> None:
        self.read, self.box, self.fixed = read, box, fixed
        self.variable = s.var(name, read.buffer.type.dtype)
        self.strided = None if gather else _strided(read, fixed, box)
        self.positions: Array | None = None
        self.outside: Array | None = None
        if self.strided is None and read.affine() is not None:
            self._locate({})

    def _locate(self, leaves: Mapping[Scalar, Any]) -> None:
        """Flat element positions over the box, clipped into the tensor, and which lie outside."""
        flat: Any = np.zeros((), np.int64)
        outside: Any = None
        for i, extent, stride in zip(
            self.read.index, self.read.shape, row_major(self.read.shape), strict=True
        ):
            if isinstance(i, Scalar):
                at = np.asarray(s.evaluate(i, leaves), np.int64)
            else:
                numerator = _numerator(i, self.fixed, self.box)
                at = numerator // i.divisor
            wrong = (at < 0) | (at >= extent)
            if isinstance(i, Affine) and i.exact:
                wrong = wrong | (numerator % i.divisor != 0)
            if np.any(wrong):
                outside = wrong if outside is None else outside | wrong
            flat = flat + np.clip(at, 0, extent - 1) * stride
        self.positions, self.outside = flat, outside

    def load(self, env: Environment, leaves: Mapping[Scalar, Any]) -> Array:
        base = env[self.read.buffer]
        if self.strided is not None:
            shape, offset, strides = self.strided
            return np.ndarray(
                shape, base.dtype, base, offset * base.itemsize, [k * base.itemsize for k in strides]
            )
        if self.read.affine() is None:
            self._locate(leaves)
        values = base.reshape(-1)[self.positions]
        if self.outside is not None and self.read.fill is not None:
            values = np.where(self.outside, np.array(self.read.fill.attr, values.dtype), values)
        return values


def _load(views: Mapping[str, _View], leaves: dict[Scalar, Any], env: Environment) -> None:
    """Adds the values of reads to `leaves`; gathers after what they use."""
    for name in in_order({name: view.read for name, view in views.items()}):
        leaves[views[name].variable] = views[name].load(env, leaves)


def _points(dims: tuple[tuple[str, int], ...]) -> Iterator[dict[str, int]]:
    names = [d for d, _ in dims]
    for position in itertools.product(*(range(e) for _, e in dims)):
        yield dict(zip(names, position, strict=True))


def _index_leaves(box: Box, fixed: Fixed) -> dict[Scalar, Any]:
    """Positions along every dim as int32, shaped to broadcast over the box."""
    leaves: dict[Scalar, Any] = {s.index(d): np.int32(v) for d, v in fixed.items()}
    for d in box:
        leaves[s.index(d)] = _positions(d, box).astype(np.int32)
    return leaves


def _positions(d: str, box: Box) -> Array:
    names = list(box)
    first, count, stride = box[d]
    shape = [1] * len(names)
    shape[names.index(d)] = count
    return (first + stride * np.arange(count)).reshape(shape)


def _numerator(i: Affine, fixed: Fixed, box: Box) -> Any:
    value: Any = np.int64(i.constant)
    for d, c in i.terms:
        value = value + c * (fixed[d] if d in fixed else _positions(d, box))
    return value


def _mask(i: Affine, extent: int, fixed: Fixed, box: Box) -> Any:
    """Where the element exists."""
    numerator = _numerator(i, fixed, box)
    exists = (numerator >= 0) & (numerator < extent * i.divisor)
    return exists & (numerator % i.divisor == 0) if i.exact else exists


def _box(constraints: list[tuple[Affine, int]], fixed: Fixed, sizes: Mapping[str, int]) -> Box | None:
    """The outputs whose term exists at one fold point, as a box with strides; None if there is none."""
    box: Box = {d: (0, e, 1) for d, e in sizes.items()}
    for i, extent in constraints:
        constant = i.constant + sum(c * fixed[d] for d, c in i.terms if d in fixed)
        free = [(d, c) for d, c in i.terms if d not in fixed]
        assert len(free) <= 1, f"bounds of {i} involve several output dims"
        if not free:
            if not (0 <= constant < extent * i.divisor) or (i.exact and constant % i.divisor):
                return None
            continue
        (d, c) = free[0]
        found = [
            p
            for p in range(box[d][0], box[d][0] + box[d][1] * box[d][2], box[d][2])
            if 0 <= c * p + constant < extent * i.divisor and not (i.exact and (c * p + constant) % i.divisor)
        ]
        if not found:
            return None
        stride = found[1] - found[0] if len(found) > 1 else 1
        box[d] = (found[0], len(found), stride)
    return box


def _strided(read: Read, fixed: Fixed, box: Box) -> tuple[tuple[int, ...], int, tuple[int, ...]] | None:
    """(shape, element offset, element strides) of a read over a box, or None where it takes a gather."""
    index = read.affine()
    if index is None:
        return None
    offset, strides = 0, dict.fromkeys(box, 0)
    for i, extent, axis_stride in zip(index, read.shape, row_major(read.shape), strict=True):
        constant = i.constant + sum(c * fixed[d] for d, c in i.terms if d in fixed)
        free = [(d, c) for d, c in i.terms if d not in fixed]
        first = constant + sum(c * box[d][0] for d, c in free)
        if i.divisor != 1 and free and any((c * box[d][2]) % i.divisor for d, c in free if box[d][1] > 1):
            return None
        if (i.divisor != 1 and len(free) > 1) or (i.exact and first % i.divisor):
            return None
        last = first + sum(c * box[d][2] * (box[d][1] - 1) for d, c in free)
        if not (0 <= first // i.divisor < extent and 0 <= last // i.divisor < extent):
            return None
        offset += first // i.divisor * axis_stride
        for d, c in free:
            strides[d] += c * box[d][2] // i.divisor * axis_stride if box[d][1] > 1 else 0
    shape = tuple(n if strides[d] else 1 for d, (_, n, _) in box.items())
    return shape, offset, tuple(strides.values())
