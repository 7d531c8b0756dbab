"""Operators of one element of each operand: arithmetic, comparisons, choices, functions, changes of type."""

from __future__ import annotations

from math import sqrt

import numpy as np

from teeny_embed.frontends.tflite.activation import activated
from teeny_embed.frontends.tflite.model import TensorInfo
from teeny_embed.frontends.tflite.normalization import inverse_root
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.quantization import (
    SMALL,
    activation_range,
    clamp,
    quantize_multiplier,
    quotient,
    real_values,
    requantize,
    rescaled,
    to_output,
)
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.frontends.tflite.tables import looked_up
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, call, constant

HEADROOM = {"int8": 20, "uint8": 20, "int16": 15}
"""Places by which the operands of a quantised sum are shifted to the left before they are rescaled."""


def above_zero_point(op: Operation, number: int) -> Tensor:
    """int32: a quantised operand less its zero point."""
    return op.input(number).astype("int32") - op.input_info(number).zero_point


def _common(op: Operation, numbers: range, bits: int) -> tuple[list[Tensor], float]:
    """Operands in a common scale, twice the largest of theirs, 2^bits as fine; and that scale."""
    common = 2 * max(op.input_info(i).scale for i in numbers)
    shifted = [call("shift_left", above_zero_point(op, i), constant(bits, "int32")) for i in numbers]
    scales = [quotient(op.input_info(i).scale, common, op.where) for i in numbers]
    return [rescaled(x, scale, op.where) for x, scale in zip(shifted, scales, strict=True)], common


# ---- Arithmetic -------------------------------------------------------------------------------------------


@converter("ADD SUB ADD_N", "float32 int8 int16 uint8 int32 int64")
def add(op: Operation) -> Tensor:
    """Sums and differences; quantised operands are brought to a common scale, with some bits to spare."""
    combine = "subtract" if op.name == "SUB" else "add"
    first = op.input(0)
    if first.dtype not in HEADROOM:
        total = first
        for number in range(1, op.input_count):
            total = call(combine, total, op.input(number))
        return activated(total, op.activation) if total.dtype == "float32" else total
    output, bits = op.output_info(), HEADROOM[first.dtype]
    (total, *others), common = _common(op, range(op.input_count), bits)
    for other in others:
        total = call(combine, total, other)
    scale = quotient(common, (1 << bits) * output.scale, op.where)
    return to_output(rescaled(total, scale, op.where), output, op.activation)


@converter("SQUARED_DIFFERENCE", "float32 int8 int16 int32")
def squared_difference(op: Operation) -> Tensor:
    """(a - b)^2."""
    a, output = op.input(0), op.output_info()
    if a.dtype not in SMALL:
        difference = a - op.input(1)
        return difference * difference
    bits = 7 if a.dtype == "int8" else 0
    (first, second), common = _common(op, range(2), bits)
    difference = first - second
    divisor = float(np.float32(1 << 2 * bits) * np.float32(output.scale))
    scale = quotient(common * common, divisor, op.where)
    return to_output(rescaled(difference * difference, scale, op.where), output)


@converter("MUL", "float32 int8 int16 uint8 int32 int64")
def multiply(op: Operation) -> Tensor:
    """a b."""
    a, output = op.input(0), op.output_info()
    if a.dtype not in SMALL:
        product = call("multiply", a, op.input(1))
        return activated(product, op.activation) if a.dtype == "float32" else product
    product = above_zero_point(op, 0) * above_zero_point(op, 1)
    scale = quotient(op.input_info(0).scale * op.input_info(1).scale, output.scale, op.where)
    return to_output(rescaled(product, scale, op.where), output, op.activation)


@converter("DIV", "float32 int8 int32", "integers: 0 for a divisor of 0")
def divide(op: Operation) -> Tensor:
    """a / b; a quantised divisor is inverted by Newton's iteration."""
    a, b, output = op.input(0), op.input(1), op.output_info()
    if a.dtype != "int8":
        ratio = call("divide", a, b)
        return activated(ratio, op.activation) if a.dtype == "float32" else ratio
    below = above_zero_point(op, 1) < 0
    numerator = where(below, -above_zero_point(op, 0), above_zero_point(op, 0))
    divisor = call("abs", above_zero_point(op, 1))
    zeros = call("leading_zeros", divisor)
    fraction = call("shift_left", divisor, zeros) + constant(-(1 << 31), "int32")
    inverse = call("inverse_of_one_plus", fraction)
    magnitude = where(numerator >= 0, numerator, call("bitwise_xor", numerator, constant(-1, "int32")))
    headroom = call("leading_zeros", magnitude) - 1
    ratio = call("multiply_high", call("shift_left", numerator, headroom), inverse)
    scale = quotient(op.input_info(0).scale, op.input_info(1).scale * output.scale, op.where)
    multiplier, shift = quantize_multiplier(scale)
    places = constant(shift - 31, "int32") + zeros - headroom
    scaled = call("requantize", ratio, constant(multiplier, "int32"), places)
    nothing = call("logical_or", divisor <= 0, places < -31)
    return to_output(where(nothing, 0, scaled), output, op.activation)


@converter("FLOOR_DIV FLOOR_MOD", "float32 int32", "integers: 0 for a divisor of 0")
def floor_divide(op: Operation) -> Tensor:
    """The quotient rounded down, and what it leaves."""
    a, b = op.input(0), op.input(1)
    ratio = call("divide", a, b)
    if a.dtype == "float32":
        down = call("floor", ratio)
    else:
        exact = call("equal", ratio * b, a)
        negative = call("not_equal", a < 0, b < 0)
        down = where(call("logical_or", exact, call("logical_not", negative)), ratio, ratio - 1)
    return down if op.name == "FLOOR_DIV" else a - down * b


