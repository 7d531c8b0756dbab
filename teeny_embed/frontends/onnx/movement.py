"""Shapes, parts and joins, lookups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from teeny_embed.frontends.onnx.model import Array, Operation
from teeny_embed.frontends.onnx.registry import axis_of, converter
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, call, constant


@converter("Reshape")
def reshape(op: Operation) -> Tensor:
    x, shape = op[0], list(op.integers(1, "shape") or ())
    if not op.attribute("allowzero", 0):
        shape = [x.shape[i] if e == 0 else e for i, e in enumerate(shape)]
    return x.reshape(tuple(shape))


@converter("Flatten")
def flatten(op: Operation) -> Tensor:
    x = op[0]
    axis = op.attribute("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    return x.reshape((int(np.prod(x.shape[:axis], dtype=int)), -1))


@converter("Transpose")
def transpose(op: Operation) -> Tensor:
    x = op[0]
    return x.transpose(*op.attribute("perm", range(x.rank)[::-1]))


@converter("Squeeze")
def squeeze(op: Operation) -> Tensor:
    x, axes = op[0], op.integers(1, "axes")
    gone = {axis_of(op, a, x.rank) for a in axes} if axes is not None else set()
    if axes is None:
        gone = {i for i, e in enumerate(x.shape) if e == 1}
    if any(x.shape[a] != 1 for a in gone):
        raise op.error(f"axes {sorted(gone)} of {x.type} are not all of extent 1")
    return x.reshape(tuple(e for i, e in enumerate(x.shape) if i not in gone))


@converter("Unsqueeze")
def unsqueeze(op: Operation) -> Tensor:
    x, axes = op[0], op.integers(1, "axes") or ()
    rank = x.rank + len(axes)
    added = {axis_of(op, a, rank) for a in axes}
    rest = iter(x.shape)
    return x.reshape(tuple(1 if i in added else next(rest) for i in range(rank)))


@converter("Concat")
def concat(op: Operation) -> Tensor:
    """Empty operands add nothing."""
    parts = [op[i] for i in range(op.count) if not (op.is_known(i) and np.size(op.known(i)) == 0)]
    return call("concat", *parts, axis=axis_of(op, op.attribute("axis"), parts[0].rank))


@converter("Split")
def split(op: Operation) -> list[Tensor | Array]:
    """Into parts of given sizes, or equal ones of which the last may be smaller."""
    x = op[0]
    axis = axis_of(op, op.attribute("axis", 0), x.rank)
    sizes = op.integers(1, "split")
    if sizes is None:
        count = op.attribute("num_outputs", len(op.op.outputs))
        size = -(-x.shape[axis] // count)
        sizes = tuple(min(size, x.shape[axis] - i * size) for i in range(count))
    ends = np.cumsum(sizes).tolist()
    if ends[-1] != x.shape[axis]:
        raise op.error(f"sizes {list(sizes)} for an extent of {x.shape[axis]}")
    keys = (slice(a, b) for a, b in zip([0, *ends], ends, strict=False))
    return [part(x, axis, key) if key.start < key.stop else _empty(x, {axis: key}) for key in keys]


def _empty(x: Tensor, keys: Mapping[int, slice]) -> Array:
    """`x` indexed along axes, where nothing is left."""
    stand_in = np.broadcast_to(np.zeros((), x.dtype), x.shape)
    return stand_in[tuple(keys.get(axis, slice(None)) for axis in range(x.rank))].copy()


def part(x: Tensor, axis: int, key: slice) -> Tensor:
    """`x` indexed along one axis."""
    keys = [slice(None)] * x.rank
    keys[axis] = key
    return x[tuple(keys)]


@converter("Slice")
def slices(op: Operation) -> Tensor | Array:
    x = op[0]
    starts, ends = op.integers(1, "starts") or (), op.integers(2, "ends") or ()
    axes = op.integers(3, "axes") or tuple(range(len(starts)))
    steps = op.integers(4) or (1,) * len(starts)
    keys = {
        axis_of(op, axis, x.rank): slice(start, end, step)
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True)
    }
    if not all(range(x.shape[axis])[key] for axis, key in keys.items()):
        return _empty(x, keys)
    for axis, key in keys.items():
        positions = range(x.shape[axis])[key]
        x = part(x, axis, key) if positions.step > 0 else taken(x, axis, list(positions))
    return x


def taken(x: Tensor, axis: int, positions: Sequence[int] | Tensor) -> Tensor:
    """Elements of an axis by position; axes of the positions stand in its place."""
    index = positions if isinstance(positions, Tensor) else constant(np.asarray(positions, np.int32))
    first = x.transpose(axis, *(a for a in range(x.rank) if a != axis))
    found = call("take", first, index)
    count = index.rank
    order = [*range(count, count + axis), *range(count), *range(count + axis, found.rank)]
    return found.transpose(*order)


@converter("Gather")
def gather(op: Operation) -> Tensor:
    x = op[0]
    axis = axis_of(op, op.attribute("axis", 0), x.rank)
    if op.is_known(1):
        positions = np.asarray(op.known(1), np.int64)
        positions = np.where(positions < 0, positions + x.shape[axis], positions)
        if positions.size and not (positions.min() >= 0 and positions.max() < x.shape[axis]):
            raise op.error(f"positions beyond {x.shape[axis]} elements")
        return taken(x, axis, constant(positions.astype(np.int32)))
    return taken(x, axis, from_front(op[1], x.shape[axis]))


@converter("GatherElements")
def gather_elements(op: Operation) -> Tensor:
    """One element of an axis for each position, by its place in memory."""
    x, index = op[0], op[1]
    axis = axis_of(op, op.attribute("axis", 0), x.rank)
    strides = [int(np.prod(x.shape[a + 1 :], dtype=int)) for a in range(x.rank)]
    others = sum(
        (np.arange(e).reshape((-1, *(1,) * (x.rank - a - 1))) * strides[a]
         for a, e in enumerate(index.shape) if a != axis),
        start=np.zeros(index.shape, int),
    )  # fmt: skip
    place = from_front(index, x.shape[axis]) * strides[axis] + constant(others.astype(np.int32))
    return call("take", x.reshape((-1,)), place)


def from_front(index: Tensor, extent: int) -> Tensor:
    """Positions counted from the end are negative."""
    return where(index < 0, index + extent, index)


@converter("GatherND")
def gather_nd(op: Operation) -> Tensor:
    """Slices at tuples of positions, by their place in memory."""
    x, index, batch = op[0], op[1], op.attribute("batch_dims", 0)
    depth = index.shape[-1]
    rest = x.shape[batch + depth :]
    rows = x.reshape((int(np.prod(x.shape[: batch + depth], dtype=int)), *rest))
    place: Tensor | None = None
    for n in range(depth):
        extent = x.shape[batch + n]
        own = from_front(index[..., n], extent)
        place = own if place is None else place * extent + own
    assert place is not None
    if batch:
        counts = np.arange(int(np.prod(x.shape[:batch], dtype=int))) * int(
            np.prod(x.shape[batch : batch + depth], dtype=int)
        )
        first = counts.reshape((*x.shape[:batch], *(1,) * (place.rank - batch)))
        place = place + constant(first.astype(np.int32))
    return call("take", rows, place)


@converter("OneHot")
def one_hot(op: Operation) -> Tensor:
    index, values = op[0], op[2]
    depth = int(np.asarray(op.known(1)).reshape(()))
    rank = index.rank + 1
    axis = axis_of(op, op.attribute("axis", -1), rank)
    shape = (*index.shape[:axis], 1, *index.shape[axis:])
    wide = from_front(index.astype("int32"), depth).reshape(shape)
    places = call("iota", shape=(*index.shape[:axis], depth, *index.shape[axis:]), axis=axis)
    return where(call("equal", places, wide), values[1], values[0])


@converter("Expand")
def expand(op: Operation) -> Tensor:
    x = op[0]
    shape = np.broadcast_shapes(x.shape, op.integers(1) or ())
    return call("expand", x, shape=tuple(map(int, shape)))


@converter("Tile")
def tile(op: Operation) -> Tensor:
    x = op[0]
    for axis, count in enumerate(op.integers(1) or ()):
        x = call("concat", *[x] * count, axis=axis) if count > 1 else x
    return x


@converter("Pad")
def pad(op: Operation) -> Tensor:
    """Constant; the other modes by position, axis after axis."""
    x, mode = op[0], op.attribute("mode", "constant")
    pads = op.integers(1, "pads") or ()
    axes = [axis_of(op, a, x.rank) for a in op.integers(3) or range(x.rank)]
    around = {a: (pads[i], pads[i + len(axes)]) for i, a in enumerate(axes)}
    for axis, (before, after) in around.items():
        if min(before, after) < 0:
            end = x.shape[axis] + min(after, 0)
            x = part(x, axis, slice(max(-before, 0), end))
            around[axis] = (max(before, 0), max(after, 0))
    if mode == "constant":
        value = op.known(2, op.attribute("value", 0.0))
        both = [around.get(a, (0, 0)) for a in range(x.rank)]
        shape = tuple(e + b + a for e, (b, a) in zip(x.shape, both, strict=True))
        number = np.asarray(value).reshape(()).item()
        return call("pad", x, starts=tuple(b for b, _ in both), shape=shape, value=number)
    modes = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    if mode not in modes:
        raise op.error(f"mode {mode!r} is not supported")
    for axis, both_ends in around.items():
        if any(both_ends):
            x = taken(x, axis, np.pad(np.arange(x.shape[axis]), both_ends, modes[mode]).tolist())  # type: ignore[call-overload]
    return x


@converter("DepthToSpace")
def depth_to_space(op: Operation) -> Tensor:
    x, b = op[0], op.attribute("blocksize")
    n, c, h, w = x.shape
    if op.attribute("mode", "DCR") == "DCR":
        y = x.reshape((n, b, b, c // (b * b), h, w)).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape((n, c // (b * b), b, b, h, w)).transpose(0, 1, 4, 2, 5, 3)
    return y.reshape((n, c // (b * b), h * b, w * b))


@converter("SpaceToDepth")
def space_to_depth(op: Operation) -> Tensor:
    x, b = op[0], op.attribute("blocksize")
    n, c, h, w = x.shape
    y = x.reshape((n, c, h // b, b, w // b, b)).transpose(0, 3, 5, 1, 2, 4)
    return y.reshape((n, c * b * b, h // b, w // b))


@converter("Trilu")
def triangle(op: Operation) -> Tensor:
    x, offset = op[0], int(np.asarray(op.known(1, 0)).reshape(()))
    kept = np.tri(x.shape[-2], x.shape[-1], k=offset - (1 if op.attribute("upper", 1) else 0), dtype=bool)
    return where(constant(~kept if op.attribute("upper", 1) else kept), x, 0)
