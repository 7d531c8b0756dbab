"""Reductions over axes, softmax and what belongs to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from teeny_embed.frontends.onnx.model import Operation
from teeny_embed.frontends.onnx.movement import part, taken
from teeny_embed.frontends.onnx.registry import CONVERTERS, axis_of, converter
from teeny_embed.graph.tensor import Tensor, call

Reduce = Callable[[Tensor, tuple[int, ...], bool], Tensor]


def _sum(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return call("sum", x, axes=axes, keepdims=keepdims, order="reduce" if x.dtype == "float32" else "")


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """ln of the sum of e^(x - max), plus max: no overflow."""
    most = call("max", x, axes=axes, keepdims=True)
    rest = call("log", _sum(call("exp", x - most), axes, True)) + most
    return rest if keepdims else rest.reshape(tuple(e for a, e in enumerate(x.shape) if a not in axes))


def _plain_sum(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return call("sum", x, axes=axes, keepdims=keepdims)


def _mean(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return call("mean", x, axes=axes, keepdims=keepdims)


def _max(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return call("max", x, axes=axes, keepdims=keepdims)


def _product(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Factor by factor: axes are short where anybody multiplies along them."""
    for axis in axes:
        y = part(x, axis, slice(0, 1))
        for i in range(1, x.shape[axis]):
            y = y * part(x, axis, slice(i, i + 1))
        x = y
    return x if keepdims else x.reshape(tuple(e for a, e in enumerate(x.shape) if a not in axes))


REDUCTIONS: dict[str, Reduce] = {
    "ReduceSum": _plain_sum,
    "ReduceMean": _mean,
    "ReduceMax": _max,
    "ReduceMin": lambda x, axes, keepdims: -_max(-x, axes, keepdims),
    "ReduceSumSquare": lambda x, axes, keepdims: _plain_sum(x * x, axes, keepdims),
    "ReduceProd": _product,
    "ReduceL1": lambda x, axes, keepdims: _plain_sum(call("abs", x), axes, keepdims),
    "ReduceL2": lambda x, axes, keepdims: call("sqrt", _plain_sum(x * x, axes, keepdims)),
    "ReduceLogSum": lambda x, axes, keepdims: call("log", _plain_sum(x, axes, keepdims)),
    "ReduceLogSumExp": _log_sum_exp,
}


def _reduced(reduce: Reduce, op: Operation) -> Tensor:
    x, given = op[0], op.integers(1, "axes")
    if not given and op.attribute("noop_with_empty_axes", 0):
        return reduce(x.reshape((*x.shape, 1)), (x.rank,), False)
    axes = tuple(sorted({axis_of(op, a, x.rank) for a in given or range(x.rank)}))
    if x.dtype == "bool":
        return reduce(x.astype("int8"), axes, bool(op.attribute("keepdims", 1))).astype("bool")
    return reduce(x, axes, bool(op.attribute("keepdims", 1)))


for _name, _reduce in REDUCTIONS.items():
    CONVERTERS[_name] = partial(_reduced, _reduce)


@converter("ArgMax", "ArgMin")
def position(op: Operation) -> Tensor:
    x = op[0]
    axis = axis_of(op, op.attribute("axis", 0), x.rank)
    x = -x if op.op.kind == "ArgMin" else x
    if op.attribute("select_last_index", 0):
        last = x.shape[axis] - 1
        y = last - call("argmax", taken(x, axis, list(range(last, -1, -1))), axis=axis)
    else:
        y = call("argmax", x, axis=axis)
    shape = tuple(1 if a == axis else e for a, e in enumerate(x.shape))
    return y.reshape(shape) if op.attribute("keepdims", 1) else y


@converter("Softmax", "LogSoftmax")
def softmax(op: Operation) -> Tensor:
    """Before version 13 over all axes from the given one on, as one."""
    x, name = op[0], "softmax" if op.op.kind == "Softmax" else "log_softmax"
    if op.version >= 13:
        return call(name, x, axis=axis_of(op, op.attribute("axis", -1), x.rank))
    axis = axis_of(op, op.attribute("axis", 1), x.rank)
    rows = int(np.prod(x.shape[:axis], dtype=int))
    return call(name, x.reshape((rows, -1)), axis=1).reshape(x.shape)


@converter("Hardmax")
def hardmax(op: Operation) -> Tensor:
    x = op[0]
    axis = axis_of(op, op.attribute("axis", -1 if op.version >= 13 else 1), x.rank)
    flat = x if op.version >= 13 else x.reshape((*x.shape[:axis], -1))
    best = call("argmax", flat, axis=axis)
    best = best.reshape(tuple(1 if a == axis else e for a, e in enumerate(flat.shape)))
    places = call("iota", shape=flat.shape, axis=axis)
    return call("equal", places, best).astype(x.dtype).reshape(x.shape)
