"""A scattering step as plain data for `kernels/scatter.c.j2`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from teeny_embed.emit_c.limits import Level, affine_text, conjunction
from teeny_embed.graph.affine import Affine, dim, row_major
from teeny_embed.graph.step import Buffer, Step
from teeny_embed.kernels.scatter import Axis, Scatter
from teeny_embed.kernels.vectors import ACCUMULATORS, Vector, blocks


@dataclass(frozen=True)
class Lane:
    """One vector of a window: where its inputs and its weights begin, and the lanes that are stored."""

    name: str
    input: str
    weight: str
    first_lane: int
    end_lane: int


@dataclass(frozen=True)
class ScatterNest:
    """What the template prints. All expressions are C; loops run as the names say."""

    module: str
    lanes: int
    count: int
    output: str
    outer: tuple[Level, ...]
    positions: tuple[Level, ...]
    """Output positions, which run backwards from `end` - 1 to 0."""
    inside: str
    """Whether the whole window lies inside the input; empty if it always does."""
    rows: tuple[Level, ...]
    """Kernel positions that the vectors of one turn do not cover."""
    vectors: tuple[Lane, ...]
    summed: tuple[Level, ...]
    cotangent: str
    weights: str
    weight: str
    kernel: tuple[Level, ...]
    tests: str
    inner: tuple[Level, ...]
    element: str


def scatter_nest(
    step: Step, scatter: Scatter, module: str, pointers: Mapping[Buffer, str], lanes: int
) -> ScatterNest:
    """The loops of a scattering step."""
    return _Builder(step, scatter, module, pointers, lanes).nest()


class _Builder:
    def __init__(
        self, step: Step, scatter: Scatter, module: str, pointers: Mapping[Buffer, str], lanes: int
    ) -> None:
        self.step, self.scatter, self.module, self.pointers = step, scatter, module, pointers
        self.sizes = step.sizes
        shape = tuple(e for _, e in step.dims)
        self.position = {
            a.input_dim: dim(a.output_dim) * a.stride + dim(a.kernel_dim) * a.dilation - a.padding
            for a in scatter.axes
        }
        total = Affine()
        for (d, _), stride in zip(step.dims, row_major(shape), strict=True):
            total = total + self.position.get(d, dim(d)) * stride
        self.output_at = total
        weight = step.reads[scatter.weight].flat()
        assert weight is not None
        self.weight_at = weight
        self.run = self._run()
        self.run_count = prod(self.sizes[d] for d in self.run)
        self.lanes = lanes if self.run_count >= lanes else 8

    def _run(self) -> tuple[str, ...]:
        """Innermost dims along which inputs and weights both lie one after the other."""
        run: list[str] = []
        covered = 1
        kernels = tuple(a.kernel_dim for a in self.scatter.axes)
        for d in reversed((*kernels, *self.scatter.inner)):
            if self.output_at.coefficient(d) != covered or self.weight_at.coefficient(d) != covered:
                break
            run.insert(0, d)
            covered *= self.sizes[d]
        return tuple(run)

    @property
    def vectorized(self) -> bool:
        """Whether a run is long enough for vectors and short enough for the registers."""
        return 8 <= self.run_count <= ACCUMULATORS * self.lanes

    def nest(self) -> ScatterNest:
        scatter = self.scatter
        kernels = [a.kernel_dim for a in scatter.axes]
        rows, vectors = self._vectors([d for d in (*kernels, *scatter.inner) if d not in self.run])
        cotangent = self.pointers[self.step.reads[scatter.cotangent].buffer]
        weight = self.pointers[self.step.reads[scatter.weight].buffer]
        return ScatterNest(
            module=self.module,
            lanes=self.lanes,
            count=self.step.count,
            output=self.pointers[self.step.outputs[0].buffer],
            outer=tuple(self._level(d) for d in scatter.outer),
            positions=tuple(Level(a.output_dim, "0", str(a.output_extent), -1) for a in scatter.axes),
            inside=conjunction(self._whole_window()),
            rows=rows,
            vectors=vectors,
            summed=tuple(self._level(d) for d in scatter.summed),
            cotangent=f"{cotangent}[{affine_text(self._cotangent_at())}]",
            weights=weight,
            weight=f"{weight}[{affine_text(self.weight_at)}]",
            kernel=tuple(self._level(d) for d in kernels),
            tests=conjunction(self._tests()),
            inner=tuple(self._level(d) for d in scatter.inner),
            element=affine_text(self.output_at),
        )

    def _level(self, d: str) -> Level:
        return Level(d, "0", str(self.sizes[d]), 1)

    def _cotangent_at(self) -> Affine:
        read = self.step.reads[self.scatter.cotangent]
        spatial = {a.input_dim: a.output_dim for a in self.scatter.axes}
        total = Affine()
        for i, stride in zip(read.index, row_major(read.shape), strict=True):
            assert isinstance(i, Affine)
            own = [d for d in i.dims if d in spatial]
            total = total + (dim(spatial[own[0]]) if own else i) * stride
        return total

    def _vectors(self, rows: list[str]) -> tuple[tuple[Level, ...], tuple[Lane, ...]]:
        """Loops over the dims `rows`, the last of them in tiles, and the vectors of one turn."""
        if not self.vectorized:
            return (), ()
        whole, _, rest = blocks(self.run_count, Vector("", self.lanes, 1))
        starts = [(i, 0, self.lanes) for i in range(0, whole, self.lanes)]
        starts += [(whole + b.offset, b.first_lane, b.end_lane) for b in rest]
        tile = 1
        if rows:
            extent = self.sizes[rows[-1]]
            tile = max(t for t in range(1, extent + 1) if extent % t == 0 and t * len(starts) <= ACCUMULATORS)
        levels = [self._level(d) for d in rows]
        if rows:
            levels[-1].step = tile
        found: list[Lane] = []
        for row in range(tile):
            shift = {d: Affine() for d in self.run}
            if rows:
                shift[rows[-1]] = dim(rows[-1]) + row
            for start, first, end in starts:
                at = affine_text(self.output_at.substitute(shift) + start)
                weight = affine_text(self.weight_at.substitute(shift) + start)
                found.append(Lane(f"sum{len(found)}", at, weight, first, end))
        return tuple(levels), tuple(found)

    def _whole_window(self) -> list[str]:
        """Tests that hold where every kernel position meets an input."""
        tests = []
        for a in self.scatter.axes:
            first = dim(a.output_dim) * a.stride - a.padding
            tests += self._within(a, first, first + (self.sizes[a.kernel_dim] - 1) * a.dilation)
        return tests

    def _tests(self) -> list[str]:
        """Tests that hold where one kernel position meets an input."""
        places = [(a, self.position[a.input_dim]) for a in self.scatter.axes]
        return [t for a, place in places for t in self._within(a, place, place)]

    def _within(self, a: Axis, low: Affine, high: Affine) -> list[str]:
        sizes = {**self.sizes, a.output_dim: a.output_extent}
        tests = [f"{affine_text(low)} >= 0"] if low.bounds(sizes)[0] < 0 else []
        extent = self.sizes[a.input_dim]
        return tests + ([f"{affine_text(high)} < {extent}"] if high.bounds(sizes)[1] >= extent else [])
