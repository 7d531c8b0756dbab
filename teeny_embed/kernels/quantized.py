"""Quantised convolutions: which steps are one, and what a kernel made for them is told.

Kernels for an instruction set see a `Quantized`, whatever operator the step came from, and answer with a
`Packed`: tables packed at build time, the memory they need while they run, and what their templates print.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, dim
from teeny_embed.graph.interval import Accumulator, accumulator_interval, bound, elements_at, limits
from teeny_embed.graph.op import REGISTRY
from teeny_embed.graph.requantize import RULES
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.step import Buffer, Output, Read, Schedule, Source, Step
from teeny_embed.graph.types import TensorType
from teeny_embed.kernels.turns import Distance, Turns

Table = npt.NDArray[Any]
Pack = Callable[["Quantized"], "Packed | None"]
"""A family of kernels: None where the case is not its own."""


@dataclass(frozen=True, eq=False)
class Quantized:
    """An int8 convolution with a constant filter, requantised per output channel by rule `tflite`.

    Input [batch, height, width, channels], filter [filters, kernel..., channels / groups], output [batch,
    out_height, out_width, filters], all row-major. N rows of a linear layer are N pixels of a 1x1
    convolution. What lies outside the input is `input_zero_point`.
    """

    batch: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    filters: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int]
    """Top and left."""
    groups: int
    filter: Table
    bias: Table
    """int32 [filters], with the input's zero point folded in: an accumulator is bias + sum of x w."""
    multiplier: Table
    """int32 [filters], Q31: 0 or 2^30 <= m < 2^31."""
    shift: Table
    """int32 [filters], places to the right; negative ones to the left."""
    input_zero_point: int
    output_zero_point: int
    low: int
    high: int
    """What the result is clamped to."""
    least: int
    greatest: int
    """No accumulator, and no partial sum of one, leaves this interval."""
    result: str
    """Type of the results: int8 or int16."""
    first: int
    """Elements of `x` before the input, which is a part of it."""
    x: Buffer

    @property
    def dense(self) -> bool:
        """Whether the outputs are made of the pixels of the input, of one each and in their order."""
        return (
            self.kernel == self.stride == (1, 1)
            and self.padding == (0, 0)
            and (self.height, self.width) == (self.out_height, self.out_width)
        )


@dataclass(frozen=True, eq=False)
class Packed:
    """A kernel for one step, ready to be printed.

    `kernel` and `micro` name templates: that of the node function, and those of the functions it shares with
    other nodes of the module. `tables` become constants, each an argument of the node function under its
    role; `values` is what the templates print.
    """

    kernel: str
    micro: tuple[str, ...] = ()
    scratch_bytes: int = 0
    """Memory used while the node runs, aligned to 8 bytes."""
    scratch_dtype: str = "uint8"
    """What C takes it for, such as "int8"; `scratch_bytes` is a multiple of its size."""
    tables: Mapping[str, Table] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    turns: Turns | None = None
    """In which order x is read and y written; None where that is not stated."""
    scratch_before_x: Distance | None = None
    """How far before x, if that dies in the step, the scratch must begin at least; None: no overlap."""
    rounding: str = "tflite"
    """The rule by which sums are requantised: a name in graph/requantize.py."""
    first: int = 0
    """Elements of x before the first one that is read."""
    accumulator: Accumulator | None = None
    """`packed_for` sets this and `first`."""


# ---- Passes -------------------------------------------------------------------------------------------


def split_requantized(schedule: Schedule) -> Schedule:
    """Steps that go on computing with their requantised sum, as the requantised sum and a map."""
    return replace(schedule, steps=tuple(new for step in schedule.steps for new in _split(step)))


def _split(step: Step) -> list[Step]:
    if len(step.folds) != 1:
        return [step]
    value = _requantized_value(step)
    if value is None or all(o.value is value for o in step.outputs):
        return [step]
    kept = next((o.buffer for o in step.outputs if o.value is value), None)
    first = step.outputs[0].buffer
    shape = tuple(e for _, e in step.dims)
    sums = kept or Buffer(
        f"{first.name}.sum", TensorType(shape, value.dtype), "activation", origin=first.origin
    )
    before, after = _split_sources(step.sources)
    own = replace(step, outputs=(Output(sums, value),), sources=before)
    contraction = replace(own, reads={**own.fold_reads(), **own.epilogue_reads()})
    mapping = {value: s.var("requantized", value.dtype)}
    outputs = tuple(
        Output(o.buffer, s.substitute(o.value, mapping)) for o in step.outputs if o.buffer is not kept
    )
    read = Read(sums, shape, tuple(dim(d) for d, _ in step.dims))
    reads = {**step.reads, "requantized": read}
    rest = Step(step.dims, (), reads, (), outputs, after)
    if step.folds[0].accumulator in s.leaves(*(o.value for o in outputs)):
        return [step]
    return [contraction, replace(rest, reads=rest.epilogue_reads())]


