"""Reductions over axes. The order of a sum is part of its meaning; see `sum`'s attribute `order`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from teeny_embed.errors import AttributeValueError, ShapeError
from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, dim
from teeny_embed.graph.op import NOT_DIFFERENTIABLE, Attribute, Op, Sample, integers, register
from teeny_embed.graph.ops.contraction import normal
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.ops.movement import is_index
from teeny_embed.graph.step import Form, Operand, argmax_folds, max_fold, sum_fold
from teeny_embed.graph.tensor import Tensor, call
from teeny_embed.graph.types import FLOAT, NUMBERS, TOTALS, TensorType, expect

BLOCK = 64  # terms of one block of a "reduce" sum


def _axes(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    return (value,) if isinstance(value, int) else integers(value)


def normalized(axes: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Ascending, not negative; None means all."""
    if axes is None:
        return tuple(range(rank))
    if any(not -rank <= a < rank for a in axes):
        hint = f"axes run from 0 to {rank - 1}, or from -1 backwards"
        raise ShapeError(f"axes {axes} of a tensor of rank {rank}", hint=hint)
    return tuple(sorted({a % rank for a in axes}))


def _reduced_type(x: TensorType, axes: Any, keepdims: bool, **_: Any) -> TensorType:
    gone = normalized(axes, x.rank)
    kept = [(1 if a in gone else e) for a, e in enumerate(x.shape) if keepdims or a not in gone]
    return x.with_shape(kept)


def _kept(x: TensorType, gone: tuple[int, ...]) -> dict[str, int]:
    return {f"d{a}": e for a, e in enumerate(x.shape) if a not in gone}


def _point(x: TensorType, gone: tuple[int, ...]) -> tuple[Affine, ...]:
    return tuple(dim(f"r{a}" if a in gone else f"d{a}") for a in range(x.rank))


def _sum_type(x: TensorType, axes: Any, keepdims: bool, order: str) -> TensorType:
    expect(TOTALS, x)
    return _reduced_type(x, axes, keepdims)


def _mean_type(x: TensorType, axes: Any, keepdims: bool) -> TensorType:
    expect(FLOAT, x)
    return _reduced_type(x, axes, keepdims)


def _max_type(x: TensorType, axes: Any, keepdims: bool) -> TensorType:
    expect(NUMBERS, x)
    return _reduced_type(x, axes, keepdims)


