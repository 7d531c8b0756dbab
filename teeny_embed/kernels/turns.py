"""In which order kernels read operands and write results, and how near to each other these may lie.

A kernel works in turns. A result that begins a *distance* before an operand which dies in the step
overwrites only what was read in earlier turns. The distance follows from the order alone; it may be 0, and
far less than the result's size. Where channels are computed one after another, it must be a multiple of the
pixels' size, so that a channel overwrites nothing but itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from teeny_embed.graph.affine import Affine, row_major
from teeny_embed.graph.step import Buffer, Read, Step
from teeny_embed.kernels.tiles import Range, between_seams, fold_bounds, ranges
from teeny_embed.kernels.vectors import Vector, blocks

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Turns:
    """Turn by turn, in elements: `reads`, the first one read of an operand, `writes`, the end of what is
    written of the result. In one turn all is read before anything is written, if only the distance is a
    multiple of `multiple`."""

    reads: Positions
    writes: Positions
    multiple: int = 1

    def distance(self, operand_bytes: int, result_bytes: int) -> Distance:
        """How far before an operand a result must begin at least; arguments are bytes of their elements."""
        later = np.minimum.accumulate(self.reads[::-1])[::-1][1:] * operand_bytes
        written = np.maximum.accumulate(self.writes)[:-1] * result_bytes
        multiple = self.multiple * operand_bytes
        least = int((written - later).max(initial=0))
        return Distance(-(-least // multiple) * multiple, multiple)


class Distance(NamedTuple):
    """How many bytes one thing must at least begin before another; more are fine if they are a multiple."""

    byte_count: int
    multiple: int = 1


def turns(reads: Any, writes: Any, multiple: int = 1) -> Turns:
    """Turns of whatever NumPy takes for arrays of integers."""
    return Turns(np.asarray(reads, np.int64).reshape(-1), np.asarray(writes, np.int64).reshape(-1), multiple)


# ---- The nest -------------------------------------------------------------------------------------------


def parts(step: Step, tile: Mapping[str, int], vector: Vector | None = None) -> list[dict[str, Range]]:
    """The parts of the output space in the order in which a nest runs through them, each by its dims."""
    found = [_ranges(step, tile, vector, d, extent) for d, extent in step.dims]
    names = [d for d, _ in step.dims]
    return [dict(zip(names, part, strict=True)) for part in itertools.product(*found)]


def _ranges(step: Step, tile: Mapping[str, int], vector: Vector | None, d: str, extent: int) -> list[Range]:
    if vector is None or vector.dim != d:
        size = min(extent, tile.get(d, 1))
        return between_seams(step, d, size) or ranges(step, fold_bounds(step), d, size)
    whole, regular, rest = blocks(extent, vector)
    found = [Range(0, whole, vector.lanes * vector.block_count, True, regular)] if whole else []
    return found + ([Range(whole, extent, extent - whole, True, rest)] if rest else [])


def nest_turns(step: Step, tile: Mapping[str, int], operand: Buffer) -> Turns | None:
    """Of a nest without vectors, a turn for each output; None where a position of the operand is computed.

    Folds of all outputs of a tile come before its first output is finished; epilogues read output by output.
    """
    folds, epilogues = (
        [r for r in reads.values() if r.buffer is operand]
        for reads in (step.fold_reads(), step.epilogue_reads())
    )
    if not folds + epilogues or any(r.affine() is None for r in folds + epilogues):
        return None
    strides = row_major(tuple(e for _, e in step.dims))
    first, end = [], []
    for part in parts(step, tile):
        tiles = np.meshgrid(*(np.arange(r.begin, r.end, r.tile) for r in part.values()), indexing="ij")
        within = np.meshgrid(*(np.arange(r.tile) for r in part.values()), indexing="ij")
        low = {d: t.reshape(-1, 1) for d, t in zip(part, tiles, strict=True)}
        high = {d: t + part[d].tile - 1 for d, t in low.items()}
        at = {d: low[d] + w.reshape(1, -1) for d, w in zip(part, within, strict=True)}
        zero = np.zeros(next(iter(at.values())).shape if at else (1, 1), np.int64)
        reads = np.minimum.reduce([zero + _UNREAD, *(zero + _lowest(step, r, at, at) for r in epilogues)])
        for r in folds:
            reads[:, :1] = np.minimum(reads[:, :1], _lowest(step, r, low, high))
        first.append(reads.reshape(-1))
        end.append(sum((at[d] * n for d, n in zip(part, strides, strict=True)), zero + 1).reshape(-1))
    return turns(np.concatenate(first), np.concatenate(end))


_UNREAD = 1 << 40
"""More than the elements of any tensor."""


def _lowest(step: Step, read: Read, low: Any, high: Any) -> Any:
    """No element before these is read for the outputs from `low` to `high`."""
    total: Any = 0
    for index, stride in zip(read.index, row_major(read.shape), strict=True):
        assert isinstance(index, Affine)
        value: Any = index.constant
        for d, c in index.terms:
            if d in low:
                value = value + c * (low[d] if c > 0 else high[d])
            else:
                value = value + min(0, c * (step.sizes[d] - 1))
        total = total + np.maximum(value // index.divisor, 0) * stride
    return total