def _split_sources(sources: tuple[Source, ...]) -> tuple[tuple[Source, ...], tuple[Source, ...]]:
    """Those of the requantised sum, which ends with a cast, and what follows."""
    first = next((i for i, x in enumerate(sources) if x.op.startswith(("conv", "matmul"))), 0)
    end = next((i + 1 for i, x in enumerate(sources) if i > first and x.op == "cast"), len(sources))
    return sources[:end], sources[end:] or sources[-1:]


def with_scratch(step: Step, packed: Packed) -> Step:
    """`step`, which the kernel `packed` runs, with the memory that this needs meanwhile."""
    if packed.scratch_bytes == 0:
        return step
    name = f"{step.outputs[0].buffer.name}.scratch"
    count = packed.scratch_bytes // np.dtype(packed.scratch_dtype).itemsize
    scratch = TensorType((count,), packed.scratch_dtype)
    return replace(step, scratch=Buffer(name, scratch, "scratch"))


def packed_for(step: Step, pack: Pack) -> Packed | None:
    """The kernel of the family `pack` for `step`, or None."""
    q = recognize(step)
    packed = pack(q) if q is not None else None
    if q is None or packed is None:
        return None
    order = packed.turns
    return replace(
        packed,
        first=q.first,
        accumulator=Accumulator("int32", q.least, q.greatest),
        turns=order
        and (replace(order, reads=order.reads + q.first) if q.first % order.multiple == 0 else None),
        scratch_before_x=packed.scratch_before_x if q.first == 0 else None,
    )


# ---- Recognising --------------------------------------------------------------------------------------


def recognize(step: Step) -> Quantized | None:
    """What `step` is as a quantised convolution, or None."""
    if len(step.folds) != 1 or len(step.levels) > 1 or len(step.outputs) != 1:
        return None
    requantized = _requantized_value(step)
    if requantized is None or step.outputs[0].value is not requantized:
        return None
    product = _product(step)
    if product is None:
        return None
    x, w, zero_point = product
    axes = _Axes.of(step, x, w)
    return axes.quantized(step, zero_point) if axes else None


_ACCUMULATOR = s.var("sum", "int32")


def _requantized_value(step: Step) -> Scalar | None:
    """The first int8 or int16 that the epilogue computes as cast(clamp(requantize(sum) + zero point))."""
    for node in s.walk([o.value for o in step.outputs]):
        if node.op == "cast" and node.dtype in ("int8", "int16") and _epilogue(step, node) is not None:
            return node
    return None


@dataclass(frozen=True)
class _Epilogue:
    bias: Scalar | None
    multiplier: Scalar
    shift: Scalar
    zero_point: int
    low: int
    high: int


def _epilogue(step: Step, value: Scalar) -> _Epilogue | None:
    calls = [n for n in s.walk([value]) if n.op == "call" and n.attr is RULES["tflite"]]
    if len(calls) != 1:
        return None
    total, multiplier, shift = calls[0].args
    accumulator = step.folds[0].accumulator
    bias = None
    if total is not accumulator:
        if total.op != "add" or accumulator not in total.args:
            return None
        bias = total.args[1] if total.args[0] is accumulator else total.args[0]
    finish = s.substitute(value, {calls[0]: _ACCUMULATOR})
    if s.leaves(finish) != [_ACCUMULATOR]:
        return None
    zero_point, low, high = _clamp_of(finish.args[0])
    if finish is not s.cast(_clamp(zero_point, low, high), value.dtype):
        return None
    return _Epilogue(bias, multiplier, shift, zero_point, low, high)


def _clamp_of(finish: Scalar) -> tuple[int, int, int]:
    """Zero point and bounds if `finish` adds one and clamps; else anything."""
    low, high = limits("int32")
    while (found := bound(finish)) is not None:
        finish, at_least, at_most = found
        low, high = max(low, at_least), min(high, at_most)
    constant = finish.args[1] if finish.op == "add" else s.const(0, "int32")
    return (int(constant.attr) if constant.op == "const" else 0), low, high


