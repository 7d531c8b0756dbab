"""Operators of one element, activations, casts and quantisation."""

from __future__ import annotations

from functools import partial, reduce

import numpy as np

from teeny_embed.frontends.onnx.model import Operation
from teeny_embed.frontends.onnx.registry import CONVERTERS, axis_of, converter
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, binary, call, constant

UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
    "Atanh": "atanh", "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf":
    "erf", "Exp": "exp", "Floor": "floor", "HardSwish": "hard_swish", "IsNaN": "is_nan", "Log": "log",
    "Mish": "mish", "Neg": "negative", "Not": "logical_not", "Reciprocal": "reciprocal", "Relu": "relu",
    "Round": "round_even", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Softplus":
    "softplus", "Softsign": "softsign", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
BINARY = {
    "Add": "add", "And": "logical_and", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "Div": "divide", "Equal": "equal", "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "Less": "less", "LessOrEqual": "less_equal", "Mul": "multiply",
    "Or": "logical_or", "PRelu": "prelu", "Sub": "subtract", "Xor": "logical_xor",
}  # fmt: skip
WITH_NUMBERS: dict[str, tuple[str, dict[str, tuple[str, float]]]] = {
    "Celu": ("celu", {"alpha": ("alpha", 1.0)}),
    "Elu": ("elu", {"alpha": ("alpha", 1.0)}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": ("alpha", 0.2), "beta": ("beta", 0.5)}),
    "LeakyRelu": ("leaky_relu", {"slope": ("alpha", 0.01)}),
    "Selu": ("selu", {"alpha": ("alpha", 1.6732632423543772), "gamma": ("gamma", 1.0507009873554805)}),
    "ThresholdedRelu": ("threshold", {"threshold": ("alpha", 1.0)}),
}
"""Operator of the graph, and for each of its attributes the one of ONNX with its default."""


def _unary(name: str, op: Operation) -> Tensor:
    x = op[0]
    return x if name in ("ceil", "floor", "round_even") and "int" in x.dtype else call(name, x)


def _binary(name: str, op: Operation) -> Tensor:
    a, b = op[0], op[1]
    if name == "prelu" and b.rank == 1 and op.version < 7 and a.rank > 1:
        b = b.reshape((-1, *(1,) * (a.rank - 2)))  # one slope per channel
    return call(name, a, b)


def _with_numbers(name: str, numbers: dict[str, tuple[str, float]], op: Operation) -> Tensor:
    return call(name, op[0], **{ours: op.attribute(theirs, d) for ours, (theirs, d) in numbers.items()})


for _name, _graph_name in UNARY.items():
    CONVERTERS[_name] = partial(_unary, _graph_name)
for _name, _graph_name in BINARY.items():
    CONVERTERS[_name] = partial(_binary, _graph_name)
for _name, (_graph_name, _numbers) in WITH_NUMBERS.items():
    CONVERTERS[_name] = partial(_with_numbers, _graph_name, _numbers)


@converter("Min", "Max", "Sum", "Mean")
def variadic(op: Operation) -> Tensor:
    names = {"Min": "minimum", "Max": "maximum"}
    total = reduce(lambda a, b: call(names.get(op.op.kind, "add"), a, b), op.all())
    return total * (1.0 / op.count) if op.op.kind == "Mean" and op.count > 1 else total


@converter("Pow")
def power(op: Operation) -> Tensor:
    """The result has the dtype of the base."""
    x, y = op[0], op[1]
    exponent = np.asarray(op.known(1)) if op.is_known(1) else None
    if exponent is not None and exponent.size == 1 and exponent.item() == 2:
        return x * x
    raised = call("pow", x.astype("float32"), y.astype("float32"))
    return raised if x.dtype == "float32" else call("round_even", raised).astype(x.dtype)


@converter("Mod")
def modulus(op: Operation) -> Tensor:
    return call("fmod" if op.attribute("fmod", 0) else "mod", op[0], op[1])


@converter("BitShift")
def bit_shift(op: Operation) -> Tensor:
    """A count of all bits or more leaves nothing; of a signed integer shifted right, its sign."""
    x, count = op[0], op[1]
    last = 8 * np.dtype(x.dtype).itemsize - 1
    if op.attribute("direction") == "RIGHT" and x.dtype.startswith("int"):
        return call("shift_right", x, binary("minimum", count, last))
    shifted = call("shift_left" if op.attribute("direction") == "LEFT" else "shift_right", x, count)
    return where(call("less_equal", count, constant(last, count.dtype)), shifted, constant(0, x.dtype))


@converter("IsInf")
def is_infinite(op: Operation) -> Tensor:
    x = op[0]
    found = call("is_inf", x)
    if not op.attribute("detect_negative", 1):
        found = call("logical_and", found, x > 0.0)
    return found if op.attribute("detect_positive", 1) else call("logical_and", found, x < 0.0)


@converter("Clip")
def clip(op: Operation) -> Tensor:
    x = op[0]
    for number, attribute, name in ((1, "min", "maximum"), (2, "max", "minimum")):
        bound = op.get(number)
        if bound is None and attribute in op.op.attributes:
            bound = constant(op.attribute(attribute), x.dtype)
        x = x if bound is None else call(name, x, bound)
    return x


@converter("Gelu", "com.microsoft.Gelu")
def gelu(op: Operation) -> Tensor:
    return call("gelu_tanh" if op.attribute("approximate", "none") == "tanh" else "gelu", op[0])


@converter("com.microsoft.FastGelu")
def fast_gelu(op: Operation) -> Tensor:
    return call("gelu_tanh", op[0] + op[1] if op.has(1) else op[0])


@converter("Swish")
def swish(op: Operation) -> Tensor:
    return op[0] * call("sigmoid", op[0] * op.attribute("alpha", 1.0))


@converter("Shrink")
def shrink(op: Operation) -> Tensor:
    x, size, bias = op[0], op.attribute("lambd", 0.5), op.attribute("bias", 0.0)
    wide = x.astype("float32")
    y = where(wide < -size, wide + bias, where(wide > size, wide - bias, 0.0))
    return y.astype(x.dtype)


@converter("Where")
def choice(op: Operation) -> Tensor:
    return call("where", op[0], op[1], op[2])


@converter("Identity")
def identity(op: Operation) -> Tensor:
    return op[0]


@converter("Dropout")
def dropout(op: Operation) -> list[Tensor]:
    """As it is when a model infers: nothing is dropped. The second result is a mask of True."""
    if op.has(2) and bool(op.known(2)):
        raise op.error("training_mode is not supported")
    x = op[0]
    return [x, constant(np.ones(x.shape, bool))]


# ---- Types ----------------------------------------------------------------------------------------------

DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int32", 9: "bool",
    10: "float16", 11: "float32", 12: "uint32", 13: "uint64",
}  # fmt: skip
"""By TensorProto.DataType; 64 bits become 32."""


