"""Pools over [N, C, spatial...], or [C, spatial...] for one sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from teeny_embed.errors import ShapeError
from teeny_embed.frontends.torch.registry import as_tuple, converter
from teeny_embed.graph.layout import channels_first, channels_last
from teeny_embed.graph.tensor import Tensor, call, constant

Extents = int | Sequence[int]


def _window(
    x: Tensor, kernel: tuple[int, ...], stride: Extents, padding: Extents, dilation: Extents, ceil_mode: bool
) -> dict[str, Any]:
    """`ceil_mode`: also windows that begin inside and end outside: the padding behind grows."""
    rank = len(kernel)
    steps = as_tuple(stride or kernel, rank)
    apart = as_tuple(dilation, rank)
    pads = []
    for e, k, s, p, d in zip(x.shape[-rank:], kernel, steps, as_tuple(padding, rank), apart, strict=True):
        span = d * (k - 1) + 1
        over = (e + 2 * p - span) % s
        last_start = e + 2 * p - span - over + s
        more = s - over if ceil_mode and over and last_start < e + p else 0
        pads.append((p, p + more))
    return {"kernel": kernel, "stride": steps, "padding": tuple(pads), "dilation": apart}


def _pooled(x: Tensor, rank: int, pool: Callable[[Tensor], Tensor]) -> Tensor:
    """`pool` of the channels-last form; a sample without its axis gets one for the time."""
    if x.rank == rank + 1:
        return _pooled(x.reshape((1, *x.shape)), rank, pool)[0]
    return channels_first(pool(channels_last(x)))


def _max_pool(
    rank: int,
    x: Tensor,
    kernel_size: Extents,
    stride: Extents = (),
    padding: Extents = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, None]:
    """Padding is never the largest. torch's positions, the second result, are not computed."""
    where = _window(x, as_tuple(kernel_size, rank), stride, padding, dilation, ceil_mode)
    return _pooled(x, rank, lambda x: call("max_pool", x, **where)), None


@converter("aten.max_pool2d_with_indices")
def max_pool_2d(
    x: Tensor,
    kernel_size: Extents,
    stride: Extents = (),
    padding: Extents = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, None]:
    return _max_pool(2, x, kernel_size, stride, padding, dilation, ceil_mode)


@converter("aten.max_pool3d_with_indices")
def max_pool_3d(
    x: Tensor,
    kernel_size: Extents,
    stride: Extents = (),
    padding: Extents = 0,
    dilation: Extents = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, None]:
    return _max_pool(3, x, kernel_size, stride, padding, dilation, ceil_mode)


@converter("aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Extents = (),
    padding: Extents = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Sum over count: of all elements of the window, padding too unless torch leaves it out."""
    kernel = tuple(kernel_size)
    rank = len(kernel)
    where = _window(x, kernel, stride, padding, 1, ceil_mode)
    counts = _counts(x.shape[-rank:], where, as_tuple(padding, rank), count_include_pad)
    if divisor_override is not None:
        counts = np.full_like(counts, divisor_override)
    if (counts == prod(kernel)).all():
        return _pooled(x, rank, lambda x: call("avg_pool", x, **where))
    divisor = constant(counts[..., np.newaxis], "float32")
    return _pooled(x, rank, lambda x: call("sum_pool", x, **where) / divisor)


def _counts(
    extents: Sequence[int], where: dict[str, Any], padding: Sequence[int], include: bool
) -> np.ndarray[Any, Any]:
    """How many elements torch counts in each window, [output extents]. What ceil_mode adds never counts."""
    total = np.ones((), np.int64)
    for e, k, s, p, (before, after) in zip(
        extents, where["kernel"], where["stride"], padding, where["padding"], strict=True
    ):
        starts = np.arange((e + before + after - k) // s + 1) * s - before
        low, high = (-p, e + p) if include else (0, e)
        counts = np.minimum(starts + k, high) - np.maximum(starts, low)
        total = np.multiply.outer(total, counts)
    return total


@converter("aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d")
def adaptive_avg_pool(x: Tensor, output_size: Sequence[int]) -> Tensor:
    kernel = _equal_parts(x, output_size)
    return _pooled(x, len(kernel), lambda x: call("avg_pool", x, kernel=kernel))


@converter("aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d")
def adaptive_max_pool(x: Tensor, output_size: Sequence[int]) -> tuple[Tensor, None]:
    kernel = _equal_parts(x, output_size)
    return _pooled(x, len(kernel), lambda x: call("max_pool", x, kernel=kernel)), None


def _equal_parts(x: Tensor, output: Sequence[int]) -> tuple[int, ...]:
    extents = x.shape[-len(output) :]
    if any(e % o for e, o in zip(extents, output, strict=True)):
        hint = "choose an output whose extents divide those of the input"
        raise ShapeError(f"windows of several sizes: {list(extents)} to {list(output)}", hint=hint)
    return tuple(e // o for e, o in zip(extents, output, strict=True))
