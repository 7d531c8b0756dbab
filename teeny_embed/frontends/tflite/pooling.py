"""Pools. A window that reaches over the border holds fewer elements, and an average counts only those."""

from __future__ import annotations

import numpy as np

from teeny_embed.frontends.tflite.activation import activated
from teeny_embed.frontends.tflite.model import Array
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.quantization import activation_range, clamp
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.frontends.tflite.windows import Window, element_counts, window
from teeny_embed.graph.tensor import Tensor, call, constant, operator


def _pool_window(op: Operation, x: Tensor) -> tuple[tuple[int, int], Window]:
    if x.rank != 4:
        raise op.error(f"input {x.type}")
    kernel = op.option("filter_height"), op.option("filter_width")
    return kernel, window(op, x.shape[1:3], kernel)


@converter("AVERAGE_POOL_2D", "float32 int8 int16 uint8")
def average_pool_2d(op: Operation) -> Tensor:
    """Sum over count; that of integers is rounded to the nearest, ties away from zero."""
    x = op.input(0)
    kernel, where = _pool_window(op, x)
    total = call("sum_pool", x, kernel=kernel, **where.attributes)
    count = _counts(op, x, kernel, where)
    if x.dtype == "float32":
        return activated(total / constant(count, "float32"), op.activation)
    low, high = activation_range(op.activation, op.output_info())
    return clamp(rounded_quotient(total, count), low, high).astype(x.dtype)


def rounded_quotient(total: Tensor, count: Array) -> Tensor:
    """int32 over positive int32, rounded to the nearest, ties away from zero."""
    half = constant(count // 2, "int32")
    return operator("where")(total > 0, total + half, total - half) / constant(count, "int32")


def _counts(op: Operation, x: Tensor, kernel: tuple[int, int], where: Window) -> Array:
    """One number, or [height, width, 1] where windows differ."""
    counts = element_counts(x.shape[1:3], kernel, where)
    if counts.size == 0 or counts.min() < 1:
        raise op.error(f"windows of {list(kernel)} do not fit into {x.type}")
    return counts[0, 0] if (counts == counts[0, 0]).all() else counts[:, :, np.newaxis]


@converter("L2_POOL_2D", "float32")
def l2_pool_2d(op: Operation) -> Tensor:
    """The root of the mean of the squares."""
    x = op.input(0)
    kernel, where = _pool_window(op, x)
    total = call("sum_pool", x * x, kernel=kernel, **where.attributes)
    return activated(call("sqrt", total / constant(_counts(op, x, kernel, where), "float32")), op.activation)


@converter("MAX_POOL_2D", "float32 int8 int16 uint8")
def max_pool_2d(op: Operation) -> Tensor:
    """The largest element of each window."""
    x = op.input(0)
    kernel, where = _pool_window(op, x)
    best = call("max_pool", x, kernel=kernel, **where.attributes)
    if x.dtype == "float32":
        return activated(best, op.activation)
    return clamp(best, *activation_range(op.activation, op.output_info()))
