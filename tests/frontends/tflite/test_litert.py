"""LiteRT's reference kernels: `rounding="litert"`, and the unsigned operators that TFLite Micro does not have."""
# ruff: noqa: E501  (a case is a line)

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.tflite import INTEGER_MODELS, Array, Runner, SharedModel, random_inputs
from support.tflite_files import Op, T, constant, model
from teeny_embed.frontends.tflite import import_model

pytestmark = pytest.mark.full
WITHOUT_LITERT = "tflm/person_detect_int8"
"""A file that LiteRT refuses."""


def litert(content: bytes, samples: Sequence[Sequence[Array]]) -> list[Array]:
    """Output 0 of each sample."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    net = interpreter.Interpreter(
        model_content=content,
        experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF,
        num_threads=1,
    )
    net.allocate_tensors()
    results = []
    for inputs in samples:
        for details, value in zip(net.get_input_details(), inputs, strict=True):
            net.set_tensor(details["index"], value)
        net.invoke()
        results.append(net.get_tensor(net.get_output_details()[0]["index"]))
    return results


def compare(content: bytes, count: int) -> None:
    imported = import_model(content, "net.tflite", rounding="litert")
    samples = random_inputs(imported, seed=5, count=count)
    run = Runner(imported.graph)
    for inputs, wanted in zip(samples, litert(content, samples), strict=True):
        np.testing.assert_array_equal(run(*inputs)[0], wanted)


@pytest.mark.parametrize("name", [n for n in INTEGER_MODELS if n != WITHOUT_LITERT])
def test_integer_models_equal_litert(shared: Path, name: str) -> None:
    compare(SharedModel(shared, name).path.read_bytes(), count=8)


def u8(shape: Sequence[int], scale: float = 0.05, zero_point: int = 121) -> T:
    return T(shape, "uint8", scale=scale, zero_point=zero_point)


def weights(shape: Sequence[int]) -> T:
    values = np.random.default_rng(0).integers(0, 256, shape)
    return constant(values, "uint8", scale=0.01, zero_point=100)


BIAS = constant(np.arange(6) * 100 - 250, scale=0.0005)
STRIDES = {"StrideH": 2, "StrideW": 2, "FusedActivationFunction": 1}
POOL = {"StrideH": 2, "StrideW": 2, "FilterHeight": 3, "FilterWidth": 2}
UNSIGNED: list[tuple[str, list[T], T, str, dict[str, Any]]] = [
    ("CONV_2D", [u8((1, 8, 6, 4)), weights((6, 3, 2, 4)), BIAS], u8((1, 4, 3, 6), 0.1), "Conv2DOptions", STRIDES),
    ("DEPTHWISE_CONV_2D", [u8((1, 8, 6, 3)), weights((1, 3, 2, 6)), BIAS], u8((1, 4, 3, 6), 0.1), "DepthwiseConv2DOptions", {**STRIDES, "DepthMultiplier": 2}),
    ("FULLY_CONNECTED", [u8((3, 8)), weights((6, 8)), BIAS], u8((3, 6), 0.1), "FullyConnectedOptions", {"FusedActivationFunction": 1}),
    ("ADD", [u8((40,)), u8((40,), 0.1)], u8((40,), 0.12, 100), "AddOptions", {}),
    ("MUL", [u8((40,)), u8((40,), 0.1)], u8((40,), 0.12, 100), "MulOptions", {}),
    ("AVERAGE_POOL_2D", [u8((1, 8, 6, 3))], u8((1, 4, 3, 3)), "Pool2DOptions", POOL),
    ("MAX_POOL_2D", [u8((1, 8, 6, 3))], u8((1, 4, 3, 3)), "Pool2DOptions", POOL),
    ("SOFTMAX", [u8((5, 20))], u8((5, 20), 1 / 256, 0), "SoftmaxOptions", {"Beta": 1.0}),
    ("LOGISTIC", [u8((500,))], u8((500,), 1 / 256, 0), "", {}),
    ("TANH", [u8((500,))], u8((500,), 1 / 128, 128), "", {}),
    ("RELU", [u8((500,))], u8((500,)), "", {}),
    ("RELU6", [u8((500,))], u8((500,)), "", {}),
    ("LEAKY_RELU", [u8((500,))], u8((500,)), "LeakyReluOptions", {"Alpha": 0.3}),
    ("PAD", [u8((1, 4)), constant([[0, 1], [1, 1]])], u8((2, 6)), "PadOptions", {}),
    ("DEQUANTIZE", [u8((40,))], T((40,)), "DequantizeOptions", {}),
    ("QUANTIZE", [T((40,))], u8((40,)), "QuantizeOptions", {}),
    ("MEAN", [u8((1, 4, 5, 3)), constant([1, 2])], u8((1, 1, 1, 3)), "ReducerOptions", {"KeepDims": True}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operands", "result", "table", "options"), UNSIGNED)
def test_an_unsigned_operator_equals_litert(
    name: str, operands: list[T], result: T, table: str, options: dict[str, Any]
) -> None:
    count = len(operands)
    operator = Op(name, list(range(count)), [count], options, table)
    inputs = [i for i, t in enumerate(operands) if t.data is None]
    compare(model([*operands, result], [operator], inputs, [count]), count=5)
