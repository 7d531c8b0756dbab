"""Activations: fused ones of real numbers, softmax."""

from __future__ import annotations

from math import floor, inf

import numpy as np

from teeny_embed.frontends.tflite.model import Array, TensorInfo
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.quantization import ACTIVATIONS, clamp, quantize_multiplier
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.graph import scalar
from teeny_embed.graph.fixed_point import exp_of_negative_5
from teeny_embed.graph.requantize import RULES
from teeny_embed.graph.tensor import Tensor, call, constant


def activated(x: Tensor, activation: str) -> Tensor:
    """A real value after its fused activation."""
    if activation == "RELU":
        return call("relu", x)
    if activation == "RELU6":
        return call("relu6", x)
    low, high = ACTIVATIONS[activation]
    lowered = call("minimum", x, constant(high, "float32")) if high < inf else x
    return call("maximum", lowered, constant(low, "float32")) if low > -inf else lowered


@converter("SOFTMAX", "float32 int8 int16")
def softmax(op: Operation) -> Tensor:
    """e^(beta x) over its sum, along the last axis."""
    x = op.input(0)
    beta = float(op.option("beta"))
    if x.dtype == "float32":
        return call("softmax", x if beta == 1 else x * beta)
    return _softmax_8(x, op.input_info(0), op.output_info(), beta)


SCALED_BITS = 5
"""Whole bits of a scaled difference of logits."""
SUM_BITS = 12
"""Whole bits of the sum of exponentials."""


def _softmax_8(x: Tensor, info: TensorInfo, output: TensorInfo, beta: float) -> Tensor:
    """A difference to the largest logit has 256 values, so their exponentials (Q0.31) are a table."""
    wide = x.astype("int32")
    difference = wide - call("max", x, axes=(-1,), keepdims=True).astype("int32")
    exponential = call("take", constant(_exponentials(info.scale, beta)), difference + 255)
    total = call("shift_right_rounding", exponential, constant(SUM_BITS, "int32")).sum(-1, keepdims=True)
    zeros = call("leading_zeros", total)
    fraction = call("shift_left", total, zeros) + constant(-(1 << 31), "int32")
    share = call("multiply_high", call("inverse_of_one_plus", fraction), exponential)
    bits = 8 * np.dtype(output.dtype).itemsize
    places = constant(SUM_BITS + 31 - bits, "int32") - zeros
    low = int(np.iinfo(output.dtype).min)
    shifted = call("shift_right_rounding", share, places) + low
    return clamp(shifted, low, int(np.iinfo(output.dtype).max)).astype(output.dtype)


def _exponentials(scale: float, beta: float) -> Array:
    """int32 [256]: e^(beta scale d) for d = -255 to 0 as Q0.31, 0 where it is too small to count."""
    limit = (1 << 31) - 1.0
    multiplier, shift = quantize_multiplier(min(beta * scale * (1 << (31 - SCALED_BITS)), limit))
    difference = np.arange(-255, 1, dtype=np.int32)
    scaled = _evaluated(RULES["tflite"], difference, np.int32(multiplier), np.int32(shift))
    radius = floor(((1 << SCALED_BITS) - 1) * (1 << (31 - SCALED_BITS)) / (1 << shift))
    return np.where(difference >= -radius, _evaluated(exp_of_negative_5, scaled), 0).astype(np.int32)


def _evaluated(function: scalar.ScalarFunction, *values: Array | np.int32) -> Array:
    """A scalar function of arrays, now."""
    with np.errstate(all="ignore"):
        return np.asarray(scalar.evaluate(function.body, dict(zip(function.parameters, values, strict=True))))
