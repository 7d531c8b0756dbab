"""Movement: which element goes where."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from teeny_embed.frontends.tflite.model import Array
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.quantization import quotient, rescaled, to_output
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.graph.ops.movement import concat
from teeny_embed.graph.tensor import Tensor, call, constant

ANY = "float32 int8 int16 uint8 int32 int64 bool"


def axis_of(op: Operation, axis: int, rank: int) -> int:
    """Counted from the front. Raises DataError."""
    if not -rank <= axis < rank:
        raise op.error(f"axis {axis} of rank {rank}")
    return axis % rank


def gathered(x: Tensor, indices: Array, axis: int) -> Tensor:
    """Elements at known positions along an axis."""
    if np.array_equal(indices, np.arange(x.shape[axis])):
        return x
    order = (axis, *(a for a in range(x.rank) if a != axis))
    taken = call("take", x.transpose(*order), constant(indices.astype(np.int32)))
    return taken.transpose(*(int(a) for a in np.argsort(order)))


# ---- Shapes -----------------------------------------------------------------------------------------------


@converter("RESHAPE SQUEEZE EXPAND_DIMS", ANY)
def reshape(op: Operation) -> Tensor:
    """The file states the shape of every result."""
    return op.input(0).reshape(op.output_info().shape)


@converter("BROADCAST_TO", ANY)
def broadcast_to(op: Operation) -> Tensor:
    """Repeated along axes of extent 1."""
    return call("expand", op.input(0), shape=op.output_info().shape)


@converter("FILL", "int32 int64")
def fill(op: Operation) -> Tensor:
    """One value everywhere."""
    shape = op.output_info().shape
    return call("expand", op.input(1).reshape((1,) * len(shape)), shape=shape)


@converter("ZEROS_LIKE", "float32 int8 int32 int64")
def zeros_like(op: Operation) -> Tensor:
    """0 everywhere."""
    info = op.output_info()
    return call("expand", constant(np.zeros((1,) * len(info.shape)), info.dtype), shape=info.shape)


@converter("SHAPE", ANY)
def shape(op: Operation) -> Tensor:
    """The extents of the operand, which are known."""
    return constant(np.array(op.input_info(0).shape, op.output_info().dtype))


@converter("BROADCAST_ARGS", "int32 int64")
def broadcast_args(op: Operation) -> Tensor:
    """The shape that two known shapes broadcast to."""
    shapes = [tuple(int(e) for e in op.constant(i)) for i in range(2)]
    return constant(np.array(np.broadcast_shapes(*shapes), op.output_info().dtype))


@converter("TRANSPOSE", ANY)
def transpose(op: Operation) -> Tensor:
    """Axes in another order."""
    return op.input(0).transpose(*(int(a) for a in op.constant(1)))


# ---- Joining and splitting --------------------------------------------------------------------------------


@converter("CONCATENATION", ANY)
def concatenation(op: Operation) -> Tensor:
    """One after the other along an axis, in the output's scale."""
    parts = [_in_output_scale(op, i) for i in range(op.input_count)]
    return concat(*parts, axis=axis_of(op, op.option("axis"), parts[0].rank))


def _in_output_scale(op: Operation, number: int) -> Tensor:
    info, output = op.input_info(number), op.output_info()
    x = op.input(number)
    if info.quantization is None or output.quantization is None or x.dtype not in ("int8", "int16", "uint8"):
        return x
    if (info.scale, info.zero_point) == (output.scale, output.zero_point):
        return x
    above = x.astype("int32") - info.zero_point
    return to_output(rescaled(above, quotient(info.scale, output.scale, op.where), op.where), output)


@converter("PACK", ANY)
def pack(op: Operation) -> Tensor:
    """Stacked along a new axis."""
    axis = axis_of(op, op.option("axis"), len(op.output_info().shape))
    parts = [op.input(i) for i in range(op.input_count)]
    shape = (*parts[0].shape[:axis], 1, *parts[0].shape[axis:])
    return concat(*(part.reshape(shape) for part in parts), axis=axis)


@converter("UNPACK", ANY)
def unpack(op: Operation) -> list[Tensor]:
    """The slices along an axis, without it."""
    x = op.input(0)
    axis = axis_of(op, op.option("axis"), x.rank)
    if x.shape[axis] != len(op.info.outputs):
        raise op.error(f"{len(op.info.outputs)} results of {x.type} along axis {axis}")
    rest = (*x.shape[:axis], *x.shape[axis + 1 :])
    return [_part(x, axis, i, i + 1).reshape(rest) for i in range(x.shape[axis])]


