"""Neighbouring dims that every read runs through without a gap become one dim: fewer and longer loops."""

from __future__ import annotations

import itertools
from dataclasses import replace

from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, dim
from teeny_embed.graph.step import Dims, Index, Read, Step


def coalesce(step: Step) -> Step:
    """The same points in the same order, over as few dims as possible."""
    changed = True
    while changed:
        changed = False
        for group in (step.dims, *step.levels):
            for (outer, _), (inner, extent) in itertools.pairwise(group):
                merged = _merge(step, outer, inner, extent)
                if merged is not None:
                    step, changed = merged, True
                    break
            if changed:
                break
    return step


def _merge(step: Step, outer: str, inner: str, extent: int) -> Step | None:
    """`step` with dims `outer` and `inner` (of `extent` elements) as one, or None."""
    roots = [o.value for o in step.outputs] + [f.update for f in step.folds]
    roots += [i for r in step.reads.values() for i in r.index if isinstance(i, s.Scalar)]
    if any(leaf.op == "index" and leaf.attr in (outer, inner) for leaf in s.leaves(*roots)):
        return None
    name = f"{outer}_{inner}"
    reads = {}
    for key, read in step.reads.items():
        merged = _merge_read(read, outer, inner, extent, name)
        if merged is None:
            return None
        reads[key] = merged

    def joined(dims: Dims) -> Dims:
        sizes = dict(dims)
        if outer not in sizes:
            return dims
        return tuple((name, sizes[outer] * extent) if d == outer else (d, e) for d, e in dims if d != inner)

    return replace(step, dims=joined(step.dims), levels=tuple(map(joined, step.levels)), reads=reads)


def _merge_read(read: Read, outer: str, inner: str, extent: int, name: str) -> Read | None:
    axes = [a for a, i in enumerate(read.index) if isinstance(i, Affine) and {outer, inner} & set(i.dims)]
    if not axes:
        return read
    first = read.index[axes[0]]
    assert isinstance(first, Affine)
    if len(axes) == 1:
        return _merge_within(read, axes[0], first, outer, inner, extent, name)
    last = read.index[axes[-1]]
    adjacent = len(axes) == 2 and axes[1] == axes[0] + 1
    whole = last == dim(inner) and read.shape[axes[-1]] == extent
    plain = first.divisor == 1 and first.coefficient(outer) == 1 and inner not in first.dims
    if not (adjacent and whole and plain):
        return None
    rest = first - dim(outer)
    index: tuple[Index, ...] = (*read.index[: axes[0]], rest * extent + dim(name), *read.index[axes[1] + 1 :])
    shape = (*read.shape[: axes[0]], read.shape[axes[0]] * extent, *read.shape[axes[1] + 1 :])
    return replace(read, index=index, shape=shape)


def _merge_within(
    read: Read, axis: int, i: Affine, outer: str, inner: str, extent: int, name: str
) -> Read | None:
    """Both dims in one axis: the outer one's coefficient must be what a whole run of the inner one covers."""
    step = i.coefficient(inner)
    if step == 0 or i.coefficient(outer) != step * extent:
        return None
    terms = tuple(sorted([(d, c) for d, c in i.terms if d not in (outer, inner)] + [(name, step)]))
    merged = Affine(terms, i.constant, i.divisor, i.exact)
    return replace(read, index=(*read.index[:axis], merged, *read.index[axis + 1 :]))
