"""Quantised convolutions on cores without SIMD, Armv6-M and Armv7-M: two pixels in one multiplication.

(x0 + 65536 x1) w = x0 w + 65536 x1 w: one product, and one sum of products, holds those of two pixels as long
as the lower one fits 16 bits. Where a sum has to be split is proven here, from the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from teeny_embed.graph import scalar as s
from teeny_embed.graph.interval import accumulator_interval
from teeny_embed.graph.requantize import RULES
from teeny_embed.kernels.quantized import Packed, Quantized, Table

LONGEST_RUN = 16
BYTES_OF_STEP = 14
"""Code for one product in the unrolled loop of paired_dot, on both instruction sets."""
SPLIT = 255
"""128 times this fits the lower half of a sum."""
CHUNK = 32
"""Filters whose sums are kept until they are requantised together."""
SUMS = 100
"""About as many of one filter are."""


def pack(q: Quantized) -> Packed | None:
    """The kernel for `q`: several pixels, one pixel, or channel by channel. None if no bound is proven."""
    q = with_constants(q)
    if q.result != "int8" or not _fits(q):
        return None
    if q.groups == 1:
        several = q.out_height * q.out_width >= 4 or (_pointwise(q) and pixels(q) >= 4)
        return _dot(q) if several else _linear(q)
    return _depthwise(q) if q.groups == q.channels else None


def with_constants(q: Quantized) -> Quantized:
    """The same results; filters whose result is one number for all inputs have no weights any more."""
    flat = q.filter.reshape(q.filters, -1).astype(np.int64)
    reach = np.where(flat > 0, flat, 0).sum(axis=1), np.where(flat < 0, flat, 0).sum(axis=1)
    least = q.bias + reach[0] * -128 + reach[1] * 127
    greatest = q.bias + reach[0] * 127 + reach[1] * -128
    ends = [_requantized(q, np.clip(e, -(1 << 31), (1 << 31) - 1)) for e in (least, greatest)]
    constant = ends[0] == ends[1]
    where = constant.reshape(-1, 1, 1, 1)
    filters = np.where(where, 0, q.filter).astype(np.int8)
    bias = np.where(constant, 4 * (ends[0] - q.output_zero_point), q.bias).astype(np.int32)
    low, high = accumulator_interval(filters, bias.astype(np.int64), -128, 127)
    return replace(
        q, filter=filters, bias=bias,
        multiplier=np.where(constant, 1 << 30, q.multiplier).astype(np.int32),
        shift=np.where(constant, 1, q.shift).astype(np.int32),
        least=low, greatest=high,
    )  # fmt: skip


def _requantized(q: Quantized, sums: Table) -> Table:
    rule = RULES["tflite"]
    values = (sums.astype(np.int32), q.multiplier, -q.shift)
    scaled = s.evaluate(rule.body, dict(zip(rule.parameters, values, strict=True))).astype(np.int64)
    clipped: Table = np.clip(scaled + q.output_zero_point, q.low, q.high)
    return clipped


def _fits(q: Quantized) -> bool:
    """Whether the arithmetic of paired_requantize is exact."""
    low, high = q.shift.min(), q.shift.max()
    addend = (2 * max(q.output_zero_point - q.low, 0) + 1) << (int(high) - 1 if high > 0 else 0)
    return bool(
        max(-q.least, q.greatest) < 1 << 29
        and low >= 1
        and high <= 20
        and abs(q.output_zero_point - q.low) < 512
        and addend < 1 << 30
        and q.multiplier.min() >= 1 << 30
        and q.filter.min() > -128
    )


def pixels(q: Quantized) -> int:
    """Of the output, all images together."""
    return q.batch * q.out_height * q.out_width


def _pointwise(q: Quantized) -> bool:
    return q.dense and q.groups == 1


def _tables(q: Quantized, weights: Table) -> Mapping[str, Table]:
    each = each_has_its_scale(q)
    return {
        "weights": weights,
        "bias": q.bias,
        "multiplier": q.multiplier if each else q.multiplier[:1],
        "shift": (q.shift if each else q.shift[:1]).astype(np.uint8),
    }


def each_has_its_scale(q: Quantized) -> bool:
    """Whether filters have scales of their own."""
    return len(set(zip(q.multiplier.tolist(), q.shift.tolist(), strict=True))) > 1


def _values(q: Quantized) -> dict[str, Any]:
    return {
        "batch": q.batch, "height": q.height, "width": q.width, "channels": q.channels,
        "out_height": q.out_height, "out_width": q.out_width, "filters": q.filters,
        "kernel_height": q.kernel[0], "kernel_width": q.kernel[1],
        "stride_height": q.stride[0], "stride_width": q.stride[1],
        "dilation_height": q.dilation[0], "dilation_width": q.dilation[1],
        "padding_top": q.padding[0], "padding_left": q.padding[1],
        "input_zero_point": q.input_zero_point, "each": int(each_has_its_scale(q)),
        "origin": 2 * (q.output_zero_point - q.low) + 1, "range": q.high - q.low, "low": q.low,
    }  # fmt: skip


# ---- Several pixels -----------------------------------------------------------------------------------


def runs(weights: Table) -> list[list[int]]:
    """One filter's weights in runs whose sums of pairs need no split; none if all are 0."""
    if not weights.any():
        return []
    found: list[list[int]] = [[]]
    total = 0
    for w in weights.tolist():
        if len(found[-1]) == LONGEST_RUN or total + abs(w) > SPLIT:
            found.append([])
            total = 0
        found[-1].append(w)
        total += abs(w)
    return found


