"""Steps: a fold over an index space, then an epilogue of scalar expressions.

    for each point of dims:
        acc = start;  for each point of the fold levels: acc = update(acc, reads)
        output[point] = value(acc, reads)

Everything a program computes is a list of these. What an operator contributes is a `Form`: the same,
with its operands numbered instead of named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, dim, row_major
from teeny_embed.graph.node import Variable
from teeny_embed.graph.quantization import Quantization
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.types import TensorType

Index = Affine | Scalar
"""Where to read along one axis: an affine map, or an int32 expression of other reads (a gather)."""

Dims = tuple[tuple[str, int], ...]


@dataclass(eq=False)
class Buffer:
    """A tensor in memory, row-major. `kind` is input, output, constant, variable, activation or scratch."""

    name: str
    type: TensorType
    kind: str
    value: npt.NDArray[Any] | None = None
    variable: Variable | None = None
    origin: str = ""
    """Path of the node that an output was computed by; its name is what the caller knows."""
    align_bytes: int = 0
    """Of a constant that is loaded in vectors; 0 where its elements' own alignment is enough."""
    quantization: Quantization | None = None
    """What the integers of an input or output stand for, where it is known."""

    def __repr__(self) -> str:
        return f"{self.name}:{self.type}"


@dataclass(frozen=True)
class Fold:
    """One accumulator. A sum also states its `term` and when that is `absent`; `update` follows from them."""

    name: str
    start: Scalar
    update: Scalar
    term: Scalar | None = None
    absent: Scalar | None = None
    kind: str = "sum"
    """sum, max or argmax, for people."""
    operand: Scalar | None = None
    """What a max or argmax is taken of."""
    bounded: bool = False
    """Whether an integer sum must not wrap: `interval.check_accumulators` refuses one that could."""

    @property
    def dtype(self) -> str:
        return self.start.dtype

    @property
    def accumulator(self) -> Scalar:
        return s.var(self.name, self.dtype)


def sum_fold(name: str, term: Scalar, absent: Scalar | None = None, bounded: bool = False) -> Fold:
    """acc + term, from +0; `absent` (bool) leaves a term out.

    Integers wrap, unless `bounded`, so their order does not matter, and a sum of them is stated by its update
    alone.
    """
    accumulator = s.var(name, term.dtype)
    total = s.add(accumulator, term)
    update = total if absent is None else s.select(absent, accumulator, total)
    if not term.dtype.startswith("float"):
        return Fold(name, s.const(0, term.dtype), update, bounded=bounded)
    return Fold(name, s.const(0, term.dtype), update, term, absent)


def max_fold(name: str, term: Scalar) -> Fold:
    """The largest term; NaN if any term is NaN."""
    accumulator = s.var(name, term.dtype)
    return Fold(
        name,
        lowest(term.dtype),
        choose_larger(term, accumulator, term, accumulator),
        kind="max",
        operand=term,
    )


def argmax_folds(best: str, position: str, term: Scalar, where: Scalar) -> tuple[Fold, Fold]:
    """The largest term (or first NaN) and the int32 `where` at which it stood first."""
    running = max_fold(best, term)
    place = s.var(position, where.dtype)
    found = choose_larger(term, running.accumulator, where, place)
    return running, Fold(position, s.const(0, where.dtype), found, kind="argmax", operand=term)


def choose_larger(term: Scalar, best: Scalar, new: Scalar, old: Scalar) -> Scalar:
    """`new` where `term` replaces `best` as maximum (it is larger, or a NaN and `best` is none), else `old`.

    Two choices instead of a combined condition: compilers make them without branches.
    """
    chosen = s.select(s.less_equal(term, best), old, new)
    return s.select(s.is_nan(best), old, chosen) if term.dtype.startswith("float") else chosen


def lowest(dtype: str) -> Scalar:
    """-infinity, or the smallest integer of `dtype`."""
    if dtype.startswith("float"):
        return s.const(float("-inf"), dtype)
    return s.const(False if dtype == "bool" else int(np.iinfo(dtype).min), dtype)


@dataclass(frozen=True)
class Operand:
    """How a form reads operand `number`: as a row-major tensor of `shape`, at `index`.

    Outside the tensor the value is `fill`; without `fill` a fold's term is absent there.
    """

    number: int
    index: tuple[Index, ...]
    shape: tuple[int, ...] | None = None
    fill: Scalar | None = None


@dataclass(frozen=True)
class Form:
    """What one operator computes. The result is row-major over `dims`; names of reads are those of vars."""

    dims: Mapping[str, int]
    value: Scalar
    reads: Mapping[str, Operand]
    folds: Sequence[Fold] = ()
    levels: Sequence[Mapping[str, int]] = ()


@dataclass(frozen=True)
class Access:
    """A value as part of a buffer: row-major of `shape`, at `index` over the value's dims "0", "1", ..."""

    buffer: Buffer
    shape: tuple[int, ...]
    index: tuple[Affine, ...]

    @property
    def contiguous(self) -> bool:
        """Whether the value is the whole buffer in memory order."""
        return self.index == tuple(dim(str(i)) for i in range(len(self.shape)))


def whole(buffer: Buffer, shape: tuple[int, ...] | None = None) -> Access:
    """The buffer itself, as `shape`."""
    shape = buffer.type.shape if shape is None else shape
    return Access(buffer, shape, tuple(dim(str(i)) for i in range(len(shape))))


