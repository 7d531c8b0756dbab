"""Input gradients of convolutions by scattering: each cotangent is tested once, not once per kernel position.

The gather form sums, for each input, over kernel positions ascending; scattering visits the outputs in
descending order instead and adds each cotangent's products to a window of inputs. Every input still receives
the same terms in the same order. The result itself holds the running sums, so an epilogue becomes a step of
its own, in place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, dim
from teeny_embed.graph.step import Buffer, Output, Read, Schedule, Step
from teeny_embed.target import Target


@dataclass(frozen=True)
class Axis:
    """One spatial axis: output position o meets input o * stride + k * dilation - padding."""

    input_dim: str
    kernel_dim: str
    output_dim: str
    output_extent: int
    stride: int
    dilation: int
    padding: int


@dataclass(frozen=True)
class Scatter:
    """How a step scatters: read `cotangent` over `axes`, and dims by what becomes of them."""

    cotangent: str
    weight: str
    axes: tuple[Axis, ...]
    outer: tuple[str, ...]
    """Output dims that select a part of both cotangent and result, such as the sample."""
    inner: tuple[str, ...]
    """Output dims that only the weight knows: the input channels."""
    summed: tuple[str, ...]
    """Fold dims that are no kernel position: the output channels."""


def scatter_of(step: Step, target: Target) -> Scatter | None:
    """How `step` scatters, or None. Targets with vectors only, where it was measured to pay."""
    if not target.vector_bytes or len(step.folds) != 1 or len(step.levels) != 1 or len(step.outputs) != 1:
        return None
    fold = step.folds[0]
    names = sorted(step.fold_reads())
    if fold.absent is None or fold.term is None or len(names) != 2:
        return None
    for g, w in (names, names[::-1]):
        is_absent = fold.absent is s.equal(s.var(g, "float32"), 0)
        if is_absent and fold.term is s.var(g, "float32") * s.var(w, "float32"):
            return _scatter(step, g, w)
    return None


def _scatter(step: Step, g: str, w: str) -> Scatter | None:
    out, folded = dict(step.dims), dict(step.levels[0])
    axes, cotangent, weight = [], step.reads[g], step.reads[w]
    for i, extent in zip(cotangent.index, cotangent.shape, strict=True):
        assert isinstance(i, Affine)
        kernel = [d for d in i.dims if d in folded]
        inputs = [d for d in i.dims if d in out]
        if kernel and inputs:
            if (
                len(kernel) > 1
                or len(inputs) > 1
                or i.coefficient(inputs[0]) != 1
                or i.coefficient(kernel[0]) >= 0
            ):
                return None
            name = f"o{inputs[0].removeprefix('i')}"
            dilation = -i.coefficient(kernel[0])
            axes.append(Axis(inputs[0], kernel[0], name, extent, i.divisor, dilation, i.constant))
        elif i.divisor != 1:
            return None
    kernels = {a.kernel_dim for a in axes}
    flat = weight.flat()
    if not axes or flat is None or any(a.input_dim in flat.dims for a in axes):
        return None
    spatial = {a.input_dim for a in axes}
    outer = tuple(d for d in out if d in cotangent.dims() and d not in spatial)
    inner = tuple(d for d in out if d not in cotangent.dims())
    summed = tuple(d for d in folded if d not in kernels)
    return Scatter(g, w, tuple(axes), outer, inner, summed) if inner else None


def split_epilogues(schedule: Schedule, target: Target) -> Schedule:
    """Steps that scatter and have an epilogue, as the sum and a map in place."""
    steps = [new for step in schedule.steps for new in _split(step, target)]
    return replace(schedule, steps=tuple(steps))


def _split(step: Step, target: Target) -> list[Step]:
    if scatter_of(step, target) is None or step.outputs[0].value is step.folds[0].accumulator:
        return [step]
    output = step.outputs[0]
    sums = Buffer(output.buffer.name, output.buffer.type, "activation")
    accumulator = step.folds[0].accumulator
    first = replace(step, outputs=(Output(sums, accumulator),), reads=step.fold_reads())
    index = tuple(dim(d) for d, _ in step.dims)
    reads = {**step.epilogue_reads(), "sums": Read(sums, tuple(e for _, e in step.dims), index)}
    value = s.substitute(output.value, {accumulator: s.var("sums", accumulator.dtype)})
    return [first, replace(step, levels=(), folds=(), reads=reads, outputs=(Output(output.buffer, value),))]
