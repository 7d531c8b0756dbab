"""Nets of one quantised convolution or map each, for a core with MVE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from support.data import Array
from support.quantized import clamped, number, quantized_conv
from teeny_embed.api import Program
from teeny_embed.deploy.runner import Runner
from teeny_embed.graph import evaluate
from teeny_embed.graph.interval import limits
from teeny_embed.graph.lower import environment, lower
from teeny_embed.graph.tensor import Tensor, call, input, trace
from teeny_embed.graph.types import TensorType

SAME = ((1, 1), (1, 1))
MVE_CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "linear": ((1, 150), (16, 150), {"one_scale": True}),
    "linear, 640 inputs": ((1, 640), (8, 640), {"one_scale": True}),
    "linear, two rows": ((2, 16), (8, 16), {"one_scale": True}),
    "linear, a scale for each filter": ((3, 150), (8, 150), {}),
    "linear, odd filters": ((1, 11), (5, 11), {}),
    "pointwise": ((1, 5, 5, 64), (12, 1, 1, 64), {}),
    "pointwise, 8 channels": ((1, 4, 5, 8), (16, 1, 1, 8), {}),
    "pointwise, two images": ((2, 3, 3, 20), (4, 1, 1, 20), {}),
    "pointwise, many channels": ((1, 3, 3, 300), (8, 1, 1, 300), {}),
    "pointwise, stride 2": ((1, 5, 6, 33), (8, 1, 1, 33), {"stride": (2, 2)}),
    "pointwise, stride 2, two images": ((2, 5, 5, 3), (8, 1, 1, 3), {"stride": (2, 2)}),
    "padded": ((1, 6, 5, 17), (20, 3, 3, 17), {"padding": SAME}),
    "padded, stride 2": ((1, 9, 7, 3), (5, 3, 3, 3), {"stride": (2, 1), "padding": ((1, 1), (0, 2))}),
    "padded, two images": ((2, 5, 4, 3), (4, 3, 3, 3), {"padding": SAME}),
    "padded more than the kernel": ((1, 2, 2, 3), (4, 2, 2, 3), {"padding": ((3, 3), (3, 2))}),
    "dilated": ((1, 9, 8, 2), (6, 2, 3, 2), {"dilation": (3, 2), "padding": ((2, 2), (1, 1))}),
    "one-dimensional": ((1, 12, 3), (4, 5, 3), {"stride": (2,), "padding": ((2, 2),)}),
    "deep windows": ((1, 3, 3, 70), (4, 3, 3, 70), {"padding": SAME}),
    "depthwise, 16 channels": ((1, 6, 5, 16), (16, 3, 3, 1), {"groups": 16, "padding": SAME}),
    "depthwise, stride 2": (
        (1, 6, 6, 24), (24, 3, 3, 1), {"groups": 24, "padding": ((0, 1), (0, 1)), "stride": (2, 2)},
    ),
    "depthwise, stride 2, odd": (
        (1, 9, 9, 8), (8, 3, 3, 1), {"groups": 8, "padding": SAME, "stride": (2, 2)},
    ),
    "depthwise, in stripes": ((1, 40, 40, 8), (8, 3, 3, 1), {"groups": 8, "padding": SAME}),
    "depthwise, two images": ((2, 4, 4, 32), (32, 3, 3, 1), {"groups": 32, "padding": SAME}),
    "depthwise, one column": ((1, 6, 1, 8), (8, 3, 3, 1), {"groups": 8, "padding": SAME}),
    "depthwise, 10 channels": ((1, 7, 6, 10), (10, 3, 2, 1), {"groups": 10}),
    "depthwise, dilated": (
        (1, 9, 9, 16), (16, 3, 3, 1), {"groups": 16, "padding": ((2, 2), (2, 2)), "dilation": (2, 2)},
    ),
    "depthwise, one-dimensional": ((1, 30, 16), (16, 9, 1), {"groups": 16, "padding": ((4, 4),)}),
}  # fmt: skip
"""Shapes of input and filter, and where the filter is applied."""


def _rescaled(x: Tensor, multiplier: int, shift: int) -> Tensor:
    return call("requantize", x, number(multiplier), number(shift))


def _sum(x: Tensor, y: Tensor) -> Tensor:
    """As TFLite adds int8 of different scales."""
    first = _rescaled(call("shift_left", x.astype("int32") + number(7), number(20)), 1623821475, -2)
    second = call("shift_left", y.astype("int32") - number(-128), number(19))
    return clamped(_rescaled(first + second, 1098017566, -18) + number(5), -100, 90)


def _product(x: Tensor, y: Tensor) -> Tensor:
    product = (x.astype("int32") - number(3)) * (y.astype("int32") + number(128))
    return clamped(_rescaled(product, 1373658368, -7) + number(-4))


def _wide(x: Tensor) -> Tensor:
    return _rescaled(x.astype("int32") + number(12), 2000000001, -1)


def _narrow(x: Tensor) -> Tensor:
    """Keeps the low bits."""
    return call("shift_right", x.astype("int32") * number(3), number(1)).astype("int8")


def _positive_sum(x: Tensor, y: Tensor) -> Tensor:
    """Negative numbers become the least, and ties do not matter."""
    doubled = call("shift_left", x.astype("int32") + y.astype("int32"), number(18))
    return clamped(_rescaled(doubled, 1098017566, -17) + number(-128))


def _row_sums(x: Tensor, y: Tensor) -> Tensor:
    """Of products, over all rows; [rows, columns] to [columns]."""
    products = (x.astype("int32") - number(3)) * y.astype("int32")
    return clamped(_rescaled(products.sum(axis=0), 1373658368, -9))


def _row_means(x: Tensor) -> Tensor:
    """What lanes cannot compute ends them one by one."""
    total = x.astype("int32").sum(axis=0)
    return (total / number(3)).astype("int8")


def _padded_sums(x: Tensor) -> Tensor:
    total = call("sum_pool", x.astype("int32"), kernel=(3, 3), stride=(2, 2), padding=((1, 1), (1, 1)))
    return clamped(_rescaled(total, 1373658368, -2))


def _both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return _sum(x, y), _wide(x)


MAP_CASES: dict[str, tuple[tuple[tuple[str, tuple[int, ...]], ...], Callable[..., Any]]] = {
    "sum": ((("int8", (5, 4, 8)), ("int8", (5, 4, 8))), _sum),
    "sum, odd": ((("int8", (3, 13)), ("int8", (3, 13))), _sum),
    "sum, a row for all": ((("int8", (3, 4, 11)), ("int8", (11,))), _sum),
    "sum, one number for each row": ((("int8", (6, 8)), ("int8", (6, 1))), _sum),
    "product": ((("int8", (7, 4)), ("int8", (7, 4))), _product),
    "from 16 bits": ((("int16", (21,)),), _narrow),
    "to 32 bits": ((("int8", (23,)),), _wide),
    "positive": ((("int8", (23,)), ("int8", (23,))), _positive_sum),
    "sums of rows": ((("int8", (5, 8)), ("int8", (5, 8))), _row_sums),
    "sums of rows, odd": ((("int8", (3, 7)), ("int8", (3, 1))), _row_sums),
    "means of rows": ((("int8", (3, 9)),), _row_means),
    "padded sums": ((("int8", (1, 5, 6, 9)),), _padded_sums),
    "several results": ((("int8", (9,)), ("int8", (9,))), _both),
}
"""Types and shapes of inputs, and what is computed of them."""


def map_program(inputs: tuple[tuple[str, tuple[int, ...]], ...], function: Callable[..., Any]) -> Program:
    names = [input(f"x{i}", shape, dtype) for i, (dtype, shape) in enumerate(inputs)]
    return Program("net", infer=trace(function, *names))


def quantized_program(
    x_shape: tuple[int, ...], filter_shape: tuple[int, ...], where: dict[str, Any], positive: bool
) -> Program:
    """`positive`: clamped as by ReLU at zero point -128; else at bounds of its own."""
    rng = np.random.default_rng(1)
    zero_point, low, high = (-128, -128, 127) if positive else (5, -100, 90)

    def net(x: Tensor) -> Tensor:
        return quantized_conv(x, filter_shape, rng, -3, zero_point, low, high, **where)

    return Program("net", infer=trace(net, input("x", x_shape, "int8")))


def assert_equals_numpy(program: Program, runner: Runner) -> None:
    """On random inputs and the extreme ones."""
    schedule = lower(program.entry_points["infer"], "infer", {})
    types = {b.name: b.type for b in schedule.inputs}
    rng = np.random.default_rng(2)
    assert runner.reset() == 0
    for kind in ("least", "greatest", "random", "random"):
        inputs = {name: _sample(rng, kind, t) for name, t in types.items()}
        memory = environment(schedule, inputs, {})
        evaluate.run(schedule, memory)
        status, found = runner.call("infer", inputs)
        assert status == 0
        for buffer, ours in zip(schedule.outputs, found.values(), strict=True):
            np.testing.assert_array_equal(ours.reshape(memory[buffer].shape), memory[buffer])


def _sample(rng: np.random.Generator, kind: str, type: TensorType) -> Array:
    least, greatest = limits(type.dtype)
    low, high = {"least": (least, least), "greatest": (greatest, greatest)}.get(kind, (least, greatest))
    return rng.integers(low, high, type.shape, type.dtype, endpoint=True)
