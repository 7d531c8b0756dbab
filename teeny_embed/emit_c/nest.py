"""A step as a nest of loops: everything that the template needs, as plain data.

The template owns the loops. What is decided here is the text of each: bounds, the statements that load
what is read at each depth, and for every position of a tile the statements of fold and epilogue.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from teeny_embed.emit_c.limits import Level, Limits, affine_text, conjunction
from teeny_embed.emit_c.literals import C_TYPES, literal
from teeny_embed.emit_c.loads import Loads, Offset, Site, Snapshot, Values
from teeny_embed.emit_c.names import Names
from teeny_embed.emit_c.scalar_printer import ScalarPrinter, stored
from teeny_embed.emit_c.vector_printer import (
    IntegerVectorPrinter,
    VectorPrinter,
    in_integer_vectors,
    in_vectors,
)
from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, dim, row_major
from teeny_embed.graph.interval import Intervals
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.step import Buffer, Fold, Output, Read, Step
from teeny_embed.kernels.choose import Choice
from teeny_embed.kernels.tiles import Block, Range, seams
from teeny_embed.kernels.turns import parts
from teeny_embed.kernels.vectors import Vector


@dataclass
class Segment:
    """A part of the output space with one tile: all of it, or an interior, border or rest along some dims."""

    outer: tuple[Level, ...]
    samples: tuple[Level, ...]
    terms: tuple[Level, ...]
    tests: str
    """Whether the term exists, where no loop bound can say it."""
    in_order: bool = False
    """Whether its loads fill the registers, so that the compiler should leave them where they are."""
    guard: str = ""
    """Whether the term is not absent, where all tile positions agree."""
    whole: str = ""
    """Whether the terms of all tile positions exist, where some may not; `border` takes over if not."""
    head: list[str] = field(default_factory=list)
    start: list[str] = field(default_factory=list)
    sample_start: list[str] = field(default_factory=list)
    guard_loads: list[str] = field(default_factory=list)
    update: list[str] = field(default_factory=list)
    border: list[str] = field(default_factory=list)
    combine: list[str] = field(default_factory=list)
    finish: list[str] = field(default_factory=list)


def segments(
    step: Step, choice: Choice, module: str, pointers: Mapping[Buffer, str], intervals: Intervals
) -> tuple[Segment, ...]:
    """All parts of the output space, in order. `intervals` are those of the step."""
    return tuple(
        _Builder(_within(step, part), choice, module, pointers, part, intervals).segment()
        for part in parts(step, choice.tile, choice.vector)
    )


def integer_segments(
    step: Step, choice: Choice, module: str, pointers: Mapping[Buffer, str], intervals: Intervals
) -> tuple[Segment, ...]:
    """The same in vectors of integers; none where they cannot compute it."""
    values = [f.update for f in step.folds] or [o.value for o in step.outputs]
    if choice.integers is None or not in_integer_vectors(values, intervals):
        return ()
    return segments(step, Choice(choice.kernel, vector=choice.integers), module, pointers, intervals)


def _within(step: Step, ranges: Mapping[str, Range]) -> Step:
    """`step` as it is within `ranges`: what the choices between parts of a map come to is known there."""
    known: dict[Scalar, Scalar] = {}
    for test, d, end in seams(step):
        part = ranges[d]
        if part.end <= end or part.begin >= end:
            known[test] = s.const(part.end <= end, "bool")
    if not known:
        return step
    within = replace(
        step, outputs=tuple(Output(o.buffer, s.substitute(o.value, known)) for o in step.outputs)
    )
    return replace(within, reads=within.epilogue_reads())


class _Builder:
    """One segment under construction."""

    def __init__(
        self, step: Step, choice: Choice, module: str, pointers: Mapping[Buffer, str],
        ranges: Mapping[str, Range], intervals: Intervals,
    ) -> None:  # fmt: skip
        self.intervals = intervals
        self.step, self.module, self.pointers, self.ranges = step, module, pointers, ranges
        self.vector = choice.vector
        names = Names((*pointers.values(), *step.sizes, "lane"))
        self.limits = Limits(step, ranges, names, self.vector.lanes if self.vector else 1)
        self.loads = Loads(step, self.limits, names, module, pointers, intervals, choice.group)
        tiled = [d for d, r in ranges.items() if r.tile > 1 or r.blocks]
        offsets = itertools.product(*(ranges[d].offsets for d in tiled))
        self.positions: list[Offset] = [dict(zip(tiled, o, strict=True)) for o in offsets]
        terms = tuple(Level(d, "0", str(e), 1) for d, e in (step.levels[-1] if step.levels else ()))
        self.result = Segment(
            outer=tuple(
                Level(d, str(r.begin), str(r.end), r.tile) for d, r in ranges.items() if not r.single
            ),
            samples=tuple(Level(d, "0", str(e), 1) for level in step.levels[:-1] for d, e in level),
            terms=terms,
            tests=conjunction(self.limits.limit(terms)),
            in_order=choice.group is not None,
        )
        prefixes = ("sum", "part") if self.result.samples else ("sum",)
        self.totals, *self.parts = (
            [self._accumulators(p, n) for n in range(len(self.positions))] for p in prefixes
        )
        self.inner = self.parts[0] if self.parts else self.totals

    def segment(self) -> Segment:
        if self.step.folds:
            self._fold()
        if self.vector is None:
            self._finish()
        elif self._ends_in_vectors(self.vector):
            self._finish_vectors(self.vector)
        else:
            self._finish_lanes(self.vector)
        return self.result

    def _accumulators(self, prefix: str, number: int) -> Values:
        """Names of the accumulators at one tile position; `prefix` is sum, or part for one sample's."""
        suffix = str(number) if len(self.positions) > 1 else ""
        names = {f.accumulator: prefix if f.term is not None else f.name for f in self.step.folds}
        return {a: self.loads.names.unique(n + suffix) for a, n in names.items()}

    def _site(self, here: list[str], vector: Vector | None = None) -> Site:
        """A place within the fold."""
        part = self.result
        return Site((*part.outer, *part.samples, *part.terms), part.head, here, vector)

    # ---- Fold

    def _fold(self) -> None:
        part = self.result
        reads = self.step.fold_reads()
        late = {n: r for n, r in reads.items() if self._is_late(n, r)}
        early = self._site(part.guard_loads, self.vector)
        values = [
            self.loads.values({n: r for n, r in reads.items() if n not in late}, o, early)
            for o in self.positions
        ]
        before = self.loads.snapshot()
        if part.in_order:  # each load just before its use, so that few are held at a time
            for known, offset, inner in zip(values, self.positions, self.inner, strict=True):
                known |= self.loads.values(late, offset, self._site(part.update, self.vector))
                part.update += self._update({**known, **inner}, inner)
        else:
            for known, offset in zip(values, self.positions, strict=True):
                known |= self.loads.values(late, offset, self._site(part.update, self.vector))
            shared = self._shared_absence(values)
            part.guard = f"!({shared})" if shared is not None else ""
            for known, inner in zip(values, self.inner, strict=True):
                part.update += self._update({**known, **inner}, inner)
        self._declare_accumulators()
        if self.limits.straddling:
            self._border(late, values, before)

    def _declare_accumulators(self) -> None:
        part = self.result
        for number, totals in enumerate(self.totals):
            part.start += [self._declaration(f, totals[f.accumulator]) for f in self.step.folds]
            if self.parts:
                inner = self.inner[number]
                part.sample_start += [self._declaration(f, inner[f.accumulator]) for f in self.step.folds]
                part.combine += [
                    self._combined(f, totals[f.accumulator], inner[f.accumulator]) for f in self.step.folds
                ]

    def _combined(self, fold: Fold, total: str, part: str) -> str:
        """One sample's sum added to the total."""
        if self.vector is not None or fold.dtype.startswith("float"):
            return f"{total} += {part};"
        a, b = s.var("a", fold.dtype), s.var("b", fold.dtype)
        (text,) = ScalarPrinter(self.module, {a: total, b: part}, self.loads.temporary).print([s.add(a, b)])
        return f"{total} = {text};"

    def _declaration(self, fold: Fold, name: str) -> str:
        if self.vector is not None and self.vector.dtype == "float32":
            return f"{self.module}_v{self.vector.lanes}_t {name} = {{0.0f}};"
        if self.vector is not None:
            start = literal(fold.start.attr, fold.dtype, self.module)
            return f"{self.module}_int32x4_t {name} = {self.module}_all_x4({start});"
        return f"{C_TYPES[fold.dtype]} {name} = {literal(fold.start.attr, fold.dtype, self.module)};"

    def _is_late(self, name: str, read: Read) -> bool:
        """Whether a fold's read waits for the guard, or for the test of the tile where one is needed."""
        if self.limits.straddling:
            return self.limits.may_leave(read)
        absences = [f.absent for f in self.step.folds if f.absent is not None]
        return name not in {leaf.attr for leaf in s.leaves(*absences)}

    def _shared_absence(self, values: list[Values]) -> str | None:
        """The one condition under which all positions leave their term out, if it is one condition."""
        absences = {f.absent for f in self.step.folds}
        if len(absences) != 1 or None in absences:
            return None
        (absent,) = absences
        assert absent is not None
        texts = {ScalarPrinter(self.module, v, self.loads.temporary).condition(absent) for v in values}
        return texts.pop() if len(texts) == 1 else None

    def _update(self, known: Values, accumulators: Values) -> list[str]:
        """One term added to the accumulators of one position."""
        if self.vector is not None and self.vector.dtype == "int32":
            return self._update_integers(self.vector, known, accumulators)
        printer = ScalarPrinter(self.module, known, self.loads.temporary, self.intervals)
        plain = [f for f in self.step.folds if f.term is not None and (self.result.guard or f.absent is None)]
        plain = [f for f in plain if f.dtype.startswith("float")]  # integers wrap: their update says how
        terms = printer.print([f.term for f in plain if f.term is not None])
        others = [f for f in self.step.folds if f not in plain]
        updates = printer.print([f.update for f in others])
        lines = [*printer.lines]
        lines += [f"{accumulators[f.accumulator]} += {t};" for f, t in zip(plain, terms, strict=True)]
        if len(others) == 1:
            return [*lines, f"{accumulators[others[0].accumulator]} = {updates[0]};"]
        fresh = [self.loads.temporary() for _ in others]  # all new values before any is stored
        for f, t, u in zip(others, fresh, updates, strict=True):
            lines.append(f"const {C_TYPES[f.dtype]} {t} = {u};")
        return lines + [f"{accumulators[f.accumulator]} = {t};" for f, t in zip(others, fresh, strict=True)]

    def _update_integers(self, vector: Vector, known: Values, accumulators: Values) -> list[str]:
        printer = self._lane_printer(vector, self.step.fold_reads(), known, accumulators)
        fresh = [self.loads.temporary() for _ in self.step.folds]
        updates = printer.print([f.update for f in self.step.folds])
        lines = [f"const {self.module}_int32x4_t {t} = {u};" for t, u in zip(fresh, updates, strict=True)]
        names = [accumulators[f.accumulator] for f in self.step.folds]
        return [*printer.lines, *lines, *(f"{name} = {t};" for name, t in zip(names, fresh, strict=True))]

    def _border(self, late: Mapping[str, Read], values: list[Values], before: Snapshot) -> None:
        """The fold position by position, each with its own test, for tiles that lie across a border."""
        self.result.whole = conjunction(self.limits.whole_tests())
        for known, inner, offset in zip(values, self.inner, self.positions, strict=True):
            self.loads.restore(before)
            lines: list[str] = []
            loaded = self.loads.values(late, offset, self._site(lines, self.vector))
            lines += self._update({**known, **loaded, **inner}, inner)
            shift = {d: dim(d) + n for d, n in offset.items()}
            tests = [t for i, e in self.limits.straddling for t in self.limits.tests(i.substitute(shift), e)]
            self.result.border += [f"if ({conjunction(tests)}) {{", *lines, "}"] if tests else lines
        self.loads.restore(before)

    # ---- Epilogue

    def _finish(self) -> None:
        part = self.result
        site = Site(part.outer, part.head, part.finish)
        reads = self.step.epilogue_reads()
        values = [
            self.loads.values(reads, offset, site, totals)
            for totals, offset in zip(self.totals, self.positions, strict=True)
        ]
        for known, offset in zip(values, self.positions, strict=True):
            self._store(known, offset)

    def _finish_lanes(self, vector: Vector) -> None:
        """The epilogue lane by lane."""
        part = self.result
        site = Site(part.outer, part.head, part.finish)
        stored_lanes = {b.offset: b for b in self.ranges[vector.dim].blocks}
        for totals, offset in zip(self.totals, self.positions, strict=True):
            before = self.loads.snapshot()
            first = offset[vector.dim]
            assert isinstance(first, int)
            block, lanes = stored_lanes[first], {a: self.loads.names.unique("lanes") for a in totals}
            for accumulator, name in lanes.items():
                if vector.dtype == "float32":
                    part.finish.append(f"{self.module}_lanes{vector.lanes}_t {name};")
                    part.finish.append(f"{name}.v = {totals[accumulator]};")
                    lanes[accumulator] = f"{name}.at"
                else:
                    part.finish.append(f"int32_t {name}[{vector.lanes}];")
                    part.finish.append(f"{self.module}_store_int32({totals[accumulator]}, {name});")
            part.finish.append(f"for (int32_t lane = {block.first_lane}; lane < {block.end_lane}; ++lane) {{")
            inside = {**offset, vector.dim: dim("lane") + first}
            totals_here = {a: f"{n}[lane]" for a, n in lanes.items()}
            self._store(self.loads.values(self.step.epilogue_reads(), inside, site, totals_here), inside)
            part.finish.append("}")
            self.loads.restore(before)

    def _ends_in_vectors(self, vector: Vector) -> bool:
        """Whether all that the epilogue computes, reads and writes lies in lanes or is one number."""
        step, values = self.step, [o.value for o in self.step.outputs]
        integers = vector.dtype == "int32" and in_integer_vectors(values, self.intervals)
        if not (integers or (vector.dtype == "float32" and in_vectors(values))):
            return False
        for read in step.epilogue_reads().values():
            flat = read.flat()
            if read.fill is not None or flat is None or flat.coefficient(vector.dim) not in (0, 1):
                return False
        return step.dims[-1][0] == vector.dim and step.sizes[vector.dim] >= vector.lanes

    def _finish_vectors(self, vector: Vector) -> None:
        """The epilogue over all lanes at once. Those computed again, at the end of a dim, are not stored."""
        part, outputs = self.result, self.step.outputs
        reads = self.step.epilogue_reads()
        stored_lanes = {b.offset: b for b in self.ranges[vector.dim].blocks}
        for totals, offset in zip(self.totals, self.positions, strict=True):
            before, first = self.loads.snapshot(), offset[vector.dim]
            assert isinstance(first, int)
            known = self.loads.values(reads, offset, Site(part.outer, part.head, part.finish, vector))
            printer = self._lane_printer(vector, reads, known, totals)
            values = printer.print([o.value for o in outputs])
            part.finish += printer.lines
            names = [self.loads.names.unique("lanes") for _ in outputs]
            kind = "int32x4" if vector.dtype == "int32" else f"lanes{vector.lanes}"
            for name, value in zip(names, values, strict=True):  # all values come before the stores
                text = value if vector.dtype == "int32" else f"{{{value}}}"
                part.finish.append(f"const {self.module}_{kind}_t {name} = {text};")
            for output, name in zip(outputs, names, strict=True):
                part.finish += self._lane_stores(vector, output, name, offset, stored_lanes[first])
            self.loads.restore(before)

    def _lane_printer(
        self, vector: Vector, reads: Mapping[str, Read], known: Values, totals: Mapping[Scalar, str]
    ) -> VectorPrinter | IntegerVectorPrinter:
        leaves = {s.var(n, r.buffer.type.dtype): vector.dim in r.dims() for n, r in reads.items()}
        vectors = {leaf: known[leaf] for leaf, in_lanes in leaves.items() if in_lanes} | dict(totals)
        numbers = {leaf: known[leaf] for leaf, in_lanes in leaves.items() if not in_lanes}
        if vector.dtype == "float32":
            return VectorPrinter(self.module, vector.lanes, vectors, numbers, self.loads.temporary)
        return IntegerVectorPrinter(self.module, vectors, numbers, self.loads.temporary)

    def _lane_stores(
        self, vector: Vector, output: Output, lanes: str, offset: Offset, block: Block
    ) -> list[str]:
        target, dtype = self._target(output, offset), output.buffer.type.dtype
        if vector.dtype == "float32":
            where = f"&{lanes}, {block.first_lane}, {block.end_lane}, &{target}"
            return [f"{self.module}_store{vector.lanes}({where});"]
        if block.first_lane == 0:
            return [f"{self.module}_store_{dtype}({lanes}, &{target});"]
        targets = {
            lane: self._target(output, {**offset, vector.dim: block.offset + lane})
            for lane in range(block.first_lane, block.end_lane)
        }
        return [f"{to} = ({C_TYPES[dtype]}){lanes}[{lane}];" for lane, to in targets.items()]

    def _store(self, known: Mapping[Scalar, str], offset: Offset) -> None:
        """Computes and stores every output of one position; all values before the first store."""
        printer = ScalarPrinter(self.module, known, self.loads.temporary, self.intervals)
        values = printer.print([o.value for o in self.step.outputs])
        lines = self.result.finish
        lines += printer.lines
        stores = []
        for output, value in zip(self.step.outputs, values, strict=True):
            text = _stored(value, output)
            if len(self.step.outputs) > 1 and output.value.args and not value.isidentifier():
                name = self.loads.temporary()  # an output may lie where an operand of the next one does
                lines.append(f"const {C_TYPES[output.buffer.type.dtype]} {name} = {text};")
                text = name
            stores.append(f"{self._target(output, offset)} = {text};")
        lines += stores

    def _target(self, output: Output, offset: Offset) -> str:
        total = Affine()
        strides = row_major(tuple(e for _, e in self.step.dims))
        for (d, _), stride in zip(self.step.dims, strides, strict=True):
            total = total + (dim(d) + offset.get(d, 0)).substitute(self.limits.fixed) * stride
        return f"{self.pointers[output.buffer]}[{affine_text(total)}]"


def _stored(value: str, output: Output) -> str:
    text = stored(value, output.value)
    return f"(uint8_t)({text})" if output.value.dtype == "bool" else text
