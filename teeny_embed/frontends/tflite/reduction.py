"""What runs over axes: sums, means, extrema, positions of extrema, running sums."""

from __future__ import annotations

from math import prod

import numpy as np

from teeny_embed.frontends.tflite.model import Array
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.quantization import (
    quantize_multiplier,
    quotient,
    requantize,
    rescaled,
    to_output,
)
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.graph.tensor import Tensor, call, constant


def _axes(op: Operation, rank: int) -> tuple[int, ...]:
    """Ascending, not negative. Raises DataError."""
    axes = [int(a) for a in op.constant(1).reshape(-1)]
    if any(not -rank <= a < rank for a in axes):
        raise op.error(f"axes {axes} of rank {rank}")
    return tuple(sorted({a % rank for a in axes}))


@converter("SUM MEAN", "float32 int8 int16 uint8 int32")
def total(op: Operation) -> Tensor:
    """Sum, or sum over count; of quantised operands the division is part of the scale."""
    x, keep = op.input(0), bool(op.option("keep_dims"))
    axes = _axes(op, x.rank)
    count = prod(x.shape[a] for a in axes)
    if x.dtype in ("float32", "int32"):
        y = _sum(x, axes).reshape(op.output_info().shape)
        return y if op.name == "SUM" else y / constant(count, x.dtype)
    info, output = op.input_info(0), op.output_info()
    above = x.astype("int32") - info.zero_point
    acc = above.sum(axes, keepdims=keep) if axes else above
    multiplier, shift = quantize_multiplier(quotient(info.scale, output.scale, op.where))
    if op.name == "MEAN":
        places = min(count.bit_length() - 1, 32, 31 + shift)
        multiplier, shift = (multiplier << places) // count, shift - places
    return to_output(requantize(acc, multiplier, shift, "tflite"), output)


def _sum(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """One axis after the other, where they are not adjacent."""
    if axes and axes[-1] - axes[0] < len(axes):
        return x.sum(axes, keepdims=True)
    for axis in axes:
        x = x.sum(axis, keepdims=True)
    return x


@converter("REDUCE_MAX REDUCE_MIN", "float32 int8 int16 uint8 int32", "the output has the input's scale")
def extremum(op: Operation) -> Tensor:
    """The largest or the smallest."""
    x, keep = op.input(0), bool(op.option("keep_dims"))
    axes = _axes(op, x.rank)
    if not axes:
        return x
    if op.name == "REDUCE_MAX":
        return call("max", x, axes=axes, keepdims=keep)
    return _mirrored(call("max", _mirrored(x), axes=axes, keepdims=keep))


@converter("REDUCE_ALL", "bool")
def reduce_all(op: Operation) -> Tensor:
    """Whether all are true."""
    x = op.input(0)
    axes = _axes(op, x.rank)
    if not axes:
        return x
    failing = call(
        "max", call("logical_not", x).astype("int8"), axes=axes, keepdims=bool(op.option("keep_dims"))
    )
    return call("equal", failing, constant(0, "int8"))


def _mirrored(x: Tensor) -> Tensor:
    """In the opposite order: -x, or for integers -1 - x, which always fits."""
    return -x if x.dtype == "float32" else constant(-1, x.dtype) - x


@converter("ARG_MAX ARG_MIN", "float32 int8 int16 uint8 int32")
def position(op: Operation) -> Tensor:
    """The first position of the largest or smallest element along an axis."""
    x = op.input(0)
    axis = int(op.constant(1).reshape(-1)[0])
    if not -x.rank <= axis < x.rank:
        raise op.error(f"axis {axis} of rank {x.rank}")
    found = call("argmax", x if op.name == "ARG_MAX" else _mirrored(x), axis=axis)
    return found.astype(op.output_info().dtype)


SUM_BITS = 20
"""Bits to spare in a running sum of int8."""
LONGEST = 1024
"""Elements of a running sum: its work grows with their square."""


@converter("CUMSUM", "float32 int8 int32")
def running_sum(op: Operation) -> Tensor:
    """The sum of the elements so far along an axis."""
    x = op.input(0)
    axis = int(op.constant(1).reshape(-1)[0])
    if not -x.rank <= axis < x.rank:
        raise op.error(f"axis {axis} of rank {x.rank}")
    if x.dtype != "int8":
        return _running(op, x, axis % x.rank)
    info, output = op.input_info(0), op.output_info()
    fine = call("shift_left", x.astype("int32") - info.zero_point, constant(SUM_BITS, "int32"))
    summed = _running(op, rescaled(fine, 0.5, op.where), axis % x.rank)
    scale = quotient(2 * info.scale, (1 << SUM_BITS) * output.scale, op.where)
    return to_output(rescaled(summed, scale, op.where), output)


def _running(op: Operation, x: Tensor, axis: int) -> Tensor:
    """As a product with a triangle of ones."""
    if x.shape[axis] > LONGEST:
        raise op.error(f"{x.shape[axis]} elements in a row", hint=f"at most {LONGEST}")
    order = (*(a for a in range(x.rank) if a != axis), axis)
    moved = x.transpose(*order)
    rows = moved.reshape(-1, x.shape[axis])
    summed = rows @ constant(_triangle(op, x.shape[axis]), x.dtype)
    return summed.reshape(moved.shape).transpose(*(int(a) for a in np.argsort(order)))


def _triangle(op: Operation, count: int) -> Array:
    """[from, to]: 1 where an element is part of a sum."""
    upper = np.triu(np.ones((count, count)), 1 if op.option("exclusive") else 0)
    return upper.T if op.option("reverse") else upper