def _sum_form(x: TensorType, axes: Any, keepdims: bool, order: str) -> Form:
    gone = normalized(axes, x.rank)
    if order == "two_level" and 0 not in gone:
        raise AttributeValueError("sum: order two_level without axis 0", hint="axis 0 runs over the samples")
    two_level = order == "two_level" or (not order and 0 in gone)
    folded = {f"r{a}": x.shape[a] for a in gone}
    term, value = sum_fold("acc", s.var("x", x.dtype)), s.var("acc", x.dtype)
    if not x.is_float or two_level or prod(folded.values()) <= BLOCK:
        split = x.is_float and two_level
        levels = [{"r0": folded.pop("r0")}, folded] if split else [folded]
        return Form(_kept(x, gone), value, {"x": Operand(0, _point(x, gone))}, [term], levels)
    shape, index, count = _blocked(x, gone)
    blocks = {"block": -(-count // BLOCK)}
    return Form(_kept(x, gone), value, {"x": Operand(0, index, shape)}, [term], [blocks, {"r": BLOCK}])


def _blocked(x: TensorType, gone: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Affine, ...], int]:
    """The reduced axes as one axis that runs in blocks."""
    first, last = gone[0], gone[-1]
    if gone != tuple(range(first, last + 1)):
        raise ShapeError(
            f"sum over axes {gone} of {x}: more than {BLOCK} terms over axes that are not adjacent",
            hint="transpose first",
        )
    count = prod(x.shape[a] for a in gone)
    shape = (*x.shape[:first], count, *x.shape[last + 1 :])
    flat = dim("block") * BLOCK + dim("r")
    index = (*(dim(f"d{a}") for a in range(first)), flat, *(dim(f"d{a}") for a in range(last + 1, x.rank)))
    return shape, index, count


def restore(g: Tensor, x: Tensor, axes: Any) -> Tensor:
    """A reduced tensor with its axes back, of extent 1."""
    gone = normalized(axes, x.rank)
    return g.reshape(tuple(1 if a in gone else e for a, e in enumerate(x.shape)))


_REDUCED = {
    "axes": Attribute("axes to reduce; all if not given", check=_axes),
    "keepdims": Attribute("keep reduced axes with extent 1", default=False, check=bool),
}


register(
    Op(
        "sum",
        "sum over axes, in a stated order",
        _sum_type,
        lambda g, ans, x, axes, keepdims, order: (call("expand", restore(g, x, axes), shape=x.shape),),
        form=_sum_form,
        attributes={
            **_REDUCED,
            "order": Attribute(
                '"two_level" (samples of axis 0, each summed first), "reduce" (blocks of 64); if not given, '
                "two_level where axis 0 is among the axes",
                default="",
            ),
        },
        samples=lambda rng: [
            Sample((normal(rng, 3, 4, 5),), {"axes": (0, 1)}),
            Sample((normal(rng, 2, 150),), {"axes": 1}),
            Sample((normal(rng, 130),), {"order": "reduce"}),
        ],
    )
)


def _mean(x: Tensor, axes: Any, keepdims: bool) -> Tensor:
    count = prod(x.shape[a] for a in normalized(axes, x.rank))
    return call("sum", x, axes=axes, keepdims=keepdims) / float(count)


register(
    Op(
        "mean",
        "sum / float32(count)",
        _mean_type,
        lambda g, ans, x, axes, keepdims: (
            call("expand", restore(g / float(x.type.count // ans.type.count), x, axes), shape=x.shape),
        ),
        composite=_mean,
        attributes=_REDUCED,
        samples=lambda rng: [Sample((normal(rng, 3, 4),), {"axes": 1, "keepdims": True})],
    )
)


def _max_form(x: TensorType, axes: Any, keepdims: bool) -> Form:
    gone = normalized(axes, x.rank)
    levels = [{f"r{a}": x.shape[a] for a in gone}]
    folds = [max_fold("best", s.var("x", x.dtype))]
    return Form(_kept(x, gone), s.var("best", x.dtype), {"x": Operand(0, _point(x, gone))}, folds, levels)


def _max_vjp(g: Tensor, ans: Tensor, x: Tensor, axes: Any, keepdims: bool) -> tuple[Tensor]:
    """The first of equal elements gets the gradient."""
    gone = normalized(axes, x.rank)
    order = tuple(a for a in range(x.rank) if a not in gone) + gone
    moved = x.transpose(*order)
    flat = moved.reshape((*moved.shape[: x.rank - len(gone)], -1))
    places = call("argmax", flat, axis=-1)
    hit = is_index(places, flat.shape[-1])
    spread = where(hit, g.reshape((*places.shape, 1)), 0.0).reshape(moved.shape)
    return (spread.transpose(*np.argsort(order).tolist()),)


register(
    Op(
        "max",
        "largest element; NaN if there is one",
        _max_type,
        _max_vjp,
        form=_max_form,
        attributes=_REDUCED,
        samples=lambda rng: [Sample((normal(rng, 3, 4, 5),), {"axes": (1,)})],
    )
)


def _argmax_type(x: TensorType, axis: int) -> TensorType:
    expect(NUMBERS, x)
    return _reduced_type(x, (axis,), False).with_dtype("int32")


def _argmax_form(x: TensorType, axis: int) -> Form:
    axis %= x.rank
    folds = argmax_folds("best", "place", s.var("x", x.dtype), s.index(f"r{axis}"))
    reads = {"x": Operand(0, _point(x, (axis,)))}
    return Form(_kept(x, (axis,)), s.var("place", "int32"), reads, folds, [{f"r{axis}": x.shape[axis]}])


register(
    Op(
        "argmax",
        "position of the first largest element",
        _argmax_type,
        NOT_DIFFERENTIABLE,
        form=_argmax_form,
        attributes={"axis": Attribute("axis", default=-1, check=int)},
        samples=lambda rng: [Sample((normal(rng, 3, 4),), {"axis": 0})],
    )
)