def _clamp(zero_point: int, low: int, high: int) -> Scalar:
    """The epilogue behind a requantisation, as frontends write it."""
    least, greatest = (REGISTRY[name].scalar for name in ("minimum", "maximum"))
    assert least is not None and greatest is not None
    shifted = _ACCUMULATOR + zero_point if zero_point else _ACCUMULATOR
    return greatest(least(shifted, s.const(high, "int32")), s.const(low, "int32"))


def _product(step: Step) -> tuple[str, str, int] | None:
    """Names of the reads of input and constant filter, and the input's zero point."""
    fold = step.folds[0]
    reads = step.fold_reads()
    names = list(reads)
    if len(names) != 2 or fold.start is not s.const(0, "int32") or fold.update.op != "add":
        return None
    for x, w in (names, names[::-1]):
        kinds = [reads[n].buffer.type.dtype for n in (x, w)]
        if reads[w].buffer.kind != "constant" or kinds != ["int8", "int8"]:
            continue
        offsets = [
            n.args[1].attr for n in s.walk([fold.update]) if n.op == "subtract" and n.args[1].op == "const"
        ]
        zero_point = int(offsets[0]) if offsets else 0
        wide, weight = (s.cast(s.var(n, "int8"), "int32") for n in (x, w))
        shifted = wide - zero_point if offsets else wide
        for term in (shifted * weight, weight * shifted):
            if fold.update is fold.accumulator + term:
                return x, w, zero_point
    return None


@dataclass(frozen=True)
class _Axis:
    """One pixel axis of the input: position out * stride + kernel * dilation - padding."""

    extent: int
    out: str | None
    kernel: str | None
    stride: int
    dilation: int
    padding: int


_POINT = _Axis(1, None, None, 1, 1, 0)


@dataclass(frozen=True)
class _Axes:
    """The dims of a step by what they are to a convolution. Raises nothing: `of` gives None."""

    batch: str | None
    rows: _Axis
    columns: _Axis
    group: str | None
    inner: tuple[str, ...]
    """Fold dims that run through the channels of one pixel."""
    outer: str | None
    """The output dim that only the filter knows."""
    first: int
    """Elements of x before the pixels."""
    x: Read
    w: Read

    @staticmethod
    def of(step: Step, x_name: str, w_name: str) -> _Axes | None:
        x, w = step.reads[x_name], step.reads[w_name]
        x_index, w_index = x.affine(), w.affine()
        if x_index is None or w_index is None or any(i.divisor != 1 for i in (*x_index, *w_index)):
            return None
        if x.fill is not None or not all(
            i.in_range(e, step.sizes) for i, e in zip(w_index, w.shape, strict=True)
        ):
            return None
        outputs = [d for d, _ in step.dims]
        own = [d for d in outputs if d in w.dims() and d not in x.dims()]
        shared = [d for d in outputs if d in w.dims() and d in x.dims()]
        if len(own) > 1 or len(shared) > 1:
            return None
        axes = list(zip(x_index, x.shape, strict=True))
        inner: list[str] = []
        while axes and (name := _whole_dim(step, *axes[-1])) and (name in shared or name not in outputs):
            if name not in shared:
                inner.insert(0, name)
            axes.pop()
        if any(set(i.dims) & {*inner, *shared} for i, _ in axes):
            return None
        first, axes = _from_first_pixel(axes, prod(x.shape))
        pixels = [_pixel_axis(step, i, e) for i, e in axes]
        found = [p for p in pixels if p is not None]
        if len(found) != len(pixels) or len(found) > 3:
            return None
        batch = found.pop(0) if len(found) == 3 else _POINT
        if batch.kernel is not None or batch.stride != 1 or batch.padding:
            return None
        rows, columns = [_POINT] * (2 - len(found)) + found
        order = [d for d in (batch.out, rows.out, columns.out, *shared, *own) if d is not None]
        kernels = [d for d in (rows.kernel, columns.kernel, *inner) if d is not None]
        if (
            order != outputs
            or set(kernels) != {d for d, _ in step.fold_dims}
            or len(kernels) != len(set(kernels))
        ):
            return None
        return _Axes(
            batch.out,
            rows,
            columns,
            shared[0] if shared else None,
            tuple(inner),
            own[0] if own else None,
            first,
            x,
            w,
        )

    def quantized(self, step: Step, zero_point: int) -> Quantized | None:
        sizes = step.sizes
        epilogue = _epilogue(step, step.outputs[0].value)
        assert epilogue is not None
        filters = [d for d in (self.group, self.outer) if d is not None]
        kernels = [d for d in (self.rows.kernel, self.columns.kernel) if d is not None]
        groups = sizes[self.group] if self.group else 1
        filter_count = prod(sizes[d] for d in filters)
        kernel = tuple(sizes[a.kernel] if a.kernel else 1 for a in (self.rows, self.columns))
        depth = prod(sizes[d] for d in self.inner)
        weights = elements_at(self.w, (*filters, *kernels, *self.inner), sizes)
        tables = [_table(step, e, filters) for e in (epilogue.bias, epilogue.multiplier, epilogue.shift)]
        if any(t is None for t in tables):
            return None
        bias, multiplier, shift = (np.asarray(t, np.int64) for t in tables)
        weights = weights.reshape(filter_count, *kernel, depth)
        sums = weights.reshape(filter_count, -1).astype(np.int64).sum(axis=1)
        folded = bias - zero_point * sums
        if np.abs(folded).max(initial=0) >= 1 << 31:
            return None
        least, greatest = accumulator_interval(weights, folded, -128, 127)
        if not Accumulator("int32", least, greatest).fits:
            return None
        if groups > 1 and min(self.rows.padding, self.columns.padding) < 0:
            return None  # planes of depthwise kernels begin at the first pixel, or before
        extents = [sizes[a.out] if a.out else 1 for a in (self.rows, self.columns)]
        return Quantized(
            batch=sizes[self.batch] if self.batch else 1,
            height=self.rows.extent, width=self.columns.extent, channels=groups * depth,
            out_height=extents[0], out_width=extents[1], filters=filter_count,
            kernel=(kernel[0], kernel[1]),
            stride=(self.rows.stride, self.columns.stride),
            dilation=(self.rows.dilation, self.columns.dilation),
            padding=(self.rows.padding, self.columns.padding),
            groups=groups, filter=weights, bias=folded.astype(np.int32),
            multiplier=multiplier.astype(np.int32), shift=-shift.astype(np.int32),
            input_zero_point=zero_point, output_zero_point=epilogue.zero_point,
            low=epilogue.low, high=epilogue.high, least=least, greatest=greatest,
            result=step.outputs[0].buffer.type.dtype, first=self.first, x=self.x.buffer,
        )  # fmt: skip


