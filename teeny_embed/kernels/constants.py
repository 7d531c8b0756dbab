"""Constants packed at build time, so that the elements which a kernel loads together lie together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from teeny_embed.graph.affine import dim
from teeny_embed.graph.interval import elements_at
from teeny_embed.graph.step import Buffer, Dims, Read, Step
from teeny_embed.graph.types import TensorType
from teeny_embed.target import Target


def packable(read: Read, sizes: Mapping[str, int]) -> bool:
    """Whether a copy of what `read` reads can be made at build time: a constant, never read outside."""
    index = read.affine()
    if read.buffer.kind != "constant" or read.buffer.value is None or index is None or read.flat() is None:
        return False
    return all(i.in_range(extent, sizes) for i, extent in zip(index, read.shape, strict=True))


def packed_constant(read: Read, dims: Dims, extents: Mapping[str, int], align_bytes: int = 0) -> Read:
    """The constant that `read` reads, row-major over `dims`: at each dim's own position.

    `extents` are those of the step; where `dims` has more of a dim, zeros follow.
    """
    elements = elements_at(read, [name for name, _ in dims], extents)
    packed = np.pad(elements, [(0, e - n) for (_, e), n in zip(dims, elements.shape, strict=True)])
    shape = tuple(e for _, e in dims)
    kind = TensorType(shape, read.buffer.type.dtype)
    name, elements = f"{read.buffer.name}.packed", np.ascontiguousarray(packed)
    buffer = Buffer(name, kind, "constant", elements, align_bytes=align_bytes)
    return Read(buffer, shape, tuple(dim(name) for name, _ in dims))


def pack_constants(step: Step, target: Target) -> Step:
    """The step with its weights such that neighbouring outputs find theirs in neighbouring elements.

    For cores that load several floating-point registers in one instruction.
    """
    if not target.float_registers or target.vector_bytes or any(f.term is None for f in step.folds):
        return step
    reads = dict(step.reads)
    for name, read in step.fold_reads().items():
        moving = [(d, e) for d, e in step.dims if d in read.dims()]
        if not moving or not packable(read, step.sizes) or read.buffer.type.dtype != "float32":
            continue
        flat = read.flat()
        if flat is not None and flat.coefficient(moving[-1][0]) != 1:
            inner = [(d, e) for d, e in step.fold_dims if d in read.dims()]
            reads[name] = packed_constant(read, (*moving[:-1], *inner, moving[-1]), step.sizes)
    return replace(step, reads=reads)
