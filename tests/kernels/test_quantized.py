"""Quantised convolutions: recognised on steps whatever operator they came from, and told in one form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from support.data import Array
from support.quantized import clamped, number, quantized_conv, table
from teeny_embed.api import Program
from teeny_embed.graph import evaluate
from teeny_embed.graph import scalar as s
from teeny_embed.graph.fuse import fuse
from teeny_embed.graph.lower import environment, lower
from teeny_embed.graph.requantize import RULES
from teeny_embed.graph.step import Schedule
from teeny_embed.graph.tensor import Tensor, call, input, trace
from teeny_embed.kernels.quantized import (
    Packed,
    Quantized,
    packed_for,
    recognize,
    split_requantized,
    with_scratch,
)

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "3x3, padded, stride 2": ((1, 9, 7, 3), (5, 3, 3, 3), {"stride": (2, 1), "padding": ((1, 1), (0, 2))}),
    "dilated": ((1, 9, 8, 2), (3, 2, 3, 2), {"dilation": (3, 2)}),
    "pointwise": ((1, 4, 5, 6), (7, 1, 1, 6), {}),
    "batch": ((2, 5, 4, 3), (4, 3, 3, 3), {"padding": ((1, 1), (1, 1))}),
    "one-dimensional": ((1, 12, 3), (4, 5, 3), {"stride": (2,), "padding": ((2, 2),)}),
    "linear": ((1, 11), (4, 11), {}),
    "linear, three rows": ((3, 11), (4, 11), {}),
    "results of int16": ((3, 11), (4, 11), {"result": "int16"}),
    "depthwise": ((1, 6, 5, 4), (4, 3, 3, 1), {"groups": 4, "padding": ((1, 1), (1, 1))}),
    "depthwise, two filters a channel": ((1, 6, 5, 3), (6, 3, 2, 1), {"groups": 3}),
    "groups": ((1, 6, 5, 4), (6, 3, 3, 2), {"groups": 2}),
    "kernel as large as the input": ((1, 3, 4, 2), (3, 3, 4, 2), {}),
    "kernel as large as the padded input": ((1, 3, 3, 2), (3, 5, 5, 2), {"padding": ((1, 1), (1, 1))}),
}


def schedule(function: Callable[[Tensor], Any], x: Tensor) -> Schedule:
    program = Program("net", infer=trace(function, x))
    return fuse(lower(program.entry_points["infer"], "infer", {}))


def outputs(made: Schedule, x: Array) -> list[Array]:
    memory = environment(made, {"x": x}, {})
    evaluate.run(made, memory)
    return [memory[b] for b in made.outputs]


def computed(q: Quantized, x: Array) -> Array:
    """What a `Quantized` says, position by position."""
    x = x.reshape(q.batch, q.height, q.width, q.channels).astype(np.int64)
    depth, per_group = q.channels // q.groups, q.filters // q.groups
    sums = np.empty((q.batch, q.out_height, q.out_width, q.filters), np.int64)
    for oy, ox, o in np.ndindex(q.out_height, q.out_width, q.filters):
        first = o // per_group * depth
        total = np.full(q.batch, int(q.bias[o]))
        for ky, kx in np.ndindex(*q.kernel):
            row = oy * q.stride[0] + ky * q.dilation[0] - q.padding[0]
            column = ox * q.stride[1] + kx * q.dilation[1] - q.padding[1]
            inside = 0 <= row < q.height and 0 <= column < q.width
            pixel = x[:, row, column, first : first + depth] if inside else q.input_zero_point
            total = total + np.sum(np.broadcast_to(pixel, (q.batch, depth)) * q.filter[o, ky, kx], axis=1)
        assert total.min() >= q.least and total.max() <= q.greatest
        sums[:, oy, ox, o] = total
    values = (sums.astype(np.int32), q.multiplier, -q.shift)
    rule = RULES["tflite"]
    scaled = s.evaluate(rule.body, dict(zip(rule.parameters, values, strict=True)))
    return np.clip(scaled + q.output_zero_point, q.low, q.high).astype(q.result)


@pytest.mark.parametrize("case", CASES)
def test_a_quantised_convolution_is_recognised_and_says_all_that_it_computes(case: str) -> None:
    x_shape, filter_shape, where = CASES[case]
    rng = np.random.default_rng(2)
    made = schedule(
        lambda x: quantized_conv(x, filter_shape, rng, low=-100, high=90, **where),
        input("x", x_shape, "int8"),
    )
    found = recognize(made.steps[0])
    assert len(made.steps) == 1 and found is not None
    x = rng.integers(-128, 128, x_shape).astype(np.int8)
    (expected,) = outputs(made, x)
    np.testing.assert_array_equal(computed(found, x).reshape(expected.shape), expected)


@pytest.mark.parametrize(
    "key, shape, first, extents",
    [
        ((2,), (5, 3, 6), 36, (1, 3)),
        ((slice(1, 3), 0), (5, 3, 6), 18, (4, 3)),
        ((slice(1, 3), slice(1, None)), (5, 3, 6), 18, (4, 3)),
        ((0, slice(1, 3)), (5, 3, 6), 6, (1, 2)),
    ],
    ids=str,
)
def test_a_part_of_a_tensor_begins_at_its_first_pixel(
    key: tuple[Any, ...], shape: tuple[int, ...], first: int, extents: tuple[int, int]
) -> None:
    rng = np.random.default_rng(6)
    filter_shape = (4, *(1,) * (np.empty(shape)[key].ndim - 2), 6)
    made = schedule(lambda x: quantized_conv(x[key], filter_shape, rng), input("x", shape, "int8"))
    found = recognize(made.steps[0])
    assert found is not None and (found.first, (found.height, found.width)) == (first, extents)
    x = rng.integers(-128, 128, shape).astype(np.int8)
    (expected,) = outputs(made, x)
    part = x.reshape(-1)[first:][: found.batch * found.height * found.width * found.channels]
    np.testing.assert_array_equal(computed(found, part).reshape(expected.shape), expected)


def test_windows_that_begin_inside_of_the_input_are_not_for_planes_of_channels() -> None:
    rng = np.random.default_rng(7)
    made = schedule(
        lambda x: quantized_conv(x[:, :, 2:], (3, 3, 3, 1), rng, groups=3), input("x", (1, 6, 7, 3), "int8")
    )
    assert [recognize(step) for step in made.steps] == [None]


def test_what_a_kernel_does_not_compute_is_not_recognised() -> None:
    rng = np.random.default_rng(3)
    x, w = input("x", (1, 4, 6), "int8"), rng.integers(-9, 9, (2, 3, 6)).astype(np.int8)
    ones = table(np.full(2, 1 << 30, np.int32))
    shifts = table(np.full(2, -6, np.int32))

    def conv(x: Tensor, w: Tensor, accumulator: str = "int32") -> Tensor:
        return call("conv", x, w, zero_points=(0, 0), accumulator=accumulator)

    def single(x: Tensor) -> Tensor:
        return clamped(call("requantize", conv(x, table(w)), ones, shifts, rounding="tflite_single"))

    def wide(x: Tensor) -> Tensor:
        return clamped(call("requantize", conv(x, table(w), "int64"), ones, shifts, rounding="tflite_wide"))

    def wider_input(x: Tensor) -> Tensor:
        return clamped(call("requantize", conv(x.astype("int16"), table(w)), ones, shifts))

    def computed_filter(x: Tensor) -> Tensor:
        return clamped(call("requantize", conv(x, x.reshape(1, 4, 6)[:, :3]), number(1 << 30), number(-6)))

    for function in (single, wide, wider_input, computed_filter):
        assert all(recognize(step) is None for step in schedule(function, x).steps), function


def test_a_sum_that_goes_on_being_used_is_split_off() -> None:
    rng = np.random.default_rng(4)

    def residual(x: Tensor) -> dict[str, Tensor]:
        y = quantized_conv(x, (3, 3, 3, 3), rng, padding=((1, 1), (1, 1)))
        return {"sum": clamped(y.astype("int32") + x.astype("int32")), "conv": y}

    x = input("x", (1, 5, 4, 3), "int8")
    made = schedule(residual, x)
    split = split_requantized(made)
    kinds = [recognize(step) is not None for step in split.steps]
    assert (len(made.steps), kinds) == (1, [True, False])
    value = rng.integers(-128, 128, x.shape).astype(np.int8)
    for ours, theirs in zip(outputs(split, value), outputs(made, value), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_kernel_gets_the_scratch_that_it_asks_for() -> None:
    rng = np.random.default_rng(5)
    made = schedule(lambda x: quantized_conv(x, (4, 11), rng), input("x", (1, 11), "int8"))
    packed = packed_for(made.steps[0], lambda q: Packed("nest", scratch_bytes=8 * q.channels))
    assert packed is not None
    step = with_scratch(made.steps[0], packed)
    assert step.scratch is not None and step.scratch.type.size_bytes == 88
    assert with_scratch(made.steps[0], Packed("nest")) is made.steps[0]
    assert packed_for(made.steps[0], lambda q: None) is None
