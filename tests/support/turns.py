"""Replays in which order a nest reads and writes, element by element."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from math import prod

import numpy as np

from support.data import Array
from teeny_embed.graph.affine import Affine
from teeny_embed.graph.step import Buffer, Read, Step
from teeny_embed.kernels.turns import parts


def overwritten(step: Step, tile: Mapping[str, int], operand: Buffer, result: Buffer, gap: int) -> int:
    """How many bytes of `operand` are read too late, if `result` begins `gap` bytes before it."""
    finished, folded = _turns(step, tile)
    last_read = np.full(operand.type.count, -1)
    for reads, turn in ((step.fold_reads(), folded), (step.epilogue_reads(), finished)):
        for read in reads.values():
            if read.buffer is operand:
                positions, inside = _positions(step, read)
                turn = turn.reshape(turn.shape + (1,) * (inside.ndim - turn.ndim))
                np.maximum.at(last_read, positions[inside], np.broadcast_to(turn, inside.shape)[inside])
    read_bytes = np.repeat(last_read, operand.type.size_bytes // operand.type.count)
    written_bytes = np.repeat(finished.reshape(-1), result.type.size_bytes // result.type.count)
    first, end = max(0, gap), min(written_bytes.size, gap + read_bytes.size)
    return int((read_bytes[first - gap : end - gap] > written_bytes[first:end]).sum())


def _turns(step: Step, tile: Mapping[str, int]) -> tuple[Array, Array]:
    """Over the output space: in which turn an element is finished, and the first of its tile's turns."""
    finished, folded = (np.empty([e for _, e in step.dims], np.int64) for _ in range(2))
    number = 0
    for part in parts(step, tile):
        for starts in itertools.product(*(range(r.begin, r.end, r.tile) for r in part.values())):
            own = tuple(slice(s, s + r.tile) for s, r in zip(starts, part.values(), strict=True))
            count = finished[own].size
            folded[own] = number
            finished[own] = np.arange(number, number + count).reshape(finished[own].shape)
            number += count
    return finished, folded


def _positions(step: Step, read: Read) -> tuple[Array, Array]:
    """Over outputs and terms: which element is read, and whether there is one."""
    names = [d for d, _ in (*step.dims, *step.fold_dims)]
    extents = [step.sizes[d] for d in names]
    at = dict(zip(names, np.ix_(*(np.arange(e) for e in extents)), strict=True))
    total, inside = np.zeros(extents, np.int64), np.ones(extents, bool)
    for i, (index, extent) in enumerate(zip(read.index, read.shape, strict=True)):
        assert isinstance(index, Affine)
        numerator = sum((at[d] * c for d, c in index.terms), np.int64(index.constant))
        value = numerator // index.divisor
        inside &= (value >= 0) & (value < extent) & (not index.exact or numerator % index.divisor == 0)
        total += value * prod(read.shape[i + 1 :])
    return total, inside