@dataclass(frozen=True)
class Read:
    """One read of a step: `buffer` as a row-major tensor of `shape`, at `index`; see `Operand`."""

    buffer: Buffer
    shape: tuple[int, ...]
    index: tuple[Index, ...]
    fill: Scalar | None = None

    def affine(self) -> tuple[Affine, ...] | None:
        """The index map, or None for a gather."""
        if any(isinstance(i, Scalar) for i in self.index):
            return None
        return tuple(i for i in self.index if isinstance(i, Affine))

    def flat(self) -> Affine | None:
        """The element offset as one affine map, or None (gather, or a division)."""
        index = self.affine()
        if index is None or any(i.divisor != 1 for i in index):
            return None
        total = Affine()
        for i, stride in zip(index, row_major(self.shape), strict=True):
            total = total + i * stride
        return total

    def dims(self) -> tuple[str, ...]:
        """Dims that the position depends on; those of a gather's expression excluded."""
        return tuple(dict.fromkeys(d for i in self.index if isinstance(i, Affine) for d in i.dims))


def in_order(reads: Mapping[str, Read]) -> dict[str, Read]:
    """`reads` such that a gather follows the reads that its position is computed from."""
    ordered: dict[str, Read] = {}

    def add(name: str) -> None:
        if name in reads and name not in ordered:
            positions = [i for i in reads[name].index if isinstance(i, Scalar)]
            for leaf in s.leaves(*positions):
                if leaf.op == "var":
                    add(leaf.attr)
            ordered[name] = reads[name]

    for name in sorted(reads, key=lambda n: reads[n].affine() is None):
        add(name)
    return ordered


@dataclass(frozen=True)
class Output:
    """`value` written to `buffer`, row-major over the step's dims."""

    buffer: Buffer
    value: Scalar


@dataclass(frozen=True)
class Source:
    """Where a step comes from: operator, layer path and the user's source line."""

    op: str
    name: str
    where: str


@dataclass(frozen=True, eq=False)
class Step:
    """One node of a lowered program: one C function, one row in manifest, profile and report."""

    dims: Dims
    levels: tuple[Dims, ...]
    reads: Mapping[str, Read]
    folds: tuple[Fold, ...]
    outputs: tuple[Output, ...]
    sources: tuple[Source, ...] = field(default=())
    product: bool = False
    """Whether this was a fold of products, each sum of one term: it still counts as multiply-accumulate."""
    scratch: Buffer | None = None
    """Memory of the kernel that runs this step, worthless before and after."""

    @property
    def sizes(self) -> dict[str, int]:
        """Extent of every dim."""
        return dict([*self.dims, *(d for level in self.levels for d in level)])

    @property
    def fold_dims(self) -> Dims:
        return tuple(d for level in self.levels for d in level)

    @property
    def count(self) -> int:
        """Points of the output space."""
        return prod(e for _, e in self.dims)

    @property
    def fold_count(self) -> int:
        return prod(e for _, e in self.fold_dims)

    @property
    def macs(self) -> int:
        """Multiply-accumulates: fold points, padding included, of folds that multiply; 0 for others."""
        if not self.folds:
            return self.count if self.product else 0
        updates = s.walk([f.update for f in self.folds])
        multiplies = any(n.op == "multiply" and all(a.op != "index" for a in s.leaves(n)) for n in updates)
        return self.count * self.fold_count if multiplies else 0

    def fold_reads(self) -> dict[str, Read]:
        """Reads that the folds use."""
        return self._used([f.update for f in self.folds])

    def epilogue_reads(self) -> dict[str, Read]:
        """Reads that the outputs use."""
        return self._used([o.value for o in self.outputs])

    def _used(self, roots: Sequence[Scalar]) -> dict[str, Read]:
        names = {leaf.attr for leaf in s.leaves(*roots) if leaf.op == "var"}
        todo = list(names)
        while todo:  # a gather's position uses further reads
            read = self.reads.get(todo.pop())
            for i in read.index if read else ():
                if isinstance(i, Scalar):
                    found = {leaf.attr for leaf in s.leaves(i) if leaf.op == "var"} - names
                    names |= found
                    todo += sorted(found)
        return {n: r for n, r in self.reads.items() if n in names}

    def buffers_read(self) -> list[Buffer]:
        return list(dict.fromkeys(r.buffer for r in self.reads.values()))

    def buffers_written(self) -> list[Buffer]:
        return [o.buffer for o in self.outputs]

    def buffers(self) -> list[Buffer]:
        """Every buffer that must be in memory while this runs."""
        scratch = [] if self.scratch is None else [self.scratch]
        return [*self.buffers_read(), *self.buffers_written(), *scratch]

    @property
    def title(self) -> str:
        """Operators, in order, without repetition: "conv + bias + relu"."""
        return " + ".join(dict.fromkeys(x.op for x in self.sources))

    def __repr__(self) -> str:
        return f"<{self.title} {dict(self.dims)} fold {dict(self.fold_dims)} -> {self.buffers_written()}>"


@dataclass(frozen=True, eq=False)
class BufferCheck:
    """A `node.Check` on a buffer."""

    kind: str
    buffer: Buffer
    bound: int = 0


@dataclass(frozen=True, eq=False)
class Schedule:
    """A lowered entry point: steps in a valid order, and which buffers become which variables at the end."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    assigns: tuple[tuple[Buffer, Buffer], ...] = ()
    """(variable's buffer, buffer of its new value)."""
    checks: tuple[BufferCheck, ...] = ()

    def buffers(self) -> list[Buffer]:
        """Every buffer, in order of first appearance."""
        found = dict.fromkeys(self.inputs)
        for step in self.steps:
            found.update(dict.fromkeys(step.buffers()))
        found.update(dict.fromkeys(self.outputs))
        found.update(dict.fromkeys(b for pair in self.assigns for b in pair))
        return list(found)
