"""Loads: the value of every read of a step under a name, loaded once, where its position is first known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from teeny_embed.emit_c.limits import Level, Limits, affine_text, conjunction
from teeny_embed.emit_c.literals import C_TYPES, literal
from teeny_embed.emit_c.names import Names
from teeny_embed.emit_c.scalar_printer import ScalarPrinter
from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, dim, row_major
from teeny_embed.graph.interval import Intervals
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.step import Buffer, Read, Step, in_order
from teeny_embed.kernels.tiles import Group, in_group
from teeny_embed.kernels.vectors import Vector

Offset = Mapping[str, int | Affine]
"""Where a tile position lies, relative to the loop variables."""
Values = dict[Scalar, str]
"""C names of leaves."""
Snapshot = dict[tuple[int, int, str], str]
"""What is loaded: (loops open, place, C expression) to name."""


@dataclass(frozen=True)
class Site:
    """A place for statements: inside all of `loops`, in `here`; what is known earlier goes further out."""

    loops: tuple[Level, ...]
    head: list[str]
    """Statements before all loops."""
    here: list[str]
    vector: Vector | None = None
    """If set, reads that move along its dim are loaded as vectors."""


class Loads:
    """Loads of one segment. `snapshot` and `restore` delimit C blocks whose names do not outlive them."""

    def __init__(
        self, step: Step, limits: Limits, names: Names, module: str, pointers: Mapping[Buffer, str],
        intervals: Intervals, group: Group | None = None,
    ) -> None:  # fmt: skip
        self.step, self.limits, self.names, self.intervals = step, limits, names, intervals
        self.module, self.pointers, self.group = module, pointers, group
        self._known: Snapshot = {}
        written = {pointers[o.buffer] for o in step.outputs}
        self._written = {b for b in pointers if pointers[b] in written}

    def snapshot(self) -> Snapshot:
        return dict(self._known)

    def restore(self, snapshot: Snapshot) -> None:
        self._known = dict(snapshot)

    def temporary(self) -> str:
        return self.names.unique("t")

    def values(
        self,
        reads: Mapping[str, Read],
        offset: Offset,
        site: Site,
        totals: Mapping[Scalar, str] | None = None,
    ) -> Values:
        """Names of the values of `reads` and of all positions, at one tile position.

        `totals` names the folds' results, which the positions of an epilogue's gathers may depend on.
        """
        found: Values = {s.index(d): self._position(d, offset) for d in self.step.sizes} | dict(totals or {})
        for name, read in in_order(reads).items():
            found[s.var(name, read.buffer.type.dtype)] = self._value(read, offset, site, found)
        return found

    def _position(self, d: str, offset: Offset) -> str:
        a = dim(d).substitute(self.limits.fixed) + offset.get(d, 0)
        text = affine_text(a)
        return text if len(a.terms) + (a.constant != 0) <= 1 else f"({text})"

    def _value(self, read: Read, offset: Offset, site: Site, known: Values) -> str:
        pointer = self.pointers[read.buffer]
        if read.buffer.type.shape == () and read.buffer.kind == "input":
            return pointer  # passed by value
        lines: list[str] = []
        element = self._element(pointer, read, offset, known, lines)
        in_lane = any(isinstance(offset.get(d), Affine) for d in read.dims())
        level = len(site.loops) if in_lane else self._level(read, site)
        key = (level, id(site.here) if level == len(site.loops) else 0, element)
        if key not in self._known:
            outer = site.loops[level - 1].head if level else site.head
            target = outer if level < len(site.loops) else site.here
            target += lines
            group = self._group(pointer, read, offset, known)
            if len(group) > 1:
                names = [self.names.unique(f"{pointer}_at") for _ in group]
                self._known |= {(*key[:2], e): n for e, n in zip(group, names, strict=True)}
                target += self._load_group(read, group[0], names)
            else:
                self._known[key] = self._load(pointer, read, element, site, target)
        return self._known[key]

    def _group(self, pointer: str, read: Read, offset: Offset, known: Values) -> list[str]:
        """The elements that one instruction loads together with the one at `offset`; none if alone."""
        group = self.group
        first = offset.get(group.dim) if group is not None else None
        if group is None or not isinstance(first, int) or not in_group(read, group.dim):
            return []
        begin = first - first % group.size
        end = min(begin + group.size, self.limits.ranges[group.dim].tile)
        return [self._element(pointer, read, {**offset, group.dim: n}, known, []) for n in range(begin, end)]

    def _load_group(self, read: Read, first: str, names: list[str]) -> list[str]:
        """Weights have registers of their own, so that another group can be in use with theirs."""
        kind = "weights" if read.buffer.kind == "constant" else "values"
        declared = [f"float {name};" for name in names]
        arguments = ", ".join(f"&{name}" for name in (first, *names))
        return [*declared, f"{self.module}_{kind}{len(names)}({arguments});"]

    def _load(self, pointer: str, read: Read, element: str, site: Site, target: list[str]) -> str:
        dtype = read.buffer.type.dtype
        if dtype == "bool":
            return f"({element} != 0u)"
        name = self.names.unique(f"{pointer}_at")
        if site.vector is not None and site.vector.dim in read.dims():
            if dtype != "float32":
                loaded = f"{self.module}_load_{dtype}(&{element})"
                target.append(f"const {self.module}_int32x4_t {name} = {loaded};")
                return name
            lanes = site.vector.lanes
            target.append(f"{self.module}_lanes{lanes}_t {name};")
            target.append(f"{self.module}_load{lanes}(&{element}, &{name});")
            return f"{name}.v"
        target.append(f"const {C_TYPES[dtype]} {name} = {element};")
        return name

    def _level(self, read: Read, site: Site) -> int:
        """How many loops must be open before the position is known; all of them for a written buffer."""
        tested = (self.limits.tested or self.limits.straddling) and self.limits.may_leave(read)
        if read.affine() is None or tested or read.buffer in self._written:
            return len(site.loops)
        variables = [level.variable for level in site.loops]
        return max((variables.index(d) + 1 for d in read.dims() if d in variables), default=0)

    def _element(self, pointer: str, read: Read, offset: Offset, known: Values, lines: list[str]) -> str:
        """The C expression of the element, with its fill where it may lie outside.

        `lines` gains the temporaries that a computed position needs before it.
        """
        shift = {d: dim(d) + n for d, n in offset.items()}
        total, parts, tests = Affine(), [], []
        for i, extent, stride in zip(read.index, read.shape, row_major(read.shape), strict=True):
            factor = "" if stride == 1 else f"{stride} * "
            if isinstance(i, Scalar):
                printer = ScalarPrinter(self.module, known, self.temporary, self.intervals)
                (position,) = printer.print([i])
                lines += printer.lines
                parts.append(factor + position)
                continue
            at = i.substitute(shift).substitute(self.limits.fixed)
            if read.fill is not None and not i.in_range(extent, self.step.sizes):
                tests += self.limits.tests(at, extent)
            if at.divisor == 1:
                total = total + at * stride
            else:
                numerator = affine_text(at.numerator())
                parts.append(
                    f"{factor}({numerator if numerator.isidentifier() else f'({numerator})'} / {at.divisor})"
                )
        if total.terms or total.constant or not parts:
            parts.insert(0, affine_text(total))
        element = f"{pointer}[{' + '.join(parts)}]".replace("+ -", "- ")
        if read.fill is None or not tests:
            return element
        fill = literal(read.fill.attr, read.buffer.type.dtype, self.module)
        return f"({conjunction(tests)}) ? {element} : {fill}"
