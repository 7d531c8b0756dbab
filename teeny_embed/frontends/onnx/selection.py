"""The largest elements, running sums, crops: what goes along one axis element by element."""

from __future__ import annotations

import numpy as np

from teeny_embed.frontends.onnx.elementwise import DTYPES
from teeny_embed.frontends.onnx.model import Operation
from teeny_embed.frontends.onnx.movement import part, taken
from teeny_embed.frontends.onnx.registry import axis_of, converter
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, call, constant


@converter("TopK")
def top_k(op: Operation) -> list[Tensor]:
    """One after the other; of equal ones those that come first. The second result is where they are."""
    x = op[0]
    count = int(np.asarray(op.known(1, op.attribute("k"))).reshape(()))
    axis = axis_of(op, op.attribute("axis", -1), x.rank)
    if not 0 < count <= x.shape[axis]:
        raise op.error(f"{count} of {x.shape[axis]} elements")
    last = x.transpose(*(a for a in range(x.rank) if a != axis), axis)
    left = last if op.attribute("largest", 1) else _turned(last)
    least = -3.4028234663852886e38 if x.dtype == "float32" else int(np.iinfo(x.dtype).min)
    places = call("iota", shape=left.shape, axis=left.rank - 1)
    values, indices = [], []
    for _ in range(count):
        index = call("argmax", left, axis=-1)
        wide = index.reshape((*index.shape, 1))
        indices.append(wide)
        values.append(call("pick", last, index).reshape(wide.shape))
        left = where(call("equal", places, wide), constant(least, x.dtype), left)
    order = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
    return [call("concat", *parts, axis=-1).transpose(*order) for parts in (values, indices)]


def _turned(x: Tensor) -> Tensor:
    """In the other order."""
    return -x if x.dtype == "float32" else call("bitwise_not", x)


@converter("CumSum")
def running_sum(op: Operation) -> Tensor:
    x = op[0]
    axis = axis_of(op, int(np.asarray(op.known(1)).reshape(())), x.rank)
    extent, backwards = x.shape[axis], bool(op.attribute("reverse", 0))
    places = range(extent)[::-1] if backwards else range(extent)
    first = part(x, axis, slice(0, 1))
    total = call("subtract", first, first) if op.attribute("exclusive", 0) else None
    found: dict[int, Tensor] = {}
    for place in places:
        own = part(x, axis, slice(place, place + 1))
        if op.attribute("exclusive", 0):
            assert total is not None
            found[place], total = total, total + own
        else:
            total = own if total is None else total + own
            found[place] = total
    return call("concat", *(found[i] for i in range(extent)), axis=axis)


@converter("CenterCropPad")
def center(op: Operation) -> Tensor:
    """Cut off or filled up with 0 at both ends, an odd one at the end."""
    x, shape = op[0], op.integers(1) or ()
    for axis, extent in zip(op.attribute("axes", range(x.rank)), shape, strict=True):
        axis = axis_of(op, axis, x.rank)
        more = extent - x.shape[axis]
        if more < 0:
            x = part(x, axis, slice(-more // 2, -more // 2 + extent))
        elif more > 0:
            starts = tuple(more // 2 if a == axis else 0 for a in range(x.rank))
            wide = tuple(extent if a == axis else e for a, e in enumerate(x.shape))
            x = call("pad", x, starts=starts, shape=wide)
    return x


@converter("EyeLike")
def eye_like(op: Operation) -> Tensor:
    x = op[0]
    dtype = DTYPES.get(op.attribute("dtype", 0), x.dtype)
    return constant(np.eye(x.shape[0], x.shape[1], k=op.attribute("k", 0)).astype(dtype))


@converter("ReverseSequence")
def reverse_sequence(op: Operation) -> Tensor:
    """The first elements of each sequence backwards, as many as its length says; the others stay."""
    x, lengths = op[0], op.integers(1) or ()
    time, batch = op.attribute("time_axis", 0), op.attribute("batch_axis", 1)
    rows = []
    for number, length in enumerate(lengths):
        places = [*range(length)[::-1], *range(length, x.shape[time])]
        rows.append(taken(part(x, batch, slice(number, number + 1)), time, places))
    return call("concat", *rows, axis=batch)
