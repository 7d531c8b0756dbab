"""Pools over [N, C, spatial...]."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from teeny_embed.frontends.onnx.contraction import window
from teeny_embed.frontends.onnx.model import Operation
from teeny_embed.frontends.onnx.registry import converter
from teeny_embed.graph.layout import channels_first, channels_last
from teeny_embed.graph.tensor import Tensor, call, constant


def _window(op: Operation, extents: tuple[int, ...]) -> dict[str, Any]:
    """`ceil_mode`: also windows that begin inside and end outside: the padding behind grows."""
    kernel = tuple(op.attribute("kernel_shape"))
    where = window(op, extents, kernel)
    if op.attribute("ceil_mode", 0):
        pads = []
        for e, k, s, d, (b, a) in zip(
            extents, kernel, where["stride"], where["dilation"], where["padding"], strict=True
        ):
            span = d * (k - 1) + 1
            over = (e + b + a - span) % s
            begins_inside = e + b + a - span - over + s < e + b
            pads.append((b, a + (s - over if over and begins_inside else 0)))
        where["padding"] = tuple(pads)
    return {"kernel": kernel, **where}


@converter("MaxPool")
def max_pool(op: Operation) -> Tensor:
    """Padding is never the largest. Positions, the second result, are not computed."""
    x = channels_last(op[0])
    return channels_first(call("max_pool", x, **_window(op, x.shape[1:-1])))


@converter("AveragePool")
def average_pool(op: Operation) -> Tensor:
    """Sum over count: of the elements of the window, padding too if it is to count."""
    x = channels_last(op[0])
    where = _window(op, x.shape[1:-1])
    counts = _counts(op, x.shape[1:-1], where)
    if (counts == prod(where["kernel"])).all():
        return channels_first(call("avg_pool", x, **where))
    divisor = constant(counts[..., np.newaxis], "float32")
    return channels_first(call("sum_pool", x, **where) / divisor)


def _counts(op: Operation, extents: tuple[int, ...], where: dict[str, Any]) -> np.ndarray[Any, Any]:
    """How many elements count in each window; what ceil_mode adds never does."""
    total = np.ones((), np.int64)
    plain = window(op, extents, where["kernel"])["padding"]
    for e, k, s, d, (before, after), (low_pad, high_pad) in zip(
        extents, where["kernel"], where["stride"], where["dilation"], where["padding"], plain, strict=True
    ):
        low, high = (-low_pad, e + high_pad) if op.attribute("count_include_pad", 0) else (0, e)
        starts = np.arange((e + before + after - d * (k - 1) - 1) // s + 1) * s - before
        taps = starts[:, None] + np.arange(k) * d
        total = np.multiply.outer(total, ((taps >= low) & (taps < high)).sum(1))
    return total


@converter("LpPool")
def lp_pool(op: Operation) -> Tensor:
    p = op.attribute("p", 2)
    x = channels_last(call("abs", op[0]))
    powers = x * x if p == 2 else x if p == 1 else call("pow", x, constant(float(p), "float32"))
    total = call("sum_pool", powers, **_window(op, x.shape[1:-1]))
    root = call("sqrt", total) if p == 2 else total
    return channels_first(root if p in (1, 2) else call("pow", total, constant(1.0 / p, "float32")))


@converter("GlobalAveragePool")
def global_average_pool(op: Operation) -> Tensor:
    x = channels_last(op[0])
    return channels_first(call("avg_pool", x, kernel=x.shape[1:-1]))


@converter("GlobalMaxPool")
def global_max_pool(op: Operation) -> Tensor:
    x = channels_last(op[0])
    return channels_first(call("max_pool", x, kernel=x.shape[1:-1]))
