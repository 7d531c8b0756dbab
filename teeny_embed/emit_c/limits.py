"""Loop bounds and tests: which terms of a fold exist at which positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from teeny_embed.emit_c.names import Names
from teeny_embed.graph.affine import Affine, dim, fixed
from teeny_embed.graph.step import Read, Step
from teeny_embed.kernels.tiles import Bound, Range, fold_bounds


@dataclass
class Level:
    """One loop, the statements before it and those that open its body."""

    variable: str
    begin: str
    end: str
    step: int
    before: list[str] = field(default_factory=list)
    head: list[str] = field(default_factory=list)


class Limits:
    """What keeps the reads of one segment inside their tensors."""

    def __init__(self, step: Step, ranges: Mapping[str, Range], names: Names, lanes: int) -> None:
        self.step, self.ranges, self.names, self.lanes = step, ranges, names, lanes
        self.bounds = fold_bounds(step)
        self.fixed = {d: fixed(r.begin) for d, r in ranges.items() if r.single}
        self.straddling: list[Bound] = []
        """Bounds that some positions of one tile may meet and others not."""
        self.tested = False
        """Whether a term's existence needs a test that no loop bound expresses."""

    def may_leave(self, read: Read) -> bool:
        """Whether a read of the fold has a bound to keep."""
        return any((i, e) in self.bounds for i, e in zip(read.index, read.shape, strict=True))

    def limit(self, terms: Sequence[Level]) -> list[str]:
        """Shortens fold loops to the terms that exist. Returns tests for bounds that no loop can express."""
        tests: list[str] = []
        levels = {level.variable: level for level in terms}
        for i, extent in self.bounds:
            tiled = [self.ranges[d] for d in i.dims if d in self.ranges and self.ranges[d].tile > 1]
            own = [d for d in i.dims if d in levels]
            if any(not r.inside for r in tiled):
                self.straddling.append((i, extent))
            elif tiled and not i.exact:
                continue  # an interior: every position of the tile stays inside
            elif len(own) == 1 and i.divisor == 1 and abs(i.coefficient(own[0])) == 1:
                self._shorten(levels[own[0]], i, extent)
            else:
                tests += self.tests(i, extent)
        self.tested = bool(tests)
        return tests

    def _shorten(self, level: Level, i: Affine, extent: int) -> None:
        """0 <= i < extent as bounds of one loop variable, whose coefficient is 1 or -1."""
        coefficient = i.coefficient(level.variable)
        rest = (i - dim(level.variable) * coefficient).substitute(self.fixed)
        size = self.step.sizes[level.variable]
        first = rest * -1 if coefficient == 1 else rest - (extent - 1)
        last = (rest * -1 + extent) if coefficient == 1 else rest + 1
        if self._span_of(first)[1] > 0:
            level.begin = self._bound(level, "begin", first, 0, ">")
        if self._span_of(last)[0] < size:
            level.end = self._bound(level, "end", last, size, "<")

    def _bound(self, level: Level, kind: str, a: Affine, otherwise: int, symbol: str) -> str:
        if not a.terms:
            return str(max(a.constant, otherwise) if symbol == ">" else min(a.constant, otherwise))
        name = self.names.unique(f"{level.variable}_{kind}")
        text = affine_text(a)
        level.before.append(f"const int32_t {name} = ({text} {symbol} {otherwise}) ? {text} : {otherwise};")
        return name

    def tests(self, i: Affine, extent: int) -> list[str]:
        """C conditions that hold where 0 <= i < extent and, for an exact division, nothing remains."""
        numerator = i.numerator().substitute(self.fixed)
        low, high = self._span_of(numerator)
        text = affine_text(numerator)
        tests = [f"({text}) % {i.divisor} == 0"] if i.exact else []
        tests += [f"{text} >= 0"] if low < 0 else []
        return tests + ([f"{text} < {extent * i.divisor}"] if high >= extent * i.divisor else [])

    def whole_tests(self) -> list[str]:
        """What must hold for every position of a straddling tile: tests at its extreme positions."""
        tests = []
        for i, extent in self.straddling:
            least: dict[str, Affine] = {}
            greatest: dict[str, Affine] = {}
            for d, c in i.terms:
                last = self.ranges[d].tile - 1 if d in self.ranges else 0
                first_end, last_end = (least, greatest) if c > 0 else (greatest, least)
                first_end[d], last_end[d] = dim(d), dim(d) + last
            tests += [t for t in self.tests(i.substitute(least), extent) if ">=" in t]
            tests += [t for t in self.tests(i.substitute(greatest), extent) if "<" in t]
        return tests

    def _span_of(self, a: Affine) -> tuple[int, int]:
        """Least and greatest value within the segment."""
        ends = [[c * x for x in self._span(d)] for d, c in a.terms]
        return a.constant + sum(map(min, ends)), a.constant + sum(map(max, ends))

    def _span(self, d: str) -> tuple[int, int]:
        if d == "lane":
            return 0, self.lanes - 1
        if d in self.ranges:
            return self.ranges[d].begin, self.ranges[d].end - 1
        return 0, self.step.sizes[d] - 1


def conjunction(tests: Sequence[str]) -> str:
    """All of `tests` as one C condition."""
    return " && ".join(f"({t})" for t in tests) if len(tests) > 1 else "".join(tests)


def affine_text(a: Affine) -> str:
    """An undivided affine map as C, the fastest-growing dim first."""
    parts = []
    for d, c in sorted(a.terms, key=lambda term: -abs(term[1])):
        parts.append(d if c == 1 else f"-{d}" if c == -1 else f"{c} * {d}")
    if a.constant or not parts:
        parts.append(str(a.constant))
    if len(parts) > 1 and parts[0].startswith("-") and not parts[-1].startswith("-"):
        parts = [*parts[1:], parts[0]]
    return " + ".join(parts).replace("+ -", "- ")
