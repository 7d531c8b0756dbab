"""Quantised convolutions with the vector instructions of Armv8.1-M (MVE, Helium): Cortex-M55, M85.

Dot products: two pixels by four filters at a time, or one pixel by eight filters, 16 deep (VMLADAVA). Windows
of more than one tap are gathered into scratch, unless x can be read as it lies. Depthwise convolutions:
eight channels in the lanes, from a plane that holds 16 channels of some rows with the padding around them.

All that the functions share between layers is told them by the head of a layer's table, so the code exists
once, whatever the number of layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from teeny_embed.kernels import dsp
from teeny_embed.kernels.quantized import Packed, Quantized, Table

_COLUMNS_BYTES = 2048
"""Gathered columns, if two windows need no more."""
_PLANE_BYTES = 4096
"""A plane, if three rows need no more."""


def pack(q: Quantized) -> Packed | None:
    """The kernel for `q`, or None. Results of 16 bits are left to the DSP instructions of such cores."""
    if q.result != "int8":
        return dsp.pack(q)
    q = replace(q, shift=np.where(q.multiplier == 0, 1, q.shift))  # 0 at any shift
    least_shift = 0 if _positive(q) else 1
    if np.any((q.shift < least_shift) | (q.shift > 31)) or max(-q.least, q.greatest) >= 1 << 31:
        return None
    if q.groups == 1:
        return _dot(q) if q.filters >= 4 else None  # fewer would leave half of the sums unused
    if q.groups == q.channels == q.filters and q.channels >= 8:
        return _depthwise(q)
    return None


def _positive(q: Quantized) -> bool:
    """Whether negative results become the least value, so that the ties among them do not matter."""
    return q.output_zero_point == q.low == -128 and q.high == 127


# ---- Dot products -------------------------------------------------------------------------------------


def _dot(q: Quantized) -> Packed:
    in_place = (
        q.kernel == (1, 1)
        and q.padding == (0, 0)
        and (q.out_height - 1) * q.stride[0] < q.height
        and (q.out_width - 1) * q.stride[1] < q.width
    )
    pixels = q.batch * q.out_height * q.out_width
    one_scale = np.unique(q.multiplier).size == np.unique(q.shift).size == 1
    if q.dense and pixels <= 2 and one_scale and q.filters % 8 == 0:
        return _linear(q, pixels)
    if in_place and q.filters % 4 == 0:
        return _pointwise(q, q.dense)
    return _gathered(q)


def _linear(q: Quantized, rows: int) -> Packed:
    tail, whole = _split(q.channels)
    scale = (int(q.multiplier[0]), -int(q.shift[0]))
    head = words([tail, whole, q.filters, q.output_zero_point, q.low, q.high, *scale])
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    parts = [head]
    for o in range(0, q.filters, 8):
        parts += [_blocks(q.filter[o : o + 8]), words(q.bias[o : o + 8][order])]
    return Packed(
        "mve_linear_node",
        ("mve_common", "mve_linear_dot"),
        tables={"layer": np.concatenate(parts)},
        values={"rows": rows, "channels": q.channels, "filters": q.filters},
    )


def _pointwise(q: Quantized, dense: bool) -> Packed:
    layer = _dot_layer(q, q.stride[1] * q.channels)
    values: dict[str, Any] = {"rows": 1, "pixels": q.batch * q.out_height * q.out_width}
    if not dense:
        # one image only: rows of several would not lie at equal distances
        values |= {"rows": q.out_height, "pixels": q.out_width}
        values |= {"x_row": q.stride[0] * q.width * q.channels, "y_row": q.out_width * q.filters}
        if q.batch > 1:
            return _gathered(q)
    return Packed("mve_pointwise_node", ("mve_common", "mve_dot"), tables={"layer": layer}, values=values)


def _gathered(q: Quantized) -> Packed:
    """Columns of windows lie side by side in scratch, so that neighbouring windows overlap there."""
    where = columns(q)
    step = 0 if where["spacing"] > 1 else q.stride[1] * where["column"]
    layer = _dot_layer(replace(q, filter=q.filter.transpose(0, 2, 1, 3)), step)
    group, columns_bytes = where["group"], where["columns_bytes"]
    padded = -(-q.filters // 4) * 4
    spill = padded > q.filters
    values = where | {"spill": spill, "padded": padded, "filters": q.filters}
    return Packed(
        "mve_gathered_node",
        ("mve_common", "mve_runs", "mve_dot"),
        scratch_bytes=columns_bytes + spill * group * padded,
        scratch_dtype="int8",
        tables={"layer": layer},
        values=values,
    )


def columns(q: Quantized) -> dict[str, Any]:
    """How the columns of windows are gathered: what gathered_columns.c.j2 prints."""
    height, width = q.kernel
    column = height * q.channels
    spacing = q.dilation[1]
    fitting = (_COLUMNS_BYTES // column - width) // q.stride[1] + 1
    group = 1 if spacing > 1 else min(max(2, fitting), q.out_width)
    return {
        "group": group, "columns_bytes": ((group - 1) * q.stride[1] + width) * column,
        "rows": q.batch * q.out_height, "image": q.height * q.width * q.channels, "column": column,
        "height": q.height, "width": q.width, "channels": q.channels,
        "out_height": q.out_height, "out_width": q.out_width, "kernel": q.kernel, "stride": q.stride,
        "dilation": q.dilation[0], "spacing": spacing, "padding": q.padding,
        "last_top": q.height - 1 - (height - 1) * q.dilation[0], "zero_point": q.input_zero_point,
    }  # fmt: skip


def _dot_layer(q: Quantized, step: int) -> Table:
    """The table of `q`; pixels of x lie `step` bytes apart."""
    tail, whole = _split(int(np.prod(q.filter.shape[1:])))
    missing = -q.filters % 4
    filters, bias, multiplier, shift = (
        np.concatenate([a, np.zeros((missing, *a.shape[1:]), a.dtype)])
        for a in (q.filter, q.bias, q.multiplier, q.shift)
    )
    parts = [words([tail, whole, step, len(filters), q.output_zero_point, q.low, q.high])]
    for o in range(0, len(filters), 4):
        four = slice(o, o + 4)
        parts += [_blocks(filters[four]), words(bias[four]), words(multiplier[four]), _bytes(-shift[four])]
    return np.concatenate(parts)


def _split(depth: int) -> tuple[int, int]:
    """Bytes of the tail, 1..16, and bytes of the whole blocks before it."""
    whole = (depth - 1) // 16 * 16
    return depth - whole, whole


def _blocks(filters: Table) -> Table:
    """[filters, ...] as [block, filters, 16], the last, incomplete block first."""
    flat = filters.reshape(len(filters), -1)
    tail, whole = _split(flat.shape[1])
    padded = np.pad(flat, ((0, 0), (0, 16 - tail)))
    blocks = padded.reshape(len(filters), whole // 16 + 1, 16).transpose(1, 0, 2)
    return _bytes(np.roll(blocks, 1, axis=0))


def words(values: Any) -> Table:
    """As little-endian words of 32 bits."""
    return np.asarray(values, "<i4").reshape(-1).view(np.uint8)


def _bytes(values: Any) -> Table:
    return np.asarray(values, np.int8).reshape(-1).view(np.uint8)


# ---- Depthwise convolutions -----------------------------------------------------------------------------


def _depthwise(q: Quantized) -> Packed:
    lanes = 16 if q.channels % 16 == 0 else 8
    blocks = -(-q.channels // lanes)
    reach = tuple((k - 1) * d + 1 for k, d in zip(q.kernel, q.dilation, strict=True))
    taken = min(q.width, (q.out_width - 1) * q.stride[1] + reach[1] - q.padding[1])
    width = max(q.padding[1] + taken, (q.out_width - 1) * q.stride[1] + reach[1])
    pitch = 16 * width
    fitting = (_PLANE_BYTES // pitch - reach[0]) // q.stride[0] + 1
    stripe = min(max(1, fitting), q.out_height)
    height = (stripe - 1) * q.stride[0] + reach[0]
    window = _window(q)
    layer = words([
        q.stride[0] * pitch, q.out_width, q.channels, q.output_zero_point, q.low, q.high,
        q.dilation[0] * pitch, 16 * q.dilation[1], 16 * q.stride[1], *q.kernel,
    ])  # fmt: skip
    starts = [min(8 * b, q.channels - 8) for b in range(-(-q.channels // 8))]
    filters = [_eight(q, c) for c in starts]
    values = {
        "window": window, "lanes": lanes, "blocks": blocks, "overlap": q.channels % lanes != 0,
        "stripe": stripe, "plane_height": height, "plane_width": width, "pitch": pitch, "taken": taken,
        "filter_bytes": filters[0].size, "zero_point": q.input_zero_point, "batch": q.batch,
        "channels": q.channels, "height": q.height, "out_height": q.out_height, "stride": q.stride[0],
        "padding": q.padding, "x_row": q.width * q.channels, "y_row": q.out_width * q.channels,
    }  # fmt: skip
    micro = ("mve_common", "mve_depthwise") + (() if window == "mve_depthwise" else (window,))
    return Packed(
        "mve_depthwise_node",
        micro,
        scratch_bytes=height * pitch,
        scratch_dtype="int8",
        tables={"layer": layer, "filters": np.concatenate(filters)},
        values=values,
    )


def _window(q: Quantized) -> str:
    """Template of the function for the window of `q`."""
    usual = q.kernel == (3, 3) and q.dilation[1] == 1 and q.stride[1] in (1, 2) and q.out_width > 1
    if not usual:
        return "mve_depthwise"
    return f"mve_depthwise3x3_{q.stride[1]}" + ("_positive" if _positive(q) else "")


def _eight(q: Quantized, channel: int) -> Table:
    """The filters of eight channels."""
    eight = slice(channel, channel + 8)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    taps = q.filter[eight].reshape(8, -1).T
    return np.concatenate([
        words(q.bias[eight][order]), words(q.multiplier[eight][order]), _bytes(-q.shift[eight][order]),
        _bytes(taps),
    ])  # fmt: skip
