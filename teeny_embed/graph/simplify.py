"""Steps to equal steps: dims of one element removed, equal reads merged, folds of one term replaced by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, fixed
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.step import Dims, Fold, Index, Output, Read, Step


def rewrite(
    step: Step,
    scalars: Mapping[Scalar, Scalar],
    dims: Mapping[str, Affine] | None = None,
    rename: Mapping[str, str] | None = None,
) -> Step:
    """`step` with scalar leaves replaced, dims of index maps substituted and reads renamed."""
    dims, rename = dims or {}, rename or {}
    reads = {
        rename.get(n, n): replace(r, index=tuple(_index(i, scalars, dims) for i in r.index))
        for n, r in step.reads.items()
    }
    return replace(
        step,
        reads=reads,
        folds=tuple(rewrite_fold(f, scalars) for f in step.folds),
        outputs=tuple(Output(o.buffer, s.substitute(o.value, scalars)) for o in step.outputs),
    )


def _index(i: Index, scalars: Mapping[Scalar, Scalar], dims: Mapping[str, Affine]) -> Index:
    return s.substitute(i, scalars) if isinstance(i, Scalar) else i.substitute(dims)


def rewrite_fold(fold: Fold, scalars: Mapping[Scalar, Scalar]) -> Fold:
    """`fold` with leaves replaced; its accumulator may be renamed by `scalars` too."""
    name = scalars.get(fold.accumulator, fold.accumulator).attr
    term, absent, operand = (
        s.substitute(x, scalars) if x is not None else None for x in (fold.term, fold.absent, fold.operand)
    )
    update = s.substitute(fold.update, scalars)
    return replace(fold, name=name, update=update, term=term, absent=absent, operand=operand)


def normalize(step: Step, scalars: Mapping[Scalar, Scalar] | None = None) -> Step:
    """The simplest equal step. `scalars` are replacements to make first (constants for reads)."""
    return drop_unused(merge_reads(drop_single_fold(drop_unit_dims(rewrite(step, scalars or {})))))


def drop_unit_dims(step: Step) -> Step:
    """Dims of one element are position 0; axes of one element are not mentioned."""
    step = replace(step, reads={n: _without_unit_axes(r) for n, r in _at_zero(step).reads.items()})
    units = [d for d, e in step.sizes.items() if e == 1]
    if not units:
        return replace(step, levels=tuple(level for level in step.levels if level))
    scalars = {s.index(d): s.const(0, "int32") for d in units}
    rewritten = rewrite(step, scalars, {d: fixed(0) for d in units})

    def keep(dims: Dims) -> Dims:
        return tuple((d, e) for d, e in dims if e != 1)

    levels = tuple(kept for level in step.levels if (kept := keep(level)))
    return replace(rewritten, dims=keep(step.dims), levels=levels)


def _at_zero(step: Step) -> Step:
    """`step` with index maps that see unit dims as position 0."""
    return rewrite(step, {}, {d: fixed(0) for d, e in step.sizes.items() if e == 1})


def _without_unit_axes(read: Read) -> Read:
    kept = [a for a, (i, e) in enumerate(zip(read.index, read.shape, strict=True)) if e != 1 or i != fixed(0)]
    return replace(
        read, index=tuple(read.index[a] for a in kept), shape=tuple(read.shape[a] for a in kept)
    )


def drop_single_fold(step: Step) -> Step:
    """A fold of one term that always exists is that term."""
    if not step.folds or step.levels:
        return step
    for read in step.fold_reads().values():
        index = read.affine() or ()
        if read.fill is None and not all(
            i.in_range(e, step.sizes) for i, e in zip(index, read.shape, strict=True)
        ):
            return replace(step, levels=((("once", 1),),))
    terms = {f.accumulator: _single(f) for f in step.folds}
    outputs = tuple(Output(o.buffer, s.substitute(o.value, terms)) for o in step.outputs)
    return replace(step, folds=(), outputs=outputs, product=step.macs > 0)


def _single(fold: Fold) -> Scalar:
    if fold.term is None:
        return s.substitute(fold.update, {fold.accumulator: fold.start})
    if fold.absent is None:
        return fold.term
    return s.select(fold.absent, fold.start, fold.term)


def merge_reads(step: Step) -> Step:
    """Reads of the same element become one."""
    first: dict[Read, str] = {}
    scalars: dict[Scalar, Scalar] = {}
    kept: dict[str, Read] = {}
    for name, read in step.reads.items():
        if read in first:
            dtype = read.buffer.type.dtype
            scalars[s.var(name, dtype)] = s.var(first[read], dtype)
        else:
            first[read] = name
            kept[name] = read
    return rewrite(replace(step, reads=kept), scalars) if scalars else step


def drop_unused(step: Step) -> Step:
    """Reads and folds that no output uses are left out."""
    needed = {leaf.attr for leaf in s.leaves(*(o.value for o in step.outputs)) if leaf.op == "var"}
    folds: list[Fold] = []
    while True:
        found = [f for f in step.folds if f.name in needed and f not in folds]
        if not found:
            break
        folds += found
        needed |= {leaf.attr for f in found for leaf in s.leaves(f.update) if leaf.op == "var"}
    ordered = tuple(f for f in step.folds if f in folds)
    slim = replace(step, folds=ordered, levels=step.levels if ordered else ())
    used = {**slim.fold_reads(), **slim.epilogue_reads()}
    return replace(slim, reads={n: r for n, r in slim.reads.items() if n in used})
