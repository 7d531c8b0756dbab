"""Index spaces of steps: whether two are one, and how to say the same over other dims."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import prod

from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, dim, row_major
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.simplify import rewrite
from teeny_embed.graph.step import Buffer, Dims, Read, Step


def is_identity(read: Read, dims: Dims) -> bool:
    """Whether `read` visits its whole buffer in memory order as `dims` run row-major."""
    flat = read.flat()
    if flat is None or prod(read.shape) != prod(e for _, e in dims):
        return False
    expected = Affine()
    for (name, _), stride in zip(dims, row_major(tuple(e for _, e in dims)), strict=True):
        expected = expected + dim(name) * stride
    return flat == expected


def is_pointwise(step: Step, buffer: Buffer) -> bool:
    """Whether `step` is a map that reads `buffer` at its own element only."""
    reads = [r for r in step.reads.values() if r.buffer is buffer]
    return not step.folds and all(is_identity(r, step.dims) for r in reads)


def in_order_of(producer: Step, user: Step, buffer: Buffer) -> tuple[Step, Step] | None:
    """Both with the dims of `producer` in the order in which the map `user` reads its result `buffer`.

    None unless `user` reads every element once, at its own but for the order of the dims. The result is a new
    buffer: nothing else may read it.
    """
    reads = {name: r for name, r in user.reads.items() if r.buffer is buffer}
    flat = next(iter(reads.values())).flat()
    if user.folds or len(producer.outputs) != 1 or len(set(reads.values())) != 1 or flat is None:
        return None
    extents = tuple(e for _, e in producer.dims)
    places = dict(zip(row_major(extents), producer.dims, strict=True))
    order = [(d, places.get(flat.coefficient(d))) for d, e in user.dims if e > 1]
    dims = tuple(found for _, found in order if found is not None)
    shape = tuple(e for _, e in dims)
    permuted = dims != producer.dims and sorted(dims) == sorted(producer.dims)
    if not permuted or flat.constant or shape != tuple(user.sizes[d] for d, _ in order):
        return None
    turned = replace(buffer, type=buffer.type.with_shape(shape))
    read = Read(turned, shape, tuple(dim(d) for d, _ in order))
    return (
        replace(producer, dims=dims, outputs=(replace(producer.outputs[0], buffer=turned),)),
        replace(user, reads={**user.reads, **dict.fromkeys(reads, read)}),
    )


def rename_reads(step: Step, taken: set[str]) -> Step:
    """`step` with reads and accumulators renamed away from `taken`."""
    rename: dict[str, str] = {}
    names = [(n, r.buffer.type.dtype) for n, r in step.reads.items()] + [
        (f.name, f.dtype) for f in step.folds
    ]
    for name, _ in names:
        fresh, number = name, 1
        while fresh in taken or (fresh != name and fresh in dict(names)):
            fresh, number = f"{name}_{number}", number + 1
        if fresh != name:
            rename[name] = fresh
        taken = taken | {fresh}
    scalars = {s.var(n, d): s.var(rename[n], d) for n, d in names if n in rename}
    return rewrite(step, scalars, rename=rename) if rename else step


def common_dims(producer: Step, user: Step) -> Dims | None:
    """Dims of which both output spaces are row-major regroupings; None if their borders cross."""
    cuts = sorted({*_cuts(producer.dims), *_cuts(user.dims)})
    if any(b % a for a, b in itertools.pairwise(cuts)):
        return None
    spans = list(itertools.pairwise(cuts))[::-1]
    taken = {d for d, _ in producer.fold_dims} | {d for d, _ in user.fold_dims}
    named: list[tuple[str, int]] = []
    for low, high in spans:
        name = _spanning(producer.dims, low, high) or _spanning(user.dims, low, high) or "i"
        fresh, number = name, 1
        while fresh in taken:
            fresh, number = f"{name}{number}", number + 1
        taken.add(fresh)
        named.append((fresh, high // low))
    return tuple(named)


def _cuts(dims: Dims) -> list[int]:
    """Element strides at which a dim begins, from 1 to the whole count."""
    cuts = [1]
    for _, extent in reversed(dims):
        cuts.append(cuts[-1] * extent)
    return cuts


def _spanning(dims: Dims, low: int, high: int) -> str | None:
    """The dim from stride `low` to stride `high`, if there is one."""
    for (name, extent), stride in zip(dims, row_major(tuple(e for _, e in dims)), strict=True):
        if stride == low and stride * extent == high:
            return name
    return None


def with_dims(step: Step, dims: Dims) -> Step:
    """`step` over finer `dims`, of which its own output dims are row-major groups."""
    if step.dims == dims:
        return step
    strides = row_major(tuple(e for _, e in dims))
    mapping: dict[str, Affine] = {}
    for (name, extent), stride in zip(step.dims, row_major(tuple(e for _, e in step.dims)), strict=True):
        total = Affine()
        for (part, part_extent), part_stride in zip(dims, strides, strict=True):
            if stride <= part_stride and part_stride * part_extent <= stride * extent and part_extent > 1:
                total = total + dim(part) * (part_stride // stride)
        mapping[name] = total
    scalars = {s.index(name): as_expression(a) for name, a in mapping.items()}
    return replace(rewrite(step, scalars, mapping), dims=dims)


def as_expression(a: Affine) -> Scalar:
    """An affine map as an int32 expression."""
    total: Scalar | None = None
    for name, coefficient in a.terms:
        term = s.index(name) if coefficient == 1 else s.index(name) * coefficient
        total = term if total is None else total + term
    if total is None:
        return s.const(a.constant // a.divisor, "int32")
    if a.constant:
        total = total + a.constant
    return total if a.divisor == 1 else s.divide(total, a.divisor)
