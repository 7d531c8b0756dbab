"""Resize and Upsample: along each axis a linear map, known when the model is read.

Coordinates, filters and what lies outside are those of the operator's definition (ONNX, operator Resize).
Where each result is one element, elements are taken; else the axis is multiplied by a matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor
from typing import Any

import numpy as np

from teeny_embed.frontends.onnx.model import Array, Operation
from teeny_embed.frontends.onnx.movement import taken
from teeny_embed.frontends.onnx.registry import axis_of, converter
from teeny_embed.graph.tensor import Tensor, constant

Coordinate = Callable[[int, float, int, int, float, float], float]
"""coordinate(i, scale, extent, output extent, begin and end of the region) -> where output i lies."""
COORDINATES: dict[str, Coordinate] = {
    "asymmetric": lambda i, s, n, m, a, b: i / s,
    "half_pixel": lambda i, s, n, m, a, b: (i + 0.5) / s - 0.5,
    "pytorch_half_pixel": lambda i, s, n, m, a, b: (i + 0.5) / s - 0.5 if m > 1 else 0.0,
    "half_pixel_symmetric": lambda i, s, n, m, a, b: n / 2 * (1 - m / (s * n)) + (i + 0.5) / s - 0.5,
    "align_corners": lambda i, s, n, m, a, b: i * (n - 1) / (s * n - 1) if m > 1 else 0.0,
    "tf_half_pixel_for_nn": lambda i, s, n, m, a, b: (i + 0.5) / s,
    "tf_crop_and_resize": lambda i, s, n, m, a, b: (
        a * (n - 1) + i * (b - a) * (n - 1) / (m - 1) if m > 1 else 0.5 * (a + b) * (n - 1)
    ),
}
NEAREST: dict[str, Callable[[float], float]] = {
    "round_prefer_floor": lambda x: ceil(x - 0.5),
    "round_prefer_ceil": lambda x: floor(x + 0.5),
    "floor": floor,
    "ceil": ceil,
}


@converter("Resize", "Upsample")
def resize(op: Operation) -> Tensor:
    x = op[0]
    axes = [axis_of(op, a, x.rank) for a in op.attribute("axes", range(x.rank))]
    for axis, (scale, extent) in zip(axes, _targets(op, [x.shape[a] for a in axes]), strict=True):
        if scale == 1.0 and extent == x.shape[axis] and op.attribute(*_COORDINATES) != "tf_crop_and_resize":
            continue
        weights, outside = _matrix(op, axes.index(axis), len(axes), x.shape[axis], scale, extent)
        x = _mapped(x, axis, weights, outside)
    return x


_COORDINATES = ("coordinate_transformation_mode", "half_pixel")


def _mapped(x: Tensor, axis: int, weights: Array, outside: Array) -> Tensor:
    """`outside` is what is added to each result."""
    if ((weights == 0) | (weights == 1)).all() and (weights.sum(1) == 1).all():
        return taken(x, axis, weights.argmax(1).tolist())
    last = x.transpose(*(a for a in range(x.rank) if a != axis), axis)
    y = last @ constant(np.ascontiguousarray(weights.T), "float32")
    y = y + constant(outside, "float32") if outside.any() else y
    order = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
    return y.transpose(*order)


def _targets(op: Operation, extents: list[int]) -> list[tuple[float, int]]:
    """Scale and output extent of each axis."""
    if op.op.kind == "Upsample" or op.version < 11:
        scales, sizes = op.known(1, op.attribute("scales")), None
    else:
        scales, sizes = (op.known(i) if op.has(i) and np.size(op.known(i)) else None for i in (2, 3))
    if sizes is None:
        if scales is None:
            raise op.error("neither scales nor sizes are given")
        numbers = [float(v) for v in np.asarray(scales).reshape(-1)]
        return [(s, floor(n * s)) for s, n in zip(numbers, extents, strict=True)]
    wanted = [int(v) for v in np.asarray(sizes).reshape(-1)]
    policy = op.attribute("keep_aspect_ratio_policy", "stretch")
    ratios = [m / n for m, n in zip(wanted, extents, strict=True)]
    if policy == "stretch":
        return list(zip(ratios, wanted, strict=True))
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [(scale, floor(scale * n + 0.5)) for n in extents]


def _matrix(
    op: Operation, number: int, count: int, extent: int, scale: float, outputs: int
) -> tuple[Array, Array]:
    """Weights [output, input] of one axis, and what is added where a coordinate is beyond the image."""
    mode = op.attribute("mode", "nearest")
    name = op.attribute(*_COORDINATES) if op.op.kind == "Resize" and op.version >= 11 else "asymmetric"
    if name not in COORDINATES or mode not in ("nearest", "linear", "cubic"):
        raise op.error(f"mode {mode!r} with coordinates {name!r} is not supported")
    region: Any = op.known(1) if name == "tf_crop_and_resize" else None
    begin, end = (0.0, 1.0) if region is None else (float(region[number]), float(region[number + count]))
    weights, outside = np.zeros((outputs, extent)), np.zeros(outputs)
    for i in range(outputs):
        x = COORDINATES[name](i, scale, extent, outputs, begin, end)
        if region is not None and not 0 <= x <= extent - 1:
            outside[i] = op.attribute("extrapolation_value", 0.0)
        elif mode == "nearest":
            default = "round_prefer_floor" if name != "asymmetric" or op.version >= 11 else "floor"
            place = NEAREST[op.attribute("nearest_mode", default)](x)
            weights[i, min(max(int(place), 0), extent - 1)] = 1
        else:
            for position, weight in _taps(op, mode, x, scale, extent):
                weights[i, min(max(position, 0), extent - 1)] += weight
    return weights, outside


def _taps(op: Operation, mode: str, x: float, scale: float, extent: int) -> list[tuple[int, float]]:
    """Positions around a coordinate and their weights, which sum to 1; positions outside are the edge's."""
    stretch = min(scale, 1.0) if op.attribute("antialias", 0) else 1.0
    reach = (1 if mode == "linear" else 2) / stretch
    first = floor(x - reach) + 1
    taps = [(p, _filter(op, mode, (p - x) * stretch)) for p in range(first, ceil(x + reach))]
    if op.attribute("exclude_outside", 0):
        taps = [(p, w) for p, w in taps if 0 <= p < extent]
    total = sum(w for _, w in taps)
    return [(p, w / total) for p, w in taps]


def _filter(op: Operation, mode: str, distance: float) -> float:
    """A triangle, or the cubic of Keys ("Cubic convolution interpolation", 1981)."""
    d = abs(distance)
    if mode == "linear":
        return max(0.0, 1.0 - d)
    a = op.attribute("cubic_coeff_a", -0.75)
    if d <= 1:
        return float(((a + 2) * d - (a + 3)) * d * d + 1)
    return float((((d - 5) * d + 8) * d - 4) * a) if d < 2 else 0.0
