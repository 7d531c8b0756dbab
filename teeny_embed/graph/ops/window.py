"""Pools: maximum and average over windows, and their gradients. Layout [N, spatial..., C]."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from teeny_embed.errors import ShapeError
from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import dim
from teeny_embed.graph.op import NOT_DIFFERENTIABLE, Attribute, Op, Sample, register
from teeny_embed.graph.ops.contraction import EXTENTS, WINDOW_ATTRIBUTES, Geometry, extents, geometry
from teeny_embed.graph.step import Fold, Form, Operand, argmax_folds, max_fold, sum_fold
from teeny_embed.graph.tensor import Tensor, call
from teeny_embed.graph.types import FLOAT, NUMBERS, TensorType, expect

_ATTRIBUTES = {
    "kernel": Attribute("window, one extent per spatial dim", required=True, check=extents),
    **WINDOW_ATTRIBUTES,
}


def _pool_type(
    x: TensorType, kernel: tuple[int, ...], stride: Any, padding: Any, dilation: Any
) -> TensorType:
    if x.rank - 2 != len(kernel) or not kernel:
        hint = "[N, spatial dims, channels]"
        raise ShapeError(f"input {x} for a window of {len(kernel)} spatial dims", hint=hint)
    where = geometry(x.rank - 2, stride or kernel, padding, dilation)
    return x.with_shape((x.shape[0], *where.output_extents(x.shape[1:-1], kernel), x.shape[-1]))


def _max_pool_type(x: TensorType, kernel: tuple[int, ...], **where: Any) -> TensorType:
    expect(NUMBERS, x)
    return _pool_type(x, kernel, **where)


def _avg_pool_type(x: TensorType, kernel: tuple[int, ...], **where: Any) -> TensorType:
    expect(FLOAT, x)
    return _pool_type(x, kernel, **where)


def _index_type(x: TensorType, kernel: tuple[int, ...], **where: Any) -> TensorType:
    return _max_pool_type(x, kernel, **where).with_dtype("uint8" if prod(kernel) <= 256 else "int32")


def _window_form(x: TensorType, kernel: Any, where: Geometry, folds: list[Fold], value: s.Scalar) -> Form:
    out = where.output_extents(x.shape[1:-1], kernel)
    return Form(
        dims={"n": x.shape[0], **where.dims("o", out), "c": x.shape[-1]},
        levels=[where.dims("k", kernel)],
        reads={"x": Operand(0, (dim("n"), *where.window(), dim("c")))},
        folds=folds,
        value=value,
    )


def _position(where: Geometry, kernel: tuple[int, ...]) -> s.Scalar:
    """Row-major number of the kernel position, int32."""
    number = s.const(0, "int32")
    for name, extent in zip(where.names, kernel, strict=True):
        step = s.index("k" + name)
        number = step if number.op == "const" else number * extent + step
    return number


def _max_pool_form(x: TensorType, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Form:
    where = geometry(x.rank - 2, stride or kernel, padding, dilation)
    return _window_form(x, kernel, where, [max_fold("best", s.var("x", x.dtype))], s.var("best", x.dtype))


def _max_pool_index_form(x: TensorType, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Form:
    where = geometry(x.rank - 2, stride or kernel, padding, dilation)
    folds = argmax_folds("best", "place", s.var("x", x.dtype), _position(where, kernel))
    index_dtype = _index_type(x, kernel, stride=stride, padding=padding, dilation=dilation).dtype
    return _window_form(x, kernel, where, list(folds), s.cast(s.var("place", "int32"), index_dtype))


def _max_pool_grad_type(g: TensorType, index: TensorType, extents: tuple[int, ...], **_: Any) -> TensorType:
    expect(FLOAT, g)
    return g.with_shape((g.shape[0], *extents, g.shape[-1]))


def _max_pool_grad_form(
    g: TensorType, index: TensorType, kernel: Any, stride: Any, padding: Any, dilation: Any, extents: Any
) -> Form:
    where = geometry(g.rank - 2, stride or kernel, padding, dilation)
    dims = {"n": g.shape[0], **where.dims("i", extents), "c": g.shape[-1]}
    if where == geometry(g.rank - 2, kernel):
        return _tiled_grad_form(g, index, where, kernel, dims)
    at = (dim("n"), *where.inverse(), dim("c"))
    other = s.not_equal(s.cast(s.var("index", index.dtype), "int32"), _position(where, kernel))
    absent = s.logical_or(other, s.equal(s.var("g", g.dtype), 0))
    fold = sum_fold("acc", s.var("g", g.dtype), absent)
    reads = {"g": Operand(0, at), "index": Operand(1, at)}
    return Form(dims, s.var("acc", g.dtype), reads, [fold], [where.dims("k", kernel)])


def _tiled_grad_form(
    g: TensorType, index: TensorType, where: Geometry, kernel: Any, dims: dict[str, int]
) -> Form:
    """Windows that touch without overlapping: each input lies in at most one, so nothing is summed."""
    at = (dim("n"), *(dim("i" + n) // k for n, k in zip(where.names, kernel, strict=True)), dim("c"))
    place = s.const(0, "int32")
    for name, extent in zip(where.names, kernel, strict=True):
        within = s.remainder(s.index("i" + name), extent)
        place = within if place.op == "const" else place * extent + within
    chosen = s.equal(s.cast(s.var("index", index.dtype), "int32"), place)
    zero = s.const(0, g.dtype)
    reads = {"g": Operand(0, at, fill=zero), "index": Operand(1, at, fill=s.const(0, index.dtype))}
    return Form(dims, s.select(chosen, s.var("g", g.dtype), zero), reads)


def _max_pool_vjp(g: Tensor, ans: Tensor, x: Tensor, **where: Any) -> tuple[Tensor]:
    index = call("max_pool_index", x, **where)
    return (call("max_pool_grad", g, index, extents=x.shape[1:-1], **where),)


def _samples(rng: np.random.Generator) -> list[Sample]:
    x = rng.standard_normal((2, 5, 6, 3), dtype=np.float32)
    overlapping = {"kernel": (3, 3), "stride": (2, 2), "padding": ((1, 1), (1, 0))}
    return [Sample((x,), {"kernel": (2, 2)}), Sample((x,), overlapping), Sample((x[:, 0],), {"kernel": (3,)})]


register(
    Op(
        "max_pool",
        "largest element of each window; NaN if there is one",
        _max_pool_type,
        _max_pool_vjp,
        form=_max_pool_form,
        attributes=_ATTRIBUTES,
        samples=_samples,
    )
)
register(
    Op(
        "max_pool_index",
        "place of the first largest element within its window",
        _index_type,
        NOT_DIFFERENTIABLE,
        form=_max_pool_index_form,
        attributes=_ATTRIBUTES,
        samples=_samples,
    )
)


def _max_pool_grad_vjp(gg: Tensor, ans: Tensor, g: Tensor, index: Tensor, extents: Any, **where: Any) -> Any:
    return call("max_pool_pick", gg, index, **where), None


register(
    Op(
        "max_pool_grad",
        "gradient of max_pool",
        _max_pool_grad_type,
        _max_pool_grad_vjp,
        form=_max_pool_grad_form,
        attributes={**_ATTRIBUTES, **EXTENTS},
    )
)


def _max_pool_pick_form(
    x: TensorType, index: TensorType, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> Form:
    where = geometry(x.rank - 2, stride or kernel, padding, dilation)
    other = s.not_equal(s.cast(s.var("index", index.dtype), "int32"), _position(where, kernel))
    fold = sum_fold("acc", s.var("x", x.dtype), other)
    form = _window_form(x, kernel, where, [fold], s.var("acc", x.dtype))
    place = Operand(1, tuple(dim(d) for d in form.dims))
    return Form(form.dims, form.value, {**form.reads, "index": place}, form.folds, form.levels)


register(
    Op(
        "max_pool_pick",
        "the element of each window that `index` names",
        lambda x, index, **where: _avg_pool_type(x, **where),
        lambda g, ans, x, index, **where: (
            call("max_pool_grad", g, index, extents=x.shape[1:-1], **where),
            None,
        ),
        form=_max_pool_pick_form,
        attributes=_ATTRIBUTES,
    )
)


# ---- Average ------------------------------------------------------------------------------------------


def _avg_pool_form(x: TensorType, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Form:
    where = geometry(x.rank - 2, stride or kernel, padding, dilation)
    value = s.var("acc", x.dtype) / s.const(prod(kernel), x.dtype)
    return _window_form(x, kernel, where, [sum_fold("acc", s.var("x", x.dtype))], value)


def _avg_pool_grad_form(
    g: TensorType, kernel: Any, stride: Any, padding: Any, dilation: Any, extents: Any
) -> Form:
    where = geometry(g.rank - 2, stride or kernel, padding, dilation)
    fold = sum_fold("acc", s.var("g", g.dtype), s.equal(s.var("g", g.dtype), 0))
    return Form(
        {"n": g.shape[0], **where.dims("i", extents), "c": g.shape[-1]},
        s.var("acc", g.dtype) / s.const(prod(kernel), g.dtype),
        {"g": Operand(0, (dim("n"), *where.inverse(), dim("c")))},
        [fold],
        [where.dims("k", kernel)],
    )


def _avg_pool_vjp(g: Tensor, ans: Tensor, x: Tensor, **where: Any) -> tuple[Tensor]:
    return (call("avg_pool_grad", g, extents=x.shape[1:-1], **where),)


def _avg_pool_grad_vjp(gg: Tensor, ans: Tensor, g: Tensor, extents: Any, **where: Any) -> tuple[Tensor]:
    return (call("avg_pool", gg, **where),)


register(
    Op(
        "avg_pool",
        "mean of each window, padding counted as zeros",
        _avg_pool_type,
        _avg_pool_vjp,
        form=_avg_pool_form,
        attributes=_ATTRIBUTES,
        samples=_samples,
    )
)
register(
    Op(
        "avg_pool_grad",
        "gradient of avg_pool",
        lambda g, extents, **where: _max_pool_grad_type(g, g, extents),
        _avg_pool_grad_vjp,
        form=_avg_pool_grad_form,
        attributes={**_ATTRIBUTES, **EXTENTS},
    )
)

# ---- Sum ----------------------------------------------------------------------------------------------


def _sum_pool_type(x: TensorType, kernel: tuple[int, ...], **where: Any) -> TensorType:
    expect(("int8", "uint8", "int16", "int32", *FLOAT), x)
    return _pool_type(x, kernel, **where).with_dtype(x.dtype if x.is_float else "int32")


def _sum_pool_form(x: TensorType, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Form:
    where = geometry(x.rank - 2, stride or kernel, padding, dilation)
    dtype = x.dtype if x.is_float else "int32"
    fold = sum_fold("acc", s.cast(s.var("x", x.dtype), dtype))
    return _window_form(x, kernel, where, [fold], s.var("acc", dtype))


def _sum_pool_vjp(g: Tensor, ans: Tensor, x: Tensor, kernel: Any, **where: Any) -> tuple[Tensor]:
    count = float(prod(kernel))
    return (call("avg_pool_grad", g * count, extents=x.shape[1:-1], kernel=kernel, **where),)


register(
    Op(
        "sum_pool",
        "sum of each window; that of integers is int32",
        _sum_pool_type,
        _sum_pool_vjp,
        form=_sum_pool_form,
        attributes=_ATTRIBUTES,
        samples=_samples,
    )
)
