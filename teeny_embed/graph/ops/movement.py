"""Movement: which element goes where. What is affine is a view and costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from teeny_embed.errors import DTypeError, ShapeError
from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, dim, fixed
from teeny_embed.graph.op import NOT_DIFFERENTIABLE, Attribute, Op, Sample, integers, register
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.step import Form, Index, Operand, sum_fold
from teeny_embed.graph.tensor import Tensor, call
from teeny_embed.graph.types import FLOAT, TensorType, expect


def out_dims(type: TensorType) -> dict[str, int]:
    """Dims d0, d1, ... of a result."""
    return {f"d{i}": e for i, e in enumerate(type.shape)}


def _arange(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(prod(shape), dtype=np.float32).reshape(shape)


def _reshape_type(x: TensorType, shape: tuple[int, ...]) -> TensorType:
    known = prod(d for d in shape if d != -1)
    hint = f"the extents must multiply to {x.count}; one of them may be -1"
    if shape.count(-1) > 1 or (-1 in shape and (known == 0 or x.count % known)):
        raise ShapeError(f"{x} does not reshape to {list(shape)}", hint=hint)
    result = x.with_shape([x.count // known if d == -1 else d for d in shape])
    if result.count != x.count:
        raise ShapeError(f"{x} has {x.count} elements, shape {list(shape)} has {result.count}", hint=hint)
    return result


register(
    Op(
        "reshape",
        "the same elements, row-major, in another shape",
        _reshape_type,
        lambda g, ans, x, shape: (g.reshape(x.shape),),
        view=lambda x, out, shape: None,
        attributes={"shape": Attribute("extents; one may be -1", required=True, check=integers)},
        samples=lambda rng: [Sample((_arange(2, 3, 4),), {"shape": (6, -1)})],
    )
)


def _axes_order(x: TensorType, axes: tuple[int, ...]) -> TensorType:
    if sorted(axes) != list(range(x.rank)):
        hint = f"name each of the axes 0 to {x.rank - 1} once"
        raise ShapeError(f"axes {axes} do not reorder the {x.rank} axes of {x}", hint=hint)
    return x.with_shape([x.shape[a] for a in axes])


register(
    Op(
        "transpose",
        "axes in another order",
        _axes_order,
        lambda g, ans, x, axes: (g.transpose(*np.argsort(axes).tolist()),),
        view=lambda x, out, axes: tuple(dim(str(axes.index(a))) for a in range(x.rank)),
        attributes={"axes": Attribute("source axis of each result axis", required=True, check=integers)},
        samples=lambda rng: [Sample((_arange(2, 3, 4),), {"axes": (2, 0, 1)})],
    )
)


def _slice_type(
    x: TensorType, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]
) -> TensorType:
    if not len(starts) == len(stops) == len(steps) == x.rank:
        raise ShapeError(f"slice of {x} needs {x.rank} starts, stops and steps", hint="one of each per axis")
    if any(
        a < 0 or b > e or t < 1 or a >= b for a, b, t, e in zip(starts, stops, steps, x.shape, strict=True)
    ):
        text = f"slice {list(starts)} to {list(stops)} step {list(steps)} leaves {x} or is empty"
        raise ShapeError(text, hint="0 <= start < stop <= extent, steps from 1")
    return x.with_shape([len(range(a, b, t)) for a, b, t in zip(starts, stops, steps, strict=True)])


register(
    Op(
        "slice",
        "every step-th element from start to before stop, per axis",
        _slice_type,
        lambda g, ans, x, starts, stops, steps: (call("pad", g, starts=starts, shape=x.shape, steps=steps),),
        view=lambda x, out, starts, stops, steps: tuple(
            (fixed(a) if e == 1 else dim(str(i)) * t + a)
            for i, (a, t, e) in enumerate(zip(starts, steps, out.shape, strict=True))
        ),
        attributes={
            n: Attribute(f"{n} per axis", required=True, check=integers) for n in ("starts", "stops", "steps")
        },
        samples=lambda rng: [Sample((_arange(4, 7),), {"starts": (1, 0), "stops": (3, 6), "steps": (1, 2)})],
    )
)


def _pad_type(x: TensorType, starts: Any, shape: Any, steps: Any, value: float) -> TensorType:
    out, steps = x.with_shape(shape), steps or (1,) * x.rank
    if not len(starts) == len(shape) == len(steps) == x.rank:
        raise ShapeError(f"pad of {x} needs {x.rank} starts, extents and steps", hint="one of each per axis")
    ends = [a + (e - 1) * t for a, e, t in zip(starts, x.shape, steps, strict=True)]
    if any(a < 0 or t < 1 or b >= e for a, b, t, e in zip(starts, ends, steps, shape, strict=True)):
        hint = "0 <= start, and start + (extent - 1) step < extent of the result"
        raise ShapeError(f"{x} at {list(starts)}, step {list(steps)}, leaves {list(shape)}", hint=hint)
    return out


def _pad_form(x: TensorType, starts: Any, shape: Any, steps: Any, value: float) -> Form:
    out = x.with_shape(shape)
    steps = steps or (1,) * x.rank
    index = tuple((dim(f"d{i}") - a).exactly(t) for i, (a, t) in enumerate(zip(starts, steps, strict=True)))
    fill = s.const(value, x.dtype)
    return Form(out_dims(out), s.var("x", x.dtype), {"x": Operand(0, index, fill=fill)})


def _pad_vjp(
    g: Tensor, ans: Tensor, x: Tensor, starts: Any, shape: Any, steps: Any, value: float
) -> tuple[Tensor]:
    steps = steps or (1,) * x.rank
    stops = tuple(a + (e - 1) * t + 1 for a, e, t in zip(starts, x.shape, steps, strict=True))
    return (call("slice", g, starts=tuple(starts), stops=stops, steps=tuple(steps)),)


register(
    Op(
        "pad",
        "x placed at `starts`, `steps` apart, in a tensor filled with `value`",
        _pad_type,
        _pad_vjp,
        form=_pad_form,
        attributes={
            "starts": Attribute("position of the first element, per axis", required=True, check=integers),
            "shape": Attribute("extents of the result", required=True, check=integers),
            "steps": Attribute("distance of elements, per axis; 1 if not given"),
            "value": Attribute("fill", default=0),
        },
        samples=lambda rng: [
            Sample((_arange(2, 3),), {"starts": (1, 2), "shape": (4, 9), "steps": (1, 2), "value": 0.5})
        ],
    )
)


def _expand_view(x: TensorType, out: TensorType, shape: tuple[int, ...]) -> tuple[Affine, ...]:
    lead = len(shape) - x.rank
    return tuple(fixed(0) if e == 1 else dim(str(i + lead)) for i, e in enumerate(x.shape))


def _expand_type(x: TensorType, shape: tuple[int, ...]) -> TensorType:
    try:
        np.broadcast_to(np.empty(x.shape, np.bool_), shape)
    except ValueError:
        hint = "trailing extents must be equal or 1"
        raise ShapeError(f"{x} does not expand to {list(shape)}", hint=hint) from None
    return x.with_shape(shape)


register(
    Op(
        "expand",
        "NumPy's broadcast_to",
        _expand_type,
        lambda g, ans, x, shape: (g,),
        view=_expand_view,
        attributes={"shape": Attribute("extents of the result", required=True, check=integers)},
        samples=lambda rng: [Sample((_arange(3, 1),), {"shape": (2, 3, 4)})],
    )
)


def _concat_type(*xs: TensorType, axis: int) -> TensorType:
    first = xs[0]
    if not -first.rank <= axis < first.rank:
        hint = f"axes run from 0 to {first.rank - 1}, or from -1 backwards"
        raise ShapeError(f"axis {axis} of {first}", hint=hint)

    def others(x: TensorType) -> list[int]:
        return [e for i, e in enumerate(x.shape) if i != axis % first.rank]

    for x in xs:
        if x.dtype != first.dtype:
            hint = "cast one with .astype(...)"
            raise DTypeError(f"operands are {first.dtype} and {x.dtype}", hint=hint)
        if x.rank != first.rank or others(x) != others(first):
            hint = "all extents but that along the axis must be equal"
            raise ShapeError(f"{first} and {x} differ on another axis than {axis}", hint=hint)
    shape = list(first.shape)
    shape[axis] = sum(x.shape[axis] for x in xs)
    return first.with_shape(shape)


def _concat_form(*xs: TensorType, axis: int) -> Form:
    axis %= xs[0].rank
    reads, start = {}, 0
    value: s.Scalar | None = None
    for number, x in reversed(list(enumerate(xs))):
        start = sum(y.shape[axis] for y in xs[:number])
        index = tuple(dim(f"d{i}") - (start if i == axis else 0) for i in range(x.rank))
        reads[f"x{number}"] = Operand(number, index, fill=s.const(0, x.dtype))
        here = s.var(f"x{number}", x.dtype)
        end = start + x.shape[axis]
        value = here if value is None else s.select(s.less(s.index(f"d{axis}"), end), here, value)
    assert value is not None
    return Form(out_dims(_concat_type(*xs, axis=axis)), value, dict(reversed(reads.items())))


def _concat_vjp(g: Tensor, ans: Tensor, *xs: Tensor, axis: int) -> list[Tensor]:
    axis %= ans.rank
    parts, start = [], 0
    for x in xs:
        key = [slice(None)] * ans.rank
        key[axis] = slice(start, start + x.shape[axis])
        parts.append(g[tuple(key)])
        start += x.shape[axis]
    return parts


register(
    Op(
        "concat",
        "operands one after the other along an axis",
        _concat_type,
        _concat_vjp,
        form=_concat_form,
        attributes={"axis": Attribute("axis", default=-1, check=int)},
        samples=lambda rng: [Sample((_arange(2, 3), _arange(2, 1), _arange(2, 2)), {"axis": -1})],
    )
)


def concat(*tensors: Tensor, axis: int = -1) -> Tensor:
    """Operands one after the other along `axis`."""
    return call("concat", *tensors, axis=axis)


# ---- Positions and gathers ----------------------------------------------------------------------------

register(
    Op(
        "iota",
        "int32 positions along one axis",
        lambda shape, axis: TensorType(shape, "int32"),
        NOT_DIFFERENTIABLE,
        form=lambda shape, axis: Form(out_dims(TensorType(shape)), s.index(f"d{axis}"), {}),
        attributes={
            "shape": Attribute("extents", required=True, check=integers),
            "axis": Attribute("axis", required=True, check=int),
        },
        samples=lambda rng: [Sample((), {"shape": (2, 3), "axis": 1})],
    )
)


def _index_check(index: TensorType) -> None:
    if index.dtype != "int32":
        raise DTypeError(f"index is {index.dtype}, expected int32", hint="cast with .astype('int32')")


def _take_type(table: TensorType, index: TensorType) -> TensorType:
    _index_check(index)
    return table.with_shape((*index.shape, *table.shape[1:]))


def _take_form(table: TensorType, index: TensorType) -> Form:
    out = _take_type(table, index)
    dims = list(out_dims(out))
    rows = tuple(dim(d) for d in dims[: index.rank])
    at: tuple[Index, ...] = (s.var("index", "int32"), *(dim(d) for d in dims[index.rank :]))
    return Form(out_dims(out), s.var("x", table.dtype), {"index": Operand(1, rows), "x": Operand(0, at)})


def _take_grad_type(g: TensorType, index: TensorType, extent: int) -> TensorType:
    expect(FLOAT, g)
    _index_check(index)
    return g.with_shape((extent, *g.shape[index.rank :]))


def _take_grad_form(g: TensorType, index: TensorType, extent: int) -> Form:
    folds = {f"p{i}": e for i, e in enumerate(index.shape)}
    rest = {f"d{i}": e for i, e in enumerate(g.shape[index.rank :])}
    other = s.not_equal(s.var("index", "int32"), s.index("row"))
    absent = s.logical_or(other, s.equal(s.var("g", g.dtype), 0))
    return Form(
        {"row": extent, **rest},
        s.var("acc", g.dtype),
        {"index": Operand(1, tuple(map(dim, folds))), "g": Operand(0, tuple(map(dim, (*folds, *rest))))},
        [sum_fold("acc", s.var("g", g.dtype), absent)],
        [{"p0": folds["p0"]}, {p: e for p, e in folds.items() if p != "p0"}] if folds else [{}],
    )


register(
    Op(
        "take",
        "rows of a table: table[index]",
        _take_type,
        lambda g, ans, table, index: (call("take_grad", g, index, extent=table.shape[0]), None),
        form=_take_form,
        index_bounds=lambda table, index: {1: table.shape[0]},
        samples=lambda rng: [Sample((_arange(4, 3), np.array([[3, 0], [1, 3]], "i4")))],
    )
)
register(
    Op(
        "take_grad",
        "gradient of take for its table",
        _take_grad_type,
        lambda gg, ans, g, index, extent: (call("take", gg, index), None),
        form=_take_grad_form,
        attributes={"extent": Attribute("rows of the table", required=True, check=int)},
        samples=lambda rng: [Sample((_arange(3, 2), np.array([3, 0, 3], "i4")), {"extent": 4})],
    )
)


def _pick_type(x: TensorType, index: TensorType) -> TensorType:
    _index_check(index)
    if x.shape[:-1] != index.shape:
        hint = f"reshape it to {list(x.shape[:-1])}"
        raise ShapeError(f"index {index} must have the shape of {x} without its last axis", hint=hint)
    return x.with_shape(index.shape)


def _pick_form(x: TensorType, index: TensorType) -> Form:
    dims = out_dims(_pick_type(x, index))
    rows = tuple(map(dim, dims))
    reads = {"index": Operand(1, rows), "x": Operand(0, (*rows, s.var("index", "int32")))}
    return Form(dims, s.var("x", x.dtype), reads)


def is_index(index: Tensor, extent: int) -> Tensor:
    """bool [..., extent]: where the last axis is `index`."""
    places = call("iota", shape=(extent,), axis=0)
    return call("equal", places, index.reshape((*index.shape, 1)))


register(
    Op(
        "pick",
        "one element of each row: x[..., index[...]]",
        _pick_type,
        lambda g, ans, x, index: (where(is_index(index, x.shape[-1]), g.reshape((*g.shape, 1)), 0.0), None),
        form=_pick_form,
        index_bounds=lambda x, index: {1: x.shape[-1]},
        samples=lambda rng: [Sample((_arange(3, 4), np.array([3, 0, 2], "i4")))],
    )
)