def _whole_dim(step: Step, i: Affine, extent: int) -> str | None:
    """The dim that runs through an axis from end to end, if one does."""
    if len(i.terms) == 1 and i == dim(i.dims[0]) and step.sizes[i.dims[0]] == extent:
        return i.dims[0]
    return None


def _from_first_pixel(axes: list[tuple[Affine, int]], count: int) -> tuple[int, list[tuple[Affine, int]]]:
    """Elements (of `count`) before the first one that is read, and the axes from there: of x[2, 1:] one."""
    first = 0
    for number, (index, extent) in enumerate(axes):
        count //= extent
        skipped = max(0, index.constant)
        first += skipped * count
        if index.terms:
            return first, [(index - skipped, extent - skipped), *axes[number + 1 :]]
    return first, []


def _pixel_axis(step: Step, i: Affine, extent: int) -> _Axis | None:
    outputs = dict(step.dims)
    out = [d for d in i.dims if d in outputs]
    kernel = [d for d in i.dims if d not in outputs]
    if len(out) > 1 or len(kernel) > 1 or any(c < 1 for _, c in i.terms):
        return None
    return _Axis(
        extent,
        out[0] if out else None,
        kernel[0] if kernel else None,
        i.coefficient(out[0]) if out else 1,
        i.coefficient(kernel[0]) if kernel else 1,
        -i.constant,
    )


def _table(step: Step, value: Scalar | None, filters: list[str]) -> Table | None:
    """A constant per output channel as an array, or None if it is none."""
    count = prod(step.sizes[d] for d in filters)
    if value is None:
        return np.zeros(count, np.int64)
    if value.op == "const":
        return np.full(count, value.attr)
    read = step.reads.get(value.attr) if value.op == "var" else None
    if (
        read is None
        or read.buffer.kind != "constant"
        or read.flat() is None
        or set(read.dims()) - set(filters)
    ):
        return None
    return elements_at(read, filters, step.sizes).reshape(-1)
