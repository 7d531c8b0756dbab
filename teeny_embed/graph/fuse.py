"""Steps to fewer steps. No bit changes: the same operations run in the same order, in one pass over memory.

    epilogue    a map that reads a step's result at the same element joins that step; a map that alone reads
                it in another order of its dims has the step run in that order
    siblings    folds over the same index space and operand become one fold with several accumulators
    prologue    a map without reads, or one whose every element one step uses once, moves into its reader

A fusion must leave the steps acyclic under all orders that hold: data; readers of a variable before the
writer of its next version; and what an entry point checks before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, NotAffineError, dim
from teeny_embed.graph.dependencies import Dependencies
from teeny_embed.graph.narrow import narrow
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.simplify import normalize, rewrite
from teeny_embed.graph.spaces import (
    as_expression,
    common_dims,
    in_order_of,
    is_identity,
    is_pointwise,
    rename_reads,
    with_dims,
)
from teeny_embed.graph.step import Buffer, Dims, Read, Schedule, Step

LONGEST = 128  # operations of one step's epilogue: beyond that neither people nor compilers gain


def fuse(schedule: Schedule) -> Schedule:
    """The fused schedule, its steps in a valid order."""
    work = Dependencies(schedule)
    for widening in (False, True):
        changed = True
        while changed:
            changed = any([_epilogues(work, widening), _siblings(work), _prologues(work)])
    return narrow(replace(schedule, steps=tuple(work.ordered())))


# ---- Epilogue ------------------------------------------------------------------------------------------


def _epilogues(work: Dependencies, widening: bool) -> bool:
    """`widening`: also maps that only make their operand larger, which their own readers should rather do."""
    changed = False
    for step in work.steps():
        while step in work.rank:
            fused = _epilogue_of(work, step, widening)
            if fused is None:
                break
            step, changed = fused, True
    return changed


def _epilogue_of(work: Dependencies, producer: Step, widening: bool) -> Step | None:
    """`producer` joined with one map that reads it, or None."""
    for buffer in producer.buffers_written():
        users = list(work.users.get(buffer, ()))
        alone = len(users) == 1 and buffer not in work.kept
        turned = in_order_of(producer, users[0], buffer) if alone else None
        if turned is None and not all(is_pointwise(u, buffer) for u in users):
            continue
        for user in users:
            if _widens(user) and not widening:
                continue
            first, second = turned or (producer, user)
            if not all(is_pointwise(second, other) for other in first.buffers_written()):
                continue
            if not work.path_around(producer, user) and not _overwrites_what_it_folds(work, first, second):
                fused = join(first, second, keep=work.kept | _used_by_others(work, producer, user))
                if fused is not None:
                    work.replace((producer, user), fused)
                    return fused
    return None


def _widens(user: Step) -> bool:
    """Whether a map of integers reads one tensor and writes more bytes than that has."""
    operands = [b for b in user.buffers_read() if b.kind != "constant"]
    if len(operands) != 1 or not operands[0].type.dtype.startswith(("int", "uint")):
        return False
    return sum(b.type.size_bytes for b in user.buffers_written()) > operands[0].type.size_bytes


def _used_by_others(work: Dependencies, producer: Step, user: Step) -> set[Buffer]:
    return {b for b in producer.buffers_written() if any(u is not user for u in work.users.get(b, ()))}


def _overwrites_what_it_folds(work: Dependencies, producer: Step, user: Step) -> bool:
    """Whether `user` makes the next version of a variable that `producer` reads at other elements."""
    elsewhere = {r.buffer for r in producer.fold_reads().values()}
    elsewhere |= {r.buffer for r in producer.epilogue_reads().values() if not is_identity(r, producer.dims)}
    return any(work.variable_of.get(b) in elsewhere for b in user.buffers_written())


def join(producer: Step, user: Step, keep: set[Buffer]) -> Step | None:
    """One step that computes both. `keep` are buffers still needed in memory."""
    common = common_dims(producer, user)
    if common is None:
        return None
    try:
        first, second = (with_dims(step, common) for step in (producer, user))
    except NotAffineError:
        return None
    second = rename_reads(second, set(first.reads))
    values = {o.buffer: o.value for o in first.outputs}
    scalars = {
        s.var(n, r.buffer.type.dtype): values[r.buffer] for n, r in second.reads.items() if r.buffer in values
    }
    second = replace(second, reads={n: r for n, r in second.reads.items() if r.buffer not in values})
    second = rewrite(second, scalars)
    outputs = [*(o for o in first.outputs if o.buffer in keep), *second.outputs]
    if _is_long([o.value for o in outputs]):
        return None
    return normalize(
        Step(
            dims=first.dims,
            levels=first.levels,
            reads={**first.reads, **second.reads},
            folds=first.folds,
            outputs=tuple(outputs),
            sources=tuple(dict.fromkeys([*producer.sources, *user.sources])),
            product=first.product or second.product,
        )
    )


# ---- Siblings ------------------------------------------------------------------------------------------


def _siblings(work: Dependencies) -> bool:
    changed = False
    groups: dict[tuple[object, ...], Step] = {}
    for step in work.steps():
        if not step.folds or step.macs:
            continue
        key = (tuple(e for _, e in step.dims), tuple(tuple(e for _, e in level) for level in step.levels))
        for read in list(step.fold_reads().values()):
            place = (*key, read.buffer)
            other = groups.get(place)
            if (
                other is not None
                and other in work.rank
                and other is not step
                and not work.connected(other, step)
            ):
                merged = merge_folds(other, step)
                if merged is not None:
                    work.replace((other, step), merged)
                    step, changed = merged, True
            groups[place] = step
    return changed


def merge_folds(first: Step, second: Step) -> Step | None:
    """Two folds over one index space as one, if they read the same elements."""
    names = [d for d, _ in (*second.dims, *second.fold_dims)]
    wanted = [d for d, _ in (*first.dims, *first.fold_dims)]
    mapping = {a: dim(b) for a, b in zip(names, wanted, strict=True)}
    renamed = rewrite(second, {s.index(a): s.index(b) for a, b in zip(names, wanted, strict=True)}, mapping)
    shared = set(first.fold_reads().values()) & set(renamed.fold_reads().values())
    if not shared:
        return None
    renamed = rename_reads(renamed, {*first.reads, *(f.name for f in first.folds)})
    merged = Step(
        first.dims, first.levels, {**first.reads, **renamed.reads}, (*first.folds, *renamed.folds),
        (*first.outputs, *renamed.outputs), tuple(dict.fromkeys([*first.sources, *second.sources])),
    )  # fmt: skip
    return normalize(share_folds(normalize(merged)))


def share_folds(step: Step) -> Step:
    """Accumulators that are updated alike become one; later ones may depend on earlier ones."""
    folds = list(step.folds)
    scalars: dict[Scalar, Scalar] = {}
    for position, fold in enumerate(folds):
        for earlier in folds[:position]:
            alike = {fold.accumulator: earlier.accumulator, **scalars}
            if earlier.start is fold.start and s.substitute(fold.update, alike) is s.substitute(
                earlier.update, scalars
            ):
                scalars[fold.accumulator] = earlier.accumulator
                break
    if not scalars:
        return step
    kept = replace(step, folds=tuple(f for f in folds if f.accumulator not in scalars))
    return rewrite(kept, scalars)


# ---- Prologue ------------------------------------------------------------------------------------------


def _prologues(work: Dependencies) -> bool:
    changed = False
    for producer in work.steps():
        if producer not in work.rank or producer.folds or len(producer.outputs) != 1:
            continue
        buffer = producer.outputs[0].buffer
        users = list(work.users.get(buffer, ()))
        if buffer in work.kept or not users:
            continue
        wanted = not producer.reads or (len(users) == 1 and _uses_each_once(users[0], buffer))
        late = any(_writes_what_is_read(work, u, producer) or _late(work, u, producer) for u in users)
        if wanted and not late:
            inlined = [inline(producer, user) for user in users]
            for user, new in zip(users, inlined, strict=True):
                if new is not None:
                    work.replace((user,), new)
                    changed = True
            if all(new is not None for new in inlined):
                work.remove(producer)
    return changed


def _writes_what_is_read(work: Dependencies, user: Step, producer: Step) -> bool:
    """Whether `user`, computing `producer` itself, would overwrite a variable before it is read elsewhere."""
    buffer = producer.outputs[0].buffer
    if is_pointwise(producer, buffer) and buffer not in {r.buffer for r in user.fold_reads().values()}:
        elsewhere = {r.buffer for r in producer.reads.values() if not is_identity(r, producer.dims)}
    else:
        elsewhere = set(producer.buffers_read())
    return any(work.variable_of.get(b) in elsewhere for b in user.buffers_written())


def _late(work: Dependencies, user: Step, producer: Step) -> bool:
    """Whether a variable that `producer` reads has its next version by the time that `user` runs."""
    values = [work.value_of[b] for b in producer.buffers_read() if b in work.value_of]
    writers = dict.fromkeys(work.producer[v] for v in values if v in work.producer)
    return any(work.precedes(writer, user) for writer in writers if writer is not user)


def _uses_each_once(user: Step, buffer: Buffer) -> bool:
    """Whether `user` is a fold that reads every element of `buffer` once, within it or in its epilogue."""
    reads = [r for r in user.fold_reads().values() if r.buffer is buffer]
    finishing = [r for r in user.epilogue_reads().values() if r.buffer is buffer]
    if not reads:
        return all(is_identity(r, user.dims) for r in finishing)
    if len(reads) != 1 or finishing:
        return False
    flat, sizes = reads[0].flat(), user.sizes
    if flat is None or prod(sizes.values()) != buffer.type.count:
        return False
    expected = 1
    for name, coefficient in sorted(flat.terms, key=lambda term: abs(term[1])):
        if abs(coefficient) != expected:
            return False
        expected *= sizes[name]
    return expected == buffer.type.count and all(
        i.in_range(e, sizes)
        for i, e in zip(reads[0].index, reads[0].shape, strict=True)
        if isinstance(i, Affine)
    )


def inline(producer: Step, user: Step) -> Step | None:
    """`user` computing what it read from the map `producer` itself, or None where the maps do not compose."""
    buffer = producer.outputs[0].buffer
    result = user
    for name, read in user.reads.items():
        if read.buffer is not buffer:
            continue
        mapping = _positions(producer.dims, read)
        if mapping is None or not _always_inside(read, user):
            return None
        try:
            scalars = {s.index(d): as_expression(a) for d, a in mapping.items()}
            seen = rewrite(producer, scalars, mapping)
        except NotAffineError:
            return None
        seen = rename_reads(seen, {*result.reads, *(f.name for f in result.folds)})
        value = {s.var(name, buffer.type.dtype): seen.outputs[0].value}
        reads = {n: r for n, r in result.reads.items() if n != name}
        result = rewrite(replace(result, reads=reads), value)
        result = replace(result, reads={**result.reads, **seen.reads})
    if _is_long([*(f.update for f in result.folds), *(o.value for o in result.outputs)]):
        return None
    return normalize(replace(result, sources=tuple(dict.fromkeys([*producer.sources, *user.sources]))))


def _is_long(values: list[Scalar]) -> bool:
    return sum(1 for _ in s.walk(values)) > LONGEST


def _always_inside(read: Read, user: Step) -> bool:
    return all(
        isinstance(i, Affine) and i.in_range(e, user.sizes)
        for i, e in zip(read.index, read.shape, strict=True)
    )


def _positions(dims: Dims, read: Read) -> Mapping[str, Affine] | None:
    """Where along each of the producer's `dims` a read looks."""
    axes = [(i, e) for i, e in zip(read.index, read.shape, strict=True) if e != 1]
    if [e for _, e in axes] == [e for _, e in dims]:
        return {name: i for (name, _), (i, _) in zip(dims, axes, strict=True) if isinstance(i, Affine)}
    flat = read.flat()
    if len(dims) == 1 and flat is not None:
        return {dims[0][0]: flat}
    return {} if not dims else None
