"""Nets of one quantised convolution each, for the kernels of a core with MVE."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.quantized import quantized_conv
from teeny_embed.api import Program
from teeny_embed.deploy.runner import Runner
from teeny_embed.graph import evaluate
from teeny_embed.graph.lower import environment, lower
from teeny_embed.graph.tensor import Tensor, input, trace

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
    (x_type,) = (b.type for b in schedule.inputs)
    rng = np.random.default_rng(2)
    samples = [np.full(x_type.shape, v, np.int8) for v in (-128, 127)]
    samples += [rng.integers(-128, 128, x_type.shape).astype(np.int8) for _ in range(2)]
    assert runner.reset() == 0
    for x in samples:
        memory = environment(schedule, {"x": x}, {})
        evaluate.run(schedule, memory)
        status, found = runner.call("infer", {"x": x})
        assert status == 0
        for buffer, ours in zip(schedule.outputs, found.values(), strict=True):
            np.testing.assert_array_equal(ours.reshape(memory[buffer].shape), memory[buffer])