def _dot(q: Quantized) -> Packed | None:
    depth = q.kernel[0] * q.kernel[1] * q.channels
    stream: list[int] = []
    for row in q.filter.reshape(q.filters, depth):
        parts = runs(row)
        if len(parts) > 255:
            return None
        stream.append(len(parts))
        for part in parts:
            stream += [BYTES_OF_STEP * (LONGEST_RUN - len(part)), *(w & 255 for w in part)]
    chunk = min(q.filters, CHUNK)
    pointwise = _pointwise(q)
    # outputs whose windows lie inside the input's columns and have neighbouring taps
    first = -(-q.padding[1] // q.stride[1])
    last = (q.width - q.kernel[1] + q.padding[1]) // q.stride[1]
    values = _values(q) | {
        "depth": depth, "chunk": chunk, "pointwise": pointwise,
        "pixels": pixels(q) if pointwise else q.out_height * q.out_width,
        "first_inside": first, "last_inside": last if q.dilation[1] == 1 else -1,
    }  # fmt: skip
    if pointwise:
        values["batch"] = 1
    return Packed(
        "paired_dot_node",
        (
            "paired_common",
            "paired_gather",
            *(() if pointwise else ("paired_windows",)),
            "paired_dot",
            "paired_requantize",
        ),
        scratch_bytes=4 * (2 * depth + 4 * chunk),
        scratch_dtype="int32",
        tables=_tables(q, np.array(stream, np.uint8)),
        values=values,
    )


# ---- One pixel ----------------------------------------------------------------------------------------


def _linear(q: Quantized) -> Packed | None:
    if not _pointwise(q):
        return None
    chunk = max(4, min(q.filters & ~3, CHUNK))
    weights = q.filter.reshape(q.filters, -1)
    missing = max(0, chunk - q.filters)
    weights = np.concatenate([weights, np.zeros((missing, q.channels), np.int8)])
    return Packed(
        "paired_linear_node",
        ("paired_common", "paired_linear", "paired_requantize"),
        scratch_bytes=4 * chunk,
        scratch_dtype="int32",
        tables=_tables(q, weights.reshape(-1)),
        values=_values(q) | {"depth": q.channels, "chunk": chunk, "pixels": pixels(q)},
    )


# ---- Channel by channel -------------------------------------------------------------------------------


def _depthwise(q: Quantized) -> Packed | None:
    taps = q.kernel[0] * q.kernel[1]
    half = -(-q.out_height // 2)
    steps = -(-q.out_width // 2)
    plane_height = (half - 1) * q.stride[0] + (q.kernel[0] - 1) * q.dilation[0] + 1
    plane_width = (2 * steps - 1) * q.stride[1] + (q.kernel[1] - 1) * q.dilation[1] + 1
    used = min(q.width, plane_width - q.padding[1])
    if used < 0:
        return None
    rows = max(1, min(half, SUMS // q.out_width))
    high = (rows - 1) * q.out_width + 2 * steps
    pairs = -(-taps // 2)
    values = _values(q) | {
        "half": half, "lower_half": q.out_height - half, "apart": (q.out_height - half) * q.stride[0],
        "plane": plane_height * plane_width, "plane_height": plane_height, "plane_width": plane_width,
        "used": used, "right": plane_width - q.padding[1] - used,
        "multiple": q.filters // q.channels, "rows": rows, "steps": steps, "high": high, "tap_pairs": pairs,
    }  # fmt: skip
    return Packed(
        "paired_depthwise_node",
        ("paired_common", "paired_plane", "paired_depthwise", "paired_requantize"),
        scratch_bytes=4 * (plane_height * plane_width + 4 * pairs + 2 * high),
        scratch_dtype="int32",
        tables=_tables(q, q.filter.reshape(-1)),
        values=values,
    )
