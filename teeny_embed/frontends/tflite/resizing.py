"""Images of another size: every position of the result reads one or four positions of the input."""

from __future__ import annotations

import numpy as np

from teeny_embed.frontends.tflite.model import Array
from teeny_embed.frontends.tflite.movement import gathered
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, constant

FINE = 1 << 10
"""Parts of a position in integer interpolation."""


def _extents(op: Operation, x: Tensor) -> tuple[int, int]:
    shape = op.output_info().shape
    if x.rank != 4 or len(shape) != 4 or 0 in shape:
        raise op.error(f"input {x.type}, result of shape {list(shape)}")
    return shape[1], shape[2]


@converter("RESIZE_NEAREST_NEIGHBOR", "float32 int8 int16 uint8")
def nearest(op: Operation) -> Tensor:
    """The nearest element of the input."""
    x = op.input(0)
    for axis, extent in enumerate(_extents(op, x), start=1):
        x = gathered(x, _nearest(x.shape[axis], extent, op), axis)
    return x


def _nearest(size: int, extent: int, op: Operation) -> Array:
    corners, centres = bool(op.option("align_corners")), bool(op.option("half_pixel_centers"))
    f32 = np.float32
    ends = corners and extent > 1
    scale = f32(size - 1) / f32(extent - 1) if ends else f32(size) / f32(extent)
    at = (np.arange(extent, dtype=f32) + f32(0.5 if centres else 0)) * scale
    whole = np.floor(at + f32(0.5)) if corners else np.floor(at)
    return np.asarray(np.clip(whole, 0, size - 1), np.int32)


@converter("RESIZE_BILINEAR", "float32 int8")
def bilinear(op: Operation) -> Tensor:
    """The mean of the four neighbours, weighted by distance; of integers in units of 2^-10 of a position."""
    x = op.input(0)
    height, width = _extents(op, x)
    corners, centres = bool(op.option("align_corners")), bool(op.option("half_pixel_centers"))
    locate = _real_position if x.dtype == "float32" else _fine_position
    (top, bottom, y), (left, right, z) = (
        locate(size, extent, corners, centres)
        for size, extent in zip(x.shape[1:3], (height, width), strict=True)
    )
    one = 1 if x.dtype == "float32" else FINE
    y, z = y.reshape(-1, 1, 1), z.reshape(-1, 1)
    parts = [
        (top, left, (one - y) * (one - z)), (bottom, left, y * (one - z)),
        (top, right, (one - y) * z), (bottom, right, y * z),
    ]  # fmt: skip
    wide = "float32" if x.dtype == "float32" else "int32"
    total, *others = (
        gathered(gathered(x, rows, 1), columns, 2).astype(wide) * constant(weight, wide)
        for rows, columns, weight in parts
        if weight.any()
    )
    for term in others:
        total = total + term
    if x.dtype == "float32":
        return total
    half = FINE * FINE // 2
    rounded = where(total > 0, total + half, total - half) / constant(FINE * FINE, "int32")
    return rounded.astype(x.dtype)


def _real_position(size: int, extent: int, corners: bool, centres: bool) -> tuple[Array, Array, Array]:
    """Lower and upper neighbour of each position, and its distance to the lower one."""
    f32 = np.float32
    scale = f32(size - 1) / f32(extent - 1) if corners and extent > 1 else f32(size) / f32(extent)
    at = np.arange(extent, dtype=f32)
    scaled = (at + f32(0.5)) * scale - f32(0.5) if centres else at * scale
    lower = np.maximum(np.floor(scaled).astype(np.int32), 0)
    upper = np.minimum(np.ceil(scaled).astype(np.int32), size - 1)
    return np.minimum(lower, size - 1), np.maximum(upper, 0), scaled - lower.astype(f32)


def _fine_position(size: int, extent: int, corners: bool, centres: bool) -> tuple[Array, Array, Array]:
    """As `_real_position` in units of 1 / FINE; int64."""
    scale = (FINE * size + extent // 2) // extent
    if corners and extent > 1:
        scale = (FINE * (size - 1) + (extent - 1) // 2) // (extent - 1)
    scaled = np.arange(extent) * scale + (scale // 2 - FINE // 2 if centres else 0)
    lower = np.maximum(np.trunc(scaled / FINE).astype(np.int32), 0)
    upper = np.minimum(np.trunc((scaled + FINE - 1) / FINE).astype(np.int32), size - 1)
    return np.minimum(lower, size - 1), np.maximum(upper, 0), scaled - FINE * lower
