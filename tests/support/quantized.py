"""Quantised convolutions as frontends write them, with random tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.data import Array
from teeny_embed.graph.tensor import Tensor, call, constant


def number(value: int) -> Tensor:
    return constant(value, "int32")


def table(values: Array) -> Tensor:
    return constant(values, values.dtype.name)


def clamped(x: Tensor, low: int = -128, high: int = 127, dtype: str = "int8") -> Tensor:
    """int32 to int8, or another type."""
    return call("maximum", call("minimum", x, number(high)), number(low)).astype(dtype)


def quantized_conv(
    x: Tensor,
    filter_shape: tuple[int, ...],
    rng: np.random.Generator,
    input_zero_point: int = -3,
    output_zero_point: int = 5,
    low: int = -128,
    high: int = 127,
    one_scale: bool = False,
    result: str = "int8",
    empty: slice = slice(0),
    **where: Any,
) -> Tensor:
    """conv + bias, requantised by rule `tflite`, per channel unless `one_scale`; int8 in, and out.

    A `result` of int16 has no zero point and any value. Filters `empty` have no weights.
    """
    filters, depth = filter_shape[0], int(np.prod(filter_shape[1:]))
    weights = rng.integers(-127, 128, filter_shape).astype(np.int8)
    weights[empty] = 0
    bias = rng.integers(-2000, 2000, filters).astype(np.int32)
    multiplier = rng.integers(1 << 30, 1 << 31, filters).astype(np.int32)
    shift = -rng.integers(6, 9, filters).astype(np.int32) - np.int32(depth > 64)
    if one_scale:
        multiplier[:], shift[:] = multiplier[0], shift[0]
    sums = call("conv", x, table(weights), zero_points=(input_zero_point, 0), accumulator="int32", **where)
    scaled = call("requantize", sums + table(bias), table(multiplier), table(shift))
    if result == "int16":
        return clamped(scaled, -(1 << 15), (1 << 15) - 1, result)
    return clamped(scaled + number(output_zero_point), low, high)
