"""Quantised convolutions with the DSP instructions of Armv7E-M and Armv8-M: Cortex-M4, M7, M33.

SMLAD multiplies two pairs of 16-bit numbers. Inputs are widened and doubled once for all filters; weights
stay bytes and are widened while they are used. Dot products: three pixels by two filters at a time, or one
pixel by four filters. Depthwise 3x3: a channel at a time, two neighbouring outputs, down the columns of a
plane that holds some rows with the padding around them.

All that the functions share between layers is told them by the head of a layer's table, so the code exists
once, whatever the number of layers. What does not fit runs as on cores without these instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from teeny_embed.kernels import paired
from teeny_embed.kernels.mve import columns, words
from teeny_embed.kernels.quantized import Packed, Quantized, Table
from teeny_embed.kernels.turns import Distance, Turns, turns

_ROWS = 3
"""Of depthwise filters."""
_PLANE_BYTES = 2048
"""Of a plane, if one row of outputs needs no more."""
_AT_ONCE = 4
"""Filters of a linear layer that are computed together."""
_LARGE = 1024
"""Weights of a linear layer that code of its own pays for: it is about half as large."""


def pack(q: Quantized) -> Packed | None:
    """The kernel for `q`, or None."""
    return _own(paired.with_constants(q)) or paired.pack(q)


def _own(q: Quantized) -> Packed | None:
    if q.shift.min() < 1 or q.shift.max() > 31 or q.multiplier.min() < 1 << 30:
        return None
    if max(-q.least, q.greatest) >= 1 << 30:  # twice a sum is computed
        return None
    if q.result == "int16":
        return _linear_16(q) if q.dense and q.groups == 1 and q.filters >= _AT_ONCE else None
    if q.groups == 1:
        if q.dense and paired.pixels(q) < 3 and q.filter.size >= _LARGE:
            return _linear(q) if q.filters > _AT_ONCE else None  # widening x once pays if it is read again
        return _dot(q) if q.filters > 1 else None
    return _depthwise(q) if _has_plane(q) else None


def _has_plane(q: Quantized) -> bool:
    """Whether q is a depthwise 3x3 convolution, and each window has a row and a column of inputs."""
    if q.groups != q.channels or q.kernel != (_ROWS, 3) or q.dilation != (1, 1):
        return False
    extents = zip((q.height, q.width), (q.out_height, q.out_width), q.stride, q.padding, strict=True)
    inside = all(before < 3 and (out - 1) * s - before < extent for extent, out, s, before in extents)
    return inside and q.stride in ((1, 1), (1, 2), (2, 2), (3, 2))


def _positive(q: Quantized) -> bool:
    """Whether negative results become the least value, so that ties among them do not matter."""
    return q.low >= q.output_zero_point and int(q.shift.max()) <= 20


def _in_place(q: Quantized) -> bool:
    """Whether windows are pixels of x, and nothing else is."""
    return (
        q.kernel == (1, 1)
        and q.padding == (0, 0)
        and (q.out_height - 1) * q.stride[0] < q.height
        and (q.out_width - 1) * q.stride[1] < q.width
    )


def _packed(q: Quantized, kernel: str, micro: tuple[str, ...], scratch: int, **rest: Any) -> Packed:
    """Bounds that are not those of int8 are a pass of its own."""
    clamp = (paired.pixels(q) * q.filters, q.low, q.high) if (q.low, q.high) != (-128, 127) else None
    rest["values"]["clamp"] = clamp
    micro = ("dsp_common", *micro, *(("dsp_clamp",) if clamp else ()))
    return Packed(kernel, micro, (scratch + 3) & ~3, "int8", **rest)


def _origin(q: Quantized) -> int:
    return 2 * q.output_zero_point + 1


# ---- Dot products -------------------------------------------------------------------------------------


def _dot(q: Quantized) -> Packed | None:
    """Sizes come in a table, so that layers share a function."""
    flat = q.filter.reshape(q.filters, -1)
    depth = -(-flat.shape[1] // 4)
    shape = [
        q.batch * q.out_height, q.out_width, q.filters, depth, q.channels, q.stride[0], q.width, q.stride[1],
    ]  # fmt: skip
    values: dict[str, Any] = {"odd": q.filters % 2}
    kernel, scratch, order = "dsp_dot_node", 24 * depth, _pixel_turns(q, 3)
    micro: tuple[str, ...] = ("dsp_expand_tile", "dsp_dot")
    if q.channels % 4 != 0 or not (q.dense or (_in_place(q) and q.batch == 1)):
        where = columns(q)
        flat = q.filter.transpose(0, 2, 1, 3).reshape(q.filters, -1)
        shape[0] = q.out_height
        shape += [q.height, *q.kernel, *q.padding, where["group"], q.input_zero_point, *q.dilation]
        kernel, micro = "dsp_columns_node", ("dsp_runs", "dsp_columns", *micro)
        order = _window_turns(q, where["group"])
        scratch += where["columns_bytes"] + 4 * depth - flat.shape[1]
        values |= {"batch": q.batch, "image": q.height * q.width * q.channels if q.batch > 1 else 0}
    if max(shape) >= 1 << 15:
        return None
    weights = np.pad(flat, ((0, 0), (0, 4 * depth - flat.shape[1]))).reshape(q.filters, depth, 4)
    tables = {"shape": np.asarray(shape, np.int16), "layer": _pairs(q, weights, list(range(q.filters & ~1)))}
    if q.filters % 2:
        tables["last"] = _pairs(q, weights, [q.filters - 2, q.filters - 1])
    return _packed(q, kernel, micro, scratch, tables=tables, values=values, turns=order)


def _pixel_turns(q: Quantized, count: int) -> Turns:
    """`count` pixels at a time, of those that windows are."""
    row, column = (
        np.arange(n) * s for n, s in zip((q.batch * q.out_height, q.out_width), q.stride, strict=True)
    )
    first = ((row[:, None] * q.width + column) * q.channels).reshape(-1)
    ends = np.minimum(np.arange(count, first.size + count, count), first.size) * q.filters
    return turns(first[::count], ends)


def _window_turns(q: Quantized, count: int) -> Turns:
    """`count` outputs of a row at a time, of their windows."""
    image, row, column = np.ix_(np.arange(q.batch), np.arange(q.out_height), np.arange(0, q.out_width, count))
    top, left = (
        np.maximum(at * s - before, 0)
        for at, s, before in zip((row, column), q.stride, q.padding, strict=True)
    )
    end = (image * q.out_height + row) * q.out_width + np.minimum(column + count, q.out_width)
    return turns(((image * q.height + top) * q.width + left) * q.channels, end * q.filters)


def _pairs(q: Quantized, weights: Table, filters: list[int]) -> Table:
    """`weights` [filters, depth, 4] of an even number of `filters`, two by two."""
    depth = weights.shape[1]
    count = len(filters)
    own = weights[filters].reshape(count // 2, 2, depth, 4).transpose(0, 2, 1, 3)
    stream = np.concatenate([
        words(2 * q.bias[filters]).reshape(-1, 8), _bytes(own).reshape(-1, 8 * depth),
        words(q.multiplier[filters]).reshape(-1, 8),
    ], axis=1).reshape(-1)  # fmt: skip
    head = words([depth, count, q.filters, _origin(q), stream.size])
    return np.concatenate([head, stream, _bytes(q.shift[filters] - 1)])


def _linear(q: Quantized) -> Packed:
    depth, padded = -(-q.channels // 4), -(-q.filters // 4) * 4
    table = _fours(q, [*range(q.filters), *[-1] * (padded - q.filters)])
    copied = 8 * depth if q.channels % 4 else 0
    spill = 8 * depth + (4 * depth if copied else 0) if padded > q.filters else 0
    values = {
        "channels": q.channels, "filters": q.filters, "total": paired.pixels(q), "depth": depth,
        "padded": padded, "copied": copied, "spill": spill,
    }  # fmt: skip
    scratch = 8 * depth + (4 * depth if copied else 0) + (padded if spill else 0)
    runs = ("dsp_runs",) if copied or spill else ()
    micro = (*runs, "dsp_expand", "dsp_linear")
    tables = {"layer": table}
    over_x = Distance(4 * depth) if paired.pixels(q) == 1 and not copied else None
    return _packed(
        q, "dsp_linear_node", micro, scratch, tables=tables, values=values, turns=_pixel_turns(q, 1),
        scratch_before_x=over_x,
    )  # fmt: skip


def _linear_16(q: Quantized) -> Packed | None:
    """The last filters, where four do not divide them, are computed with three that come before once more."""
    if q.output_zero_point or (q.low, q.high) != (-(1 << 15), (1 << 15) - 1):
        return None
    depth = -(-q.channels // 4)
    copied = 8 * depth if q.channels % 4 else 0
    tables = {"layer": _fours(q, list(range(q.filters // 4 * 4)))}
    if q.filters % 4:
        tables["last"] = _fours(q, list(range(q.filters - 4, q.filters)))
    values = {
        "channels": q.channels, "filters": q.filters, "total": paired.pixels(q), "depth": depth,
        "copied": copied,
    }  # fmt: skip
    micro = ("dsp_common", *(("dsp_runs",) if copied else ()), "dsp_expand", "dsp_linear_16")
    scratch = 8 * depth + (4 * depth if copied else 0)
    return Packed(
        "dsp_linear_16_node", micro, scratch, "int8", tables=tables, values=values, turns=_pixel_turns(q, 1)
    )


def _fours(q: Quantized, filters: list[int]) -> Table:
    """The layer of `filters`, four by four; -1 stands for none."""
    depth = -(-q.channels // 4)
    flat = np.pad(q.filter.reshape(q.filters, -1), ((0, 1), (0, 4 * depth - q.channels)))
    own = flat[filters].reshape(-1, 4, depth, 4).transpose(0, 2, 1, 3)
    bias = np.pad(2 * q.bias, (0, 1))[filters]
    stream = np.concatenate([words(bias).reshape(-1, 16), _bytes(own).reshape(-1, 16 * depth)], axis=1)
    each = paired.each_has_its_scale(q)
    multiplier, shift = (a[filters] if each else a[:1] for a in (q.multiplier, q.shift))
    head = words([
        depth, len(filters) // 4, _origin(q), int(each), stream.size, stream.size + 4 * multiplier.size,
    ])  # fmt: skip
    return np.concatenate([head, stream.reshape(-1), words(multiplier), _bytes(shift - 1)])


def _bytes(values: Any) -> Table:
    return np.asarray(values).astype(np.int8).reshape(-1).view(np.uint8)


# ---- Depthwise convolutions -----------------------------------------------------------------------------


def _depthwise(q: Quantized) -> Packed:
    """Weights and scales in the order [filter of a channel][channel]."""
    stride, (above, before) = q.stride[0], q.padding
    pairs = q.out_width // 2 if q.stride[1] == 1 else 0
    others = q.out_width - 2 * pairs
    columns = pairs + others + 1
    fitting = (_PLANE_BYTES // (4 * columns) - _ROWS) // stride + 1
    together = min(max(1, fitting), q.out_height)
    column = 4 * ((together - 1) * stride + _ROWS)  # bytes of one in the plane
    half = before % 2
    used = min(q.width, 2 * columns - before) - half
    y_row = q.out_width * q.filters
    multiple = q.filters // q.channels
    layer = [
        q.channels, q.width * q.channels, q.filters, y_row, multiple, _origin(q),
        column, before // 2 * column, half, used // 2, used % 2,
        pairs, 2 * q.filters - together * y_row, others, q.filters - together * y_row,
        column - 4 * stride * together, 4 * stride * together, 4 * stride,
        columns * column // 4, q.input_zero_point, q.height, q.out_height, together, above,
    ]  # fmt: skip
    channel_first = np.arange(q.filters).reshape(q.channels, multiple).T.reshape(-1)
    filters = np.concatenate([q.filter.reshape(-1, 9), q.shift[:, None] - 1], axis=1)
    tables = {
        "layer": np.asarray(layer, np.int32),
        "scales": np.stack([2 * q.bias, q.multiplier], axis=1)[channel_first].reshape(-1),
        "filters": filters[channel_first].astype(np.int8).reshape(-1),
    }
    window = "dsp_depthwise3x3" + ("_positive" if _positive(q) else "")
    values = {"window": window, "batch": q.batch, "multiple": multiple}
    if q.batch > 1:
        values |= {"image": q.height * q.width * q.channels, "out_image": q.out_height * y_row}
    rows = np.minimum(np.arange(0, q.out_height, together), q.out_height - together)
    image = np.arange(q.batch)[:, None]
    top = image * q.height + np.maximum(rows * stride - above, 0)
    order = turns(top * q.width * q.channels, (image * q.out_height + rows + together) * y_row, q.channels)
    return _packed(
        q, "dsp_depthwise_node", ("dsp_plane", window), columns * column, tables=tables, values=values,
        turns=order if multiple == 1 else None,
    )  # fmt: skip
