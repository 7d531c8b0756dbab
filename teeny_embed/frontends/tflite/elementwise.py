"""Arithmetic of one element: sums, products, comparisons, and changes of scale."""

from __future__ import annotations

import numpy as np

from teeny_embed.frontends.tflite.activation import activated
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.quantization import activation_range, clamp, quotient, rescaled, to_output
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.graph.tensor import Tensor, call, constant

SMALL = ("int8", "uint8", "int16")
HEADROOM = {"int8": 20, "uint8": 20, "int16": 15}
"""Places by which the operands of a quantised sum are shifted to the left before they are rescaled."""


@converter("ADD SUB", "float32 int8 int16 uint8 int32 int64")
def add(op: Operation) -> Tensor:
    """Quantised: both operands in a common scale, twice the larger of the two, with some bits to spare."""
    a, b = op.input(0), op.input(1)
    combine = "add" if op.name == "ADD" else "subtract"
    if a.dtype not in HEADROOM:
        y = call(combine, a, b)
        return activated(y, op.activation) if y.dtype == "float32" else y
    output, bits = op.output_info(), HEADROOM[a.dtype]
    common = 2 * max(op.input_info(0).scale, op.input_info(1).scale)
    scaled = [
        rescaled(
            call("shift_left", x.astype("int32") - op.input_info(i).zero_point, constant(bits, "int32")),
            quotient(op.input_info(i).scale, common, op.where),
            op.where,
        )
        for i, x in enumerate((a, b))
    ]
    scale = quotient(common, (1 << bits) * output.scale, op.where)
    return to_output(rescaled(call(combine, *scaled), scale, op.where), output, op.activation)


@converter("QUANTIZE", "float32 int8 int16 uint8 int32")
def quantize(op: Operation) -> Tensor:
    """float32 to integers, or integers from one scale to another."""
    x, output = op.input(0), op.output_info()
    if x.dtype == "float32" and output.dtype in SMALL:
        return _stored(x, op)
    info = op.input_info(0)
    scale = quotient(info.scale, output.scale, op.where)
    return to_output(rescaled(x.astype("int32") - info.zero_point, scale, op.where), output)


def _stored(x: Tensor, op: Operation) -> Tensor:
    """x / scale rounded to the nearest, ties away from zero, plus the zero point, saturated."""
    output = op.output_info()
    low, high = activation_range("NONE", output)
    ratio = quotient(x, output.scale, op.where)
    whole = clamp(
        call("round_away", ratio).astype("int32"), low - output.zero_point, high - output.zero_point
    )
    return (whole + output.zero_point).astype(output.dtype)


@converter("DEQUANTIZE", "int8 int16 uint8 int32 float16")
def dequantize(op: Operation) -> Tensor:
    """(stored - zero point) scale, in binary32."""
    x, info = op.input(0), op.input_info(0)
    if x.dtype == "float16":
        return x.astype("float32")
    return (x.astype("int32") - info.zero_point).astype("float32") * constant(np.float32(info.scale))
