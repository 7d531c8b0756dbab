"""Elements replaced at computed positions, update after update: there are few, and their number is known."""

from __future__ import annotations

import numpy as np

from teeny_embed.frontends.onnx.model import Operation
from teeny_embed.frontends.onnx.movement import from_front, part
from teeny_embed.frontends.onnx.registry import axis_of, converter
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, call

_REDUCTIONS = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


def _replaced(op: Operation, hit: Tensor, x: Tensor, update: Tensor) -> Tensor:
    """x with the update where it hits: in its place, or combined with it."""
    reduction = op.attribute("reduction", "none")
    if reduction == "none":
        return where(hit, update, x)
    if reduction not in _REDUCTIONS:
        raise op.error(f"reduction {reduction!r} is not supported")
    return where(hit, call(_REDUCTIONS[reduction], x, update), x)


@converter("ScatterElements", "Scatter")
def scatter_elements(op: Operation) -> Tensor:
    x, index, updates = op[0], op[1], op[2]
    axis = axis_of(op, op.attribute("axis", 0), x.rank)
    wide = tuple(index.shape[a] if a == axis else e for a, e in enumerate(x.shape))
    if index.shape != wide:  # what is beyond the index is hit by none
        starts = (0,) * x.rank
        index = call("pad", from_front(index, x.shape[axis]), starts=starts, shape=wide, value=x.shape[axis])
        updates = call("pad", updates, starts=starts, shape=wide)
    else:
        index = from_front(index, x.shape[axis])
    places = call("iota", shape=x.shape, axis=axis)
    for number in range(index.shape[axis]):
        key = slice(number, number + 1)
        hit = call("equal", places, part(index, axis, key))
        x = _replaced(op, hit, x, part(updates, axis, key))
    return x


@converter("ScatterND")
def scatter_nd(op: Operation) -> Tensor:
    """Slices at tuples of positions."""
    x, index, updates = op[0], op[1], op[2]
    depth = index.shape[-1]
    rest = x.shape[depth:]
    rows = x.reshape((int(np.prod(x.shape[:depth], dtype=int)), *rest))
    place: Tensor | None = None
    for n in range(depth):
        own = from_front(index[..., n], x.shape[n])
        place = own if place is None else place * x.shape[n] + own
    assert place is not None
    place, updates = place.reshape((-1,)), updates.reshape((-1, *rest))
    numbers = call("iota", shape=(rows.shape[0],), axis=0)
    for number in range(place.shape[0]):
        hit = call("equal", numbers, place[number]).reshape((-1, *(1,) * len(rest)))
        rows = _replaced(op, hit, rows, updates[number : number + 1])
    return rows.reshape(x.shape)