@converter("MAXIMUM MINIMUM", "float32 int8 int16 uint8 int32 int64")
def extremum(op: Operation) -> Tensor:
    """The larger or the smaller; quantised operands have the output's scale."""
    return call(op.name.lower(), op.input(0), op.input(1))


# ---- Comparison, logic, choice ----------------------------------------------------------------------------

COMPARISON_BITS = 8


@converter(
    "EQUAL NOT_EQUAL GREATER GREATER_EQUAL LESS LESS_EQUAL", "float32 int8 int16 uint8 int32 int64 bool"
)
def compare(op: Operation) -> Tensor:
    """bool; quantised operands are compared as real numbers in fixed point."""
    operands = [op.input(0), op.input(1)]
    if operands[0].dtype in SMALL:
        operands = [_real_fixed(op, i) for i in range(2)]
    return call(op.name.lower(), *operands)


def _real_fixed(op: Operation, number: int) -> Tensor:
    shifted = call("shift_left", above_zero_point(op, number), constant(COMPARISON_BITS, "int32"))
    return rescaled(shifted, op.input_info(number).scale, op.where)


@converter("LOGICAL_AND LOGICAL_OR LOGICAL_NOT", "bool")
def logic(op: Operation) -> Tensor:
    """Of bools."""
    return call(op.name.lower(), *(op.input(i) for i in range(op.input_count)))


@converter("SELECT_V2", "bool")
def select(op: Operation) -> Tensor:
    """Operand 1 where operand 0, else operand 2."""
    return call("where", op.input(0), op.input(1), op.input(2))


# ---- Functions --------------------------------------------------------------------------------------------

FUNCTIONS = {
    "EXP": "exp", "LOG": "log", "SIN": "sin", "COS": "cos", "SQRT": "sqrt", "CEIL": "ceil", "FLOOR": "floor",
    "ROUND": "round_even",
}  # fmt: skip


@converter(" ".join(FUNCTIONS), "float32")
def function(op: Operation) -> Tensor:
    """Of a real number."""
    return call(FUNCTIONS[op.name], op.input(0))


@converter("SQUARE", "float32")
def square(op: Operation) -> Tensor:
    """x^2."""
    return op.input(0) * op.input(0)


@converter("NEG", "float32 int32 int64")
def negate(op: Operation) -> Tensor:
    """-x."""
    return -op.input(0)


@converter("ABS", "float32 int8 int16")
def absolute(op: Operation) -> Tensor:
    """|x|."""
    if op.input(0).dtype == "float32" or op.input_info(0).quantization is None:
        return call("abs", op.input(0))
    info, output = op.input_info(0), op.output_info()
    magnitude = call("abs", above_zero_point(op, 0))
    if info.scale != output.scale:
        magnitude = rescaled(magnitude, quotient(info.scale, output.scale, op.where), op.where)
    return to_output(magnitude, output)


ROOT_BITS = 20


@converter("RSQRT", "float32 int8 int16", "integers: the largest value for 0 and below")
def inverse_square_root(op: Operation) -> Tensor:
    """1 / sqrt(x)."""
    x, info, output = op.input(0), op.input_info(0), op.output_info()
    if x.dtype == "float32":
        return call("rsqrt", x)
    multiplier, shift = quantize_multiplier(quotient(1.0, sqrt(info.scale) * output.scale, op.where))
    largest = output.limits[1] - output.zero_point

    def rule(above: Tensor) -> Tensor:
        root, places = inverse_root(call("maximum", above, constant(0, "int32")))
        fine = call("requantize", constant(1, "int32"), root, places + ROOT_BITS)
        return where(above <= 0, largest, requantize(fine, multiplier, shift - ROOT_BITS, "tflite"))

    if x.dtype == "int8":
        return looked_up(x, info, output, lambda d: rule(constant(d, "int32")).numpy())
    return to_output(rule(above_zero_point(op, 0)), output)


# ---- Types ------------------------------------------------------------------------------------------------


@converter("QUANTIZE", "float32 int8 int16 uint8 int32")
def quantize(op: Operation) -> Tensor:
    """float32 to integers, or integers from one scale to another."""
    x, output = op.input(0), op.output_info()
    if x.dtype == "float32" and output.dtype in SMALL:
        return _stored(x, op, output)
    scale = quotient(op.input_info(0).scale, output.scale, op.where)
    return to_output(rescaled(above_zero_point(op, 0), scale, op.where), output)


def _stored(x: Tensor, op: Operation, output: TensorInfo) -> Tensor:
    """x / scale rounded to the nearest, ties away from zero, plus the zero point, saturated."""
    low, high = activation_range("NONE", output)
    whole = call("round_away", quotient(x, output.scale, op.where)).astype("int32")
    inside = clamp(whole, low - output.zero_point, high - output.zero_point)
    return (inside + output.zero_point).astype(output.dtype)


@converter("DEQUANTIZE", "int8 int16 uint8 int32 float16")
def dequantize(op: Operation) -> Tensor:
    """(stored - zero point) scale, in binary32; a known operand may be quantised per channel."""
    stored = op.known(0)
    if stored is not None:
        return constant(real_values(stored, op.input_info(0)))
    if op.input(0).dtype == "float16":
        return op.input(0).astype("float32")
    return above_zero_point(op, 0).astype("float32") * constant(np.float32(op.input_info(0).scale))


@converter("CAST", "float32 int8 int16 uint8 int32 uint32 int64 bool")
def cast(op: Operation) -> Tensor:
    """To the output's type: integers wrap, float to integer truncates and saturates."""
    return op.input(0).astype(op.output_info().dtype)