@converter("SPLIT", "int32", "values of any type; operand 0 is the axis")
def split(op: Operation) -> list[Tensor]:
    """Equal parts along an axis."""
    x, count = op.input(1), len(op.info.outputs)
    axis = axis_of(op, int(op.constant(0).reshape(-1)[0]), x.rank)
    if x.shape[axis] % count:
        raise op.error(f"{x.type} does not split into {count} along axis {axis}")
    return _parts(x, axis, [x.shape[axis] // count] * count)


@converter("SPLIT_V", ANY)
def split_v(op: Operation) -> list[Tensor]:
    """Parts of the given extents along an axis; one may be -1."""
    x = op.input(0)
    axis = axis_of(op, int(op.constant(2).reshape(-1)[0]), x.rank)
    extents = [int(e) for e in op.constant(1)]
    rest = x.shape[axis] - sum(e for e in extents if e != -1)
    return _parts(x, axis, [rest if e == -1 else e for e in extents])


def _parts(x: Tensor, axis: int, extents: Sequence[int]) -> list[Tensor]:
    ends = np.cumsum(extents).tolist()
    return [_part(x, axis, end - extent, end) for extent, end in zip(extents, ends, strict=True)]


def _part(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    return x[(slice(None),) * axis + (slice(start, stop),)]


# ---- Slices -----------------------------------------------------------------------------------------------


@converter("SLICE", ANY)
def slice_(op: Operation) -> Tensor:
    """From a position, so many elements; -1 means all that are left."""
    x = op.input(0)
    starts, sizes = ([int(v) for v in op.constant(i)] for i in (1, 2))
    ends = [e if n == -1 else a + n for a, n, e in zip(starts, sizes, x.shape, strict=True)]
    if any(not 0 <= a < b <= e for a, b, e in zip(starts, ends, x.shape, strict=True)):
        raise op.error(f"from {starts}, {sizes} elements of {x.type}")
    return x[tuple(slice(a, b) for a, b in zip(starts, ends, strict=True))]


@converter("STRIDED_SLICE", ANY)
def strided_slice(op: Operation) -> Tensor:
    """Python's slices; bits of the masks leave an end open, add an axis or drop one."""
    x = op.input(0)
    begin, end, stride = ([int(v) for v in op.constant(i)] for i in (1, 2, 3))
    if not len(begin) == len(end) == len(stride) or 0 in stride:
        raise op.error(f"begin {begin}, end {end}, strides {stride}")
    key: list[slice] = []
    axis = 0
    for i in range(len(begin)):
        if _bit(op, "ellipsis_mask", i):
            skipped = x.rank - axis - sum(not _bit(op, "new_axis_mask", j) for j in range(i + 1, len(begin)))
            key += [slice(None)] * skipped
            axis += skipped
        elif not _bit(op, "new_axis_mask", i):
            if axis >= x.rank:
                raise op.error(f"more slices than axes of {x.type}")
            key.append(_slice(op, i, begin[i], end[i], stride[i], x.shape[axis]))
            axis += 1
    for axis, part in enumerate(key):
        x = _sliced(op, x, axis, part)
    return x.reshape(op.output_info().shape)


def _bit(op: Operation, mask: str, position: int) -> bool:
    return bool(op.option(mask, 0) >> position & 1)


def _slice(op: Operation, i: int, begin: int, end: int, stride: int, extent: int) -> slice:
    if _bit(op, "shrink_axis_mask", i):
        begin += extent if begin < 0 else 0
        return slice(begin, begin + 1, 1)
    if op.option("offset", False):
        end += begin
    first = None if _bit(op, "begin_mask", i) else begin
    last = None if _bit(op, "end_mask", i) else end
    return slice(first, last, stride)


def _sliced(op: Operation, x: Tensor, axis: int, part: slice) -> Tensor:
    """One axis; also backwards."""
    places = range(*part.indices(x.shape[axis]))
    if len(places) == 0:
        raise op.error(f"nothing of {x.type} is left along axis {axis}")
    if part.step is not None and part.step < 0:
        return gathered(x, np.array(places), axis)
    return x[(slice(None),) * axis + (slice(places.start, places.stop, places.step),)]


@converter("REVERSE_V2", ANY)
def reverse(op: Operation) -> Tensor:
    """Backwards along axes."""
    x = op.input(0)
    for value in op.constant(1).reshape(-1):
        axis = axis_of(op, int(value), x.rank)
        x = gathered(x, np.arange(x.shape[axis])[::-1], axis)
    return x


@converter("DYNAMIC_UPDATE_SLICE", ANY, "at positions that are known")
def dynamic_update_slice(op: Operation) -> Tensor:
    """The operand with a part replaced; the part is moved to where it fits."""
    x, update = op.input(0), op.input(1)
    starts = [
        max(0, min(int(a), e - u)) for a, e, u in zip(op.constant(2), x.shape, update.shape, strict=True)
    ]
    inside = np.zeros(x.shape, bool)
    inside[tuple(slice(a, a + u) for a, u in zip(starts, update.shape, strict=True))] = True
    return call("where", constant(inside), call("pad", update, starts=starts, shape=x.shape), x)


# ---- Gathers ----------------------------------------------------------------------------------------------


@converter("GATHER", ANY, "positions outside are moved to the nearest inside")
def gather(op: Operation) -> Tensor:
    """Slices at positions along an axis."""
    x = op.input(0)
    axis = axis_of(op, op.option("axis", 0), x.rank)
    indices = _positions(op, 1, x.shape[axis])
    if op.option("batch_dims", 0):
        return _gathered_per_sample(op, x, axis, indices)
    order = (axis, *(a for a in range(x.rank) if a != axis))
    taken = call("take", x.transpose(*order), indices)
    front = range(indices.rank, indices.rank + axis)
    rest = range(indices.rank + axis, taken.rank)
    return taken.transpose(*front, *range(indices.rank), *rest)


def _gathered_per_sample(op: Operation, x: Tensor, axis: int, indices: Tensor) -> Tensor:
    """Each sample has positions of its own: samples and their elements become one axis."""
    depth = axis_of(op, op.option("batch_dims"), indices.rank + 1)
    if axis != depth or x.shape[:depth] != indices.shape[:depth]:
        raise op.error(f"{depth} batch dims of {x.type} at {indices.type}, axis {axis}")
    samples, extent = prod(x.shape[:depth]), x.shape[axis]
    starts = np.arange(samples, dtype=np.int32).reshape(x.shape[:depth]) * extent
    rows = x.reshape(samples * extent, *x.shape[axis + 1 :])
    return call(
        "take", rows, indices + constant(starts.reshape(starts.shape + (1,) * (indices.rank - depth)))
    )


def _positions(op: Operation, number: int, extent: int) -> Tensor:
    """int32 in [0, extent). Known ones outside raise DataError, others are moved inside."""
    values = op.known(number)
    if values is None:
        given = op.input(number).astype("int32")
        return call("minimum", call("maximum", given, constant(0, "int32")), constant(extent - 1, "int32"))
    if values.size and not 0 <= values.min() <= values.max() < extent:
        raise op.error(f"position {values.max()} of {extent}")
    return constant(values.astype(np.int32))


@converter("GATHER_ND", ANY, "positions outside are moved to the nearest inside")
def gather_nd(op: Operation) -> Tensor:
    """Slices at positions along the first axes."""
    x, indices = op.input(0), op.input(1).astype("int32")
    depth = indices.shape[-1] if indices.rank else 0
    if not 1 <= depth <= x.rank:
        raise op.error(f"positions {indices.type} in {x.type}")
    limits = constant(np.array(x.shape[:depth], np.int32) - 1)
    inside = call("minimum", call("maximum", indices, constant(0, "int32")), limits)
    strides = np.cumprod([1, *x.shape[depth - 1 : 0 : -1]])[::-1].astype(np.int32)
    flat = (inside * constant(strides.copy())).sum(-1)
    rows = x.reshape(prod(x.shape[:depth]), *x.shape[depth:])
    return call("take", rows, flat)


@converter("EMBEDDING_LOOKUP", "int32", "float32 and int8 tables; operand 0 has the positions")
def embedding_lookup(op: Operation) -> Tensor:
    """Rows of a table; those of a quantised table as real numbers."""
    table, info = op.input(1), op.input_info(1)
    rows = call("take", table, _positions(op, 0, table.shape[0]))
    if op.output_info().dtype == table.dtype:
        return rows
    return (rows.astype("int32") - info.zero_point).astype("float32") * constant(np.float32(info.scale))
