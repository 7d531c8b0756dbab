"""A step as a nest of loops: everything that the template needs, as plain data.

The template owns the loops. What is decided here is the text of each: bounds, the statements that load
what is read at each depth, and for every position of a tile the statements of fold and epilogue.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from teeny_embed.emit_c.literals import C_TYPES, literal
from teeny_embed.emit_c.names import Names
from teeny_embed.emit_c.scalar_printer import ScalarPrinter, stored
from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, dim, row_major
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.step import Buffer, Fold, Output, Read, Step
from teeny_embed.kernels.choose import Choice
from teeny_embed.kernels.tiles import Range, fold_bounds, ranges
from teeny_embed.kernels.vectors import Vector, blocks

Offset = Mapping[str, int | Affine]
"""Where a tile position lies, relative to the loop variables."""


@dataclass
class Level:
    """One loop, the statements before it and those that open its body."""

    variable: str
    begin: str
    end: str
    step: int
    before: list[str] = field(default_factory=list)
    head: list[str] = field(default_factory=list)


@dataclass
class Segment:
    """A part of the output space with one tile: all of it, or an interior, border or rest along some dims."""

    outer: list[Level]
    head: list[str]
    start: list[str]
    samples: list[Level]
    sample_start: list[str]
    terms: list[Level]
    tests: str
    """Whether the term exists, where no loop bound can say it."""
    guard_loads: list[str]
    guard: str
    """Whether the term is not absent, where all tile positions agree."""
    whole: str
    """Whether the terms of all tile positions exist, where some may not; `border` takes over if not."""
    update: list[str]
    border: list[str]
    combine: list[str]
    finish: list[str]


def segments(step: Step, choice: Choice, module: str, pointers: Mapping[Buffer, str]) -> list[Segment]:
    """All parts of the output space, in order."""
    builder = _Nest(step, choice, module, pointers)
    parts = [builder.parts(d, e) for d, e in builder.loops]
    return [
        builder.segment(dict(zip((d for d, _ in builder.loops), c, strict=True)))
        for c in itertools.product(*parts)
    ]


class _Nest:
    def __init__(self, step: Step, choice: Choice, module: str, pointers: Mapping[Buffer, str]) -> None:
        self.step, self.choice, self.module, self.pointers = step, choice, module, pointers
        sizes = dict(step.dims)
        self.loops = [(d, sizes[d]) for d in choice.loops]
        self.sizes = step.sizes
        self.fold_reads = step.fold_reads()
        self.epilogue_reads = step.epilogue_reads()
        absences = [f.absent for f in step.folds if f.absent is not None]
        self.absence_reads = {leaf.attr for leaf in s.leaves(*absences) if leaf.op == "var"}
        self.bounds = fold_bounds(step)

    def parts(self, d: str, extent: int) -> list[Range]:
        """The ranges of one output dim."""
        vector = self.choice.vector
        if vector is None or vector.dim != d:
            return ranges(self.step, self.bounds, d, min(extent, self.choice.tile.get(d, 1)))
        whole, regular, rest = blocks(extent, vector)
        parts = [Range(0, whole, vector.lanes * vector.block_count, True, regular)] if whole else []
        return parts + ([Range(whole, extent, extent - whole, True, rest)] if rest else [])

    # ---- One segment

    def segment(self, ranges: Mapping[str, Range]) -> Segment:
        step = self.step
        place = _Place(self, ranges)
        outer = [Level(d, str(r.begin), str(r.end), r.tile) for d, r in ranges.items() if not r.single]
        samples = [Level(d, "0", str(e), 1) for level in step.levels[:-1] for d, e in level]
        terms = [Level(d, "0", str(e), 1) for d, e in (step.levels[-1] if step.levels else ())]
        tests = place.limit(terms, samples, outer)
        result = Segment(outer, [], [], samples, [], terms, conjunction(tests), [], "", "", [], [], [], [])
        place.statements(result)
        return result


class _Place:
    """Names, loads and statements of one segment."""

    def __init__(self, nest: _Nest, ranges: Mapping[str, Range]) -> None:
        self.nest, self.step, self.ranges = nest, nest.step, ranges
        self.vector = nest.choice.vector
        tiled = [d for d, r in ranges.items() if r.tile > 1 or r.blocks]
        offsets = itertools.product(*(ranges[d].offsets for d in tiled))
        self.positions: list[Offset] = [dict(zip(tiled, o, strict=True)) for o in offsets]
        self.fixed = {d: Affine((), r.begin) for d, r in ranges.items() if r.single}
        self.names = Names((*nest.pointers.values(), *nest.sizes, "lane"))
        self.loads: dict[str, str] = {}
        self.accumulators: dict[tuple[str, int], dict[Scalar, str]] = {}
        self.tested = False
        self.straddling: list[tuple[Affine, int]] = []
        """Bounds that some positions of one tile may meet and others not."""

    def temporary(self) -> str:
        return self.names.unique("t")

    def suffix(self, position: int) -> str:
        return str(position) if len(self.positions) > 1 else ""

    # ---- Bounds of fold loops

    def limit(self, terms: list[Level], samples: list[Level], outer: list[Level]) -> list[str]:
        """Shortens fold loops to the terms that exist. Returns tests for bounds that no loop can express."""
        tests = []
        levels = {level.variable: level for level in terms}
        for i, extent in self.nest.bounds:
            if any(
                d in self.ranges and self.ranges[d].tile > 1 and not self.ranges[d].inside for d in i.dims
            ):
                self.straddling.append((i, extent))
                continue
            if (
                all(self.ranges[d].inside for d in i.dims if d in self.ranges)
                and not i.exact
                and self._inside(i, extent)
            ):
                continue
            own = [d for d in i.dims if d in levels]
            if len(own) == 1 and not i.exact and i.divisor == 1 and abs(i.coefficient(own[0])) == 1:
                self._shorten(levels[own[0]], i, extent)
            else:
                tests += self._tests(i, extent)
        self.tested = bool(tests)
        return tests

    def _inside(self, i: Affine, extent: int) -> bool:
        low, high = i.bounds(self.step.sizes)
        tiled = any(d in self.ranges and self.ranges[d].tile > 1 for d in i.dims)
        return tiled or (low >= 0 and high // i.divisor < extent)

    def _shorten(self, level: Level, i: Affine, extent: int) -> None:
        """0 <= i < extent as bounds of one loop variable, whose coefficient is 1 or -1."""
        coefficient = i.coefficient(level.variable)
        rest = (i - dim(level.variable) * coefficient).substitute(self.fixed)
        size = self.step.sizes[level.variable]
        first = rest * -1 if coefficient == 1 else rest - (extent - 1)
        last = (rest * -1 + extent) if coefficient == 1 else rest + 1
        low, high = self._range(first)[1], self._range(last)[0]
        if low > 0:
            level.begin = self._bound(level, "begin", first, 0, ">")
        if high < size:
            level.end = self._bound(level, "end", last, size, "<")

    def _range(self, a: Affine) -> tuple[int, int]:
        low = a.constant + sum(min(c * x for x in self._span(d)) for d, c in a.terms)
        high = a.constant + sum(max(c * x for x in self._span(d)) for d, c in a.terms)
        return low, high

    def _span(self, d: str) -> tuple[int, int]:
        if d == "lane" and self.vector is not None:
            return 0, self.vector.lanes - 1
        if d in self.ranges:
            return self.ranges[d].begin, self.ranges[d].end - 1
        return 0, self.step.sizes[d] - 1

    def _bound(self, level: Level, kind: str, a: Affine, otherwise: int, symbol: str) -> str:
        if not a.terms:
            limited = max(a.constant, otherwise) if symbol == ">" else min(a.constant, otherwise)
            return str(limited)
        name = self.names.unique(f"{level.variable}_{kind}")
        text = affine_text(a, {})
        level.before.append(f"const int32_t {name} = ({text} {symbol} {otherwise}) ? {text} : {otherwise};")
        return name

    def _tests(self, i: Affine, extent: int) -> list[str]:
        numerator = i.numerator().substitute(self.fixed)
        low, high = self._range(numerator)
        text = affine_text(numerator, {})
        tests = [f"({text}) % {i.divisor} == 0"] if i.exact else []
        tests += [f"{text} >= 0"] if low < 0 else []
        return tests + ([f"{text} < {extent * i.divisor}"] if high >= extent * i.divisor else [])

    # ---- Statements

    def statements(self, segment: Segment) -> None:
        """Fills in what each loop computes."""
        step = self.step
        update_names: dict[int, dict[Scalar, str]] = {}
        depth = [*segment.outer, *segment.samples, *segment.terms]
        if step.folds:
            late = {n: r for n, r in self.nest.fold_reads.items() if self._is_late(n, r)}
            early = {n: r for n, r in self.nest.fold_reads.items() if n not in late}
            for number, offset in enumerate(self.positions):
                loaded = self._load_all(early, offset, segment, depth, len(depth), segment.guard_loads)
                update_names[number] = loaded
            before = dict(self.loads)
            for number, offset in enumerate(self.positions):
                update_names[number] |= self._load_all(
                    late, offset, segment, depth, len(depth), segment.update
                )
            self._fold(segment, update_names)
            if self.straddling:
                self._border(segment, late, depth, update_names, before)
        if self.vector is not None:
            self._finish_lanes(segment, depth[: len(segment.outer)], self.vector)
            return
        finish_names = {}
        shallow = len(segment.outer)
        for number, offset in enumerate(self.positions):
            finish_names[number] = self._load_all(
                self.nest.epilogue_reads, offset, segment, depth[:shallow], shallow, segment.finish
            )
        self._finish(segment, finish_names)

    def _load_all(
        self, reads: Mapping[str, Read], offset: Offset, segment: Segment, depth: list[Level],
        innermost: int, here: list[str],
    ) -> dict[Scalar, str]:  # fmt: skip
        """Names of the values of `reads` at one tile position; loads go where their position is known."""
        names: dict[Scalar, str] = {s.index(d): self._position(d, offset) for d in self.step.sizes}
        for name, read in sorted(reads.items(), key=lambda item: item[1].affine() is None):
            variable = s.var(name, read.buffer.type.dtype)
            names[variable] = self._load(name, read, offset, segment, depth, innermost, here, names)
        return names

    def _position(self, d: str, offset: Offset) -> str:
        a = dim(d).substitute(self.fixed) + offset.get(d, 0)
        text = affine_text(a, {})
        return text if len(a.terms) + (a.constant != 0) <= 1 else f"({text})"

    def _load(
        self, name: str, read: Read, offset: Offset, segment: Segment, depth: list[Level],
        innermost: int, here: list[str], names: Mapping[Scalar, str],
    ) -> str:  # fmt: skip
        pointer = self.nest.pointers[read.buffer]
        if read.buffer.type.shape == () and read.buffer.kind == "input":
            return pointer
        text = self._element(pointer, read, offset, names)
        value = f"({text} != 0u)" if read.buffer.type.dtype == "bool" else text
        in_lane = any(isinstance(offset.get(d), Affine) for d in read.dims())
        level = innermost if in_lane else self._known_at(read, depth, innermost)
        key = f"{level}:{text}:{'e' if here is segment.finish else 'u'}"
        if key in self.loads:
            return self.loads[key]
        target = here if level == innermost else (depth[level - 1].head if level else segment.head)
        if read.buffer.type.dtype == "bool":
            self.loads[key] = value
            return value
        short = self.names.unique(f"{pointer}_at")
        if self.vector is not None and here is not segment.finish and self.vector.dim in read.dims():
            lanes = f"{self.nest.module}_load{self.vector.lanes}"
            target += [
                f"{self.nest.module}_lanes{self.vector.lanes}_t {short};",
                f"{lanes}(&{text}, &{short});",
            ]
            self.loads[key] = f"{short}.v"
            return self.loads[key]
        target.append(f"const {C_TYPES[read.buffer.type.dtype]} {short} = {text};")
        self.loads[key] = short
        return short

    def _known_at(self, read: Read, depth: list[Level], innermost: int) -> int:
        """How many loops must be open before the position is known; all of them for a written buffer."""
        if (
            read.affine() is None
            or ((self.tested or self.straddling) and self._may_leave(read))
            or any(
                o.buffer is read.buffer or self.nest.pointers[o.buffer] == self.nest.pointers[read.buffer]
                for o in self.step.outputs
            )
        ):
            return innermost
        variables = [level.variable for level in depth]
        needed = [variables.index(d) + 1 for d in read.dims() if d in variables]
        return max(needed, default=0)

    def _is_late(self, name: str, read: Read) -> bool:
        """Whether a fold's read waits for the guard, or for the test of the tile where one is needed."""
        return self._may_leave(read) if self.straddling else name not in self.nest.absence_reads

    def _may_leave(self, read: Read) -> bool:
        return any((i, e) in self.nest.bounds for i, e in zip(read.index, read.shape, strict=True))

    def _element(self, pointer: str, read: Read, offset: Offset, names: Mapping[Scalar, str]) -> str:
        shift = {d: dim(d) + n for d, n in offset.items()}
        total, parts, tests = Affine(), [], []
        for i, extent, stride in zip(read.index, read.shape, row_major(read.shape), strict=True):
            if isinstance(i, Scalar):
                printer = ScalarPrinter(self.nest.module, names, self.temporary)
                (text,) = printer.print([i])
                parts.append(text if stride == 1 else f"{stride} * {text}")
                continue
            at = self._shifted(i, shift)
            if read.fill is not None and not i.in_range(extent, self.step.sizes):
                tests += self._tests(at, extent)
            if at.divisor == 1:
                total = total + at * stride
            else:
                numerator = affine_text(at.numerator(), {})
                quotient = f"({numerator if numerator.isidentifier() else f'({numerator})'} / {at.divisor})"
                parts.append(quotient if stride == 1 else f"{stride} * {quotient}")
        if total.terms or total.constant or not parts:
            parts.insert(0, affine_text(total, {}))
        element = f"{pointer}[{' + '.join(parts)}]".replace("+ -", "- ")
        if read.fill is None or not tests:
            return element
        condition = " && ".join(f"({t})" for t in tests)
        return (
            f"({condition}) ? {element} : {literal(read.fill.attr, read.buffer.type.dtype, self.nest.module)}"
        )

    def _shifted(self, i: Affine, shift: Mapping[str, Affine]) -> Affine:
        return i.substitute(shift).substitute(self.fixed)

    def _accumulators(self, prefix: str, number: int) -> dict[Scalar, str]:
        """Names of the accumulators at one tile position; `prefix` is sum, or part for one sample's."""
        found = self.accumulators.get((prefix, number))
        if found is None:
            names = {f.accumulator: prefix if f.term is not None else f.name for f in self.step.folds}
            found = {a: self.names.unique(n + self.suffix(number)) for a, n in names.items()}
            self.accumulators[prefix, number] = found
        return found

    def _fold(self, segment: Segment, names: Mapping[int, dict[Scalar, str]]) -> None:
        two_level = bool(segment.samples)
        shared = self._shared_absence(names)
        segment.guard = f"!({shared})" if shared is not None else ""
        for number in range(len(self.positions)):
            totals, parts = self._accumulators("sum", number), self._accumulators("part", number)
            inner = parts if two_level else totals
            segment.start += [self._declare(f, totals[f.accumulator]) for f in self.step.folds]
            if two_level:
                segment.sample_start += [self._declare(f, parts[f.accumulator]) for f in self.step.folds]
                segment.combine += [
                    f"{totals[f.accumulator]} += {parts[f.accumulator]};" for f in self.step.folds
                ]
            segment.update += self._update({**names[number], **inner}, inner, shared is not None)

    def _border(
        self, segment: Segment, late: Mapping[str, Read], depth: list[Level],
        names: Mapping[int, dict[Scalar, str]], before: dict[str, str],
    ) -> None:  # fmt: skip
        """The fold position by position, each with its own test, for tiles that lie across a border."""
        segment.whole = conjunction(self._whole_tests())
        prefix = "part" if segment.samples else "sum"
        for number, offset in enumerate(self.positions):
            self.loads = dict(before)
            lines: list[str] = []
            inner = self._accumulators(prefix, number)
            loaded = self._load_all(late, offset, segment, depth, len(depth), lines)
            lines += self._update({**names[number], **loaded, **inner}, inner, bool(segment.guard))
            shift = {d: dim(d) + n for d, n in offset.items()}
            tests = [t for i, e in self.straddling for t in self._tests(i.substitute(shift), e)]
            segment.border += [f"if ({conjunction(tests)}) {{", *lines, "}"] if tests else lines
        self.loads = dict(before)

    def _whole_tests(self) -> list[str]:
        """What must hold for every position of a tile to stay inside: tests at its extreme positions."""
        tests = []
        for i, extent in self.straddling:
            ends: list[dict[str, Affine]] = [
                {},
                {},
            ]  # offsets of the positions with the least and the greatest value of i
            for d, c in i.terms:
                last = self.ranges[d].tile - 1 if d in self.ranges else 0
                ends[c > 0][d], ends[c < 0][d] = dim(d) + last, dim(d)
            low, high = (i.substitute(e) for e in ends)
            tests += [t for t in self._tests(low, extent) if ">=" in t]
            tests += [t for t in self._tests(high, extent) if "<" in t]
        return tests

    def _declare(self, fold: Fold, name: str) -> str:
        if self.vector is not None:
            return f"{self.nest.module}_v{self.vector.lanes}_t {name} = {{0.0f}};"
        return f"{C_TYPES[fold.dtype]} {name} = {literal(fold.start.attr, fold.dtype, self.nest.module)};"

    def _shared_absence(self, names: Mapping[int, dict[Scalar, str]]) -> str | None:
        """The one condition under which all positions leave their term out, if it is one condition."""
        absences = {f.absent for f in self.step.folds}
        if len(absences) != 1 or None in absences:
            return None
        (absent,) = absences
        assert absent is not None
        texts = {ScalarPrinter(self.nest.module, n, self.temporary).condition(absent) for n in names.values()}
        return texts.pop() if len(texts) == 1 else None

    def _update(
        self, names: Mapping[Scalar, str], accumulators: Mapping[Scalar, str], guarded: bool
    ) -> list[str]:
        """One term added to the accumulators of one position."""
        printer = ScalarPrinter(self.nest.module, names, self.temporary)
        plain = [f for f in self.step.folds if f.term is not None and (guarded or f.absent is None)]
        terms = printer.print([f.term for f in plain if f.term is not None])
        others = [f for f in self.step.folds if f not in plain]
        updates = printer.print([f.update for f in others])
        lines = [*printer.lines]
        lines += [f"{accumulators[f.accumulator]} += {t};" for f, t in zip(plain, terms, strict=True)]
        if len(others) == 1:
            return [*lines, f"{accumulators[others[0].accumulator]} = {updates[0]};"]
        fresh = [self.temporary() for _ in others]  # all new values before any is stored
        for f, t, u in zip(others, fresh, updates, strict=True):
            lines.append(f"const {C_TYPES[f.dtype]} {t} = {u};")
        return lines + [f"{accumulators[f.accumulator]} = {t};" for f, t in zip(others, fresh, strict=True)]

    def _finish_lanes(self, segment: Segment, depth: list[Level], vector: Vector) -> None:
        """The epilogue, lane by lane; a compiler makes vectors of it where it can."""
        stored = {b.offset: b for b in self.ranges[vector.dim].blocks}
        for number, offset in enumerate(self.positions):
            before = dict(self.loads)
            inside = {**offset, vector.dim: dim("lane") + offset[vector.dim]}
            lanes = {a: self.names.unique("lanes") for a in self._accumulators("sum", number)}
            for accumulator, name in lanes.items():
                segment.finish.append(f"{self.nest.module}_lanes{vector.lanes}_t {name};")
                segment.finish.append(f"{name}.v = {self._accumulators('sum', number)[accumulator]};")
            block = stored[offset[vector.dim]]  # type: ignore[index]
            segment.finish.append(
                f"for (int32_t lane = {block.first_lane}; lane < {block.end_lane}; ++lane) {{"
            )
            names = self._load_all(
                self.nest.epilogue_reads, inside, segment, depth, len(depth), segment.finish
            )
            names |= {a: f"{name}.at[lane]" for a, name in lanes.items()}
            self._store(segment, names, inside)
            segment.finish.append("}")
            self.loads = before

    def _finish(self, segment: Segment, names: Mapping[int, dict[Scalar, str]]) -> None:
        for number, offset in enumerate(self.positions):
            self._store(segment, {**names[number], **self._accumulators("sum", number)}, offset)

    def _store(self, segment: Segment, names: Mapping[Scalar, str], offset: Offset) -> None:
        """Computes and stores every output of one position; all values before the first store."""
        printer = ScalarPrinter(self.nest.module, names, self.temporary)
        values = printer.print([o.value for o in self.step.outputs])
        segment.finish += printer.lines
        stores = []
        for o, value in zip(self.step.outputs, values, strict=True):
            if len(self.step.outputs) > 1 and o.value.args and not value.isidentifier():
                name = self.temporary()  # every value before the first store: outputs may lie in operands
                segment.finish.append(
                    f"const {C_TYPES[o.buffer.type.dtype]} {name} = {self._stored(value, o)};"
                )
                value = name
                stores.append(f"{self._target(o, offset)} = {value};")
            else:
                stores.append(f"{self._target(o, offset)} = {self._stored(value, o)};")
        segment.finish += stores

    def _stored(self, value: str, output: Output) -> str:
        text = stored(value, output.value)
        return f"(uint8_t)({text})" if output.value.dtype == "bool" else text

    def _target(self, output: Output, offset: Offset) -> str:
        total = Affine()
        for (d, _), stride in zip(
            self.step.dims, row_major(tuple(e for _, e in self.step.dims)), strict=True
        ):
            total = total + (dim(d) + offset.get(d, 0)).substitute(self.fixed) * stride
        return f"{self.nest.pointers[output.buffer]}[{affine_text(total, {})}]"


def conjunction(tests: Sequence[str]) -> str:
    """All of `tests` as one C condition."""
    return " && ".join(f"({t})" for t in tests) if len(tests) > 1 else "".join(tests)


def affine_text(a: Affine, names: Mapping[str, str]) -> str:
    """An undivided affine map as C."""
    parts = []
    for d, c in sorted(a.terms, key=lambda term: -abs(term[1])):
        name = names.get(d, d)
        parts.append(name if c == 1 else f"-{name}" if c == -1 else f"{c} * {name}")
    if a.constant or not parts:
        parts.append(str(a.constant))
    if len(parts) > 1 and parts[0].startswith("-"):
        parts = [*parts[1:], parts[0]] if not parts[-1].startswith("-") else parts
    return " + ".join(parts).replace("+ -", "- ")