@converter("Cast")
def cast(op: Operation) -> Tensor:
    number = op.attribute("to")
    if number not in DTYPES:
        raise op.error(f"data type {number} is not supported")
    return op[0].astype(DTYPES[number])


@converter("CastLike")
def cast_like(op: Operation) -> Tensor:
    return op[0].astype(op[1].dtype)


def _along(op: Operation, value: Tensor, x: Tensor) -> Tensor:
    """One number, or one for each position of an axis."""
    if value.type.count == 1:
        return value.reshape(())
    axis = axis_of(op, op.attribute("axis", 1), x.rank)
    if value.rank != 1 or op.attribute("block_size", 0):
        raise op.error("scales in blocks are not supported")
    return value.reshape(tuple(e if a == axis else 1 for a, e in enumerate(x.shape)))


@converter("QuantizeLinear")
def quantize(op: Operation) -> Tensor:
    x = op[0]
    if op.has(2):
        zero_point = _along(op, op[2], x)
    else:
        dtype = DTYPES.get(op.attribute("output_dtype", 0) or 2, "uint8")
        zero_point = constant(np.zeros((), dtype))
    return quantized(op, x, _along(op, op[1], x), zero_point)


@converter("DynamicQuantizeLinear")
def dynamically_quantize(op: Operation) -> list[Tensor]:
    """To uint8 by the range of the numbers, 0 among them: the result, its scale and its zero point."""
    x = op[0]
    high = binary("maximum", call("max", x), 0.0)
    low = -binary("maximum", call("max", -x), 0.0)
    scale = (high - low) / 255.0
    zero = binary("minimum", binary("maximum", call("round_even", -low / scale), 0.0), 255.0).astype("uint8")
    return [quantized(op, x, scale, zero), scale, zero]


def quantized(op: Operation, x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """x / scale to the nearest, halves to even, plus the zero point, in whose dtype it saturates."""
    dtype = zero_point.dtype
    if dtype not in ("int8", "uint8", "int16", "uint16"):
        raise op.error(f"quantising to {dtype} is not supported")
    whole = call("round_even", x / scale) + zero_point.astype("float32")
    info = np.iinfo(dtype)
    return binary("minimum", binary("maximum", whole, float(info.min)), float(info.max)).astype(dtype)


@converter("DequantizeLinear")
def dequantize(op: Operation) -> Tensor:
    x = op[0]
    wide = x.astype("int32")
    if op.has(2):
        wide = wide - _along(op, op[2], x).astype("int32")
    return wide.astype("float32") * _along(op, op[1], x)
