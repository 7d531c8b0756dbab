"""Intervals hold for whatever is computed, and are the sharpest where constants decide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from support.expressions import ENDS, INTERVALS, LEAVES, random_expression, values_between
from support.quantized import clamped, number, quantized_conv, table
from teeny_embed.api import Program
from teeny_embed.graph import scalar as s
from teeny_embed.graph.fuse import fuse
from teeny_embed.graph.interval import (
    Accumulator,
    Intervals,
    accumulator_interval,
    accumulator_of,
    intervals,
)
from teeny_embed.graph.lower import lower
from teeny_embed.graph.step import Step
from teeny_embed.graph.tensor import Tensor, call, input, trace
from teeny_embed.kernels.quantized import recognize


def steps(function: Any, *inputs: Tensor) -> tuple[Step, ...]:
    program = Program("net", infer=trace(function, *inputs))
    return fuse(lower(program.entry_points["infer"], "infer", {})).steps


# ---- Expressions ----------------------------------------------------------------------------------------


def test_every_value_lies_in_its_interval() -> None:
    rng = np.random.default_rng(1)
    values = values_between(rng, 300)
    for _ in range(400):
        root = random_expression(rng, 3)
        found = s.evaluate(root, values)
        low, high = Intervals(INTERVALS).of(root)
        assert low <= found.min() and found.max() <= high, root


def test_what_does_not_wrap_is_the_exact_result() -> None:
    rng = np.random.default_rng(2)
    exact = {
        "add": int.__add__,
        "subtract": int.__sub__,
        "multiply": int.__mul__,
        "shift_left": int.__lshift__,
    }
    values = {n: [*ends, *map(int, rng.integers(ends[0], ends[1] + 1, 5))] for n, ends in ENDS.items()}
    proven = 0
    for op, compute in exact.items():
        for first, second in np.ndindex(len(ENDS), len(ENDS)):
            a, b = list(LEAVES)[first], list(LEAVES)[second]
            node = s.make(op, (LEAVES[a], LEAVES[b]), "int32")
            if Intervals(INTERVALS).wraps(node):
                continue
            proven += 1
            assert all(-(2**31) <= compute(x, y) < 2**31 for x in values[a] for y in values[b] if x >= -128)
    assert proven > 10


def test_a_clamp_and_a_relu_bound_what_they_are_given() -> None:
    x = LEAVES["z"]
    relu = s.select(s.less(x, 0), 0, x)
    clamp = s.select(s.less(s.const(90, "int32"), relu), 90, relu)
    assert Intervals({}).of(relu) == (0, 2**31 - 1)
    assert Intervals({}).of(clamp) == (0, 90)


def test_bits_that_differ_from_a_sign_bound_a_number_or_its_complement() -> None:
    sign = s.shift_right(LEAVES["z"], s.const(31, "int32"))
    small = s.select(s.less(LEAVES["z"], 0), s.const(3, "int32"), s.const(90, "int32"))
    assert Intervals({}).of(s.bit_xor(small, sign)) == (-91, 90)


# ---- Steps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x_shape", "filter_shape", "where"),
    [
        ((1, 9, 7, 3), (5, 3, 3, 3), {"stride": (2, 1), "padding": ((1, 1), (0, 2))}),
        ((1, 6, 5, 4), (4, 3, 3, 1), {"groups": 4}),
        ((3, 11), (4, 11), {}),
    ],
)
def test_a_convolution_is_bounded_by_its_weights(
    x_shape: tuple[int, ...], filter_shape: tuple[int, ...], where: dict[str, Any]
) -> None:
    rng = np.random.default_rng(3)
    (step,) = steps(
        lambda x: quantized_conv(x, filter_shape, rng, input_zero_point=-3, **where),
        input("x", x_shape, "int8"),
    )
    q = recognize(step)
    assert q is not None
    bias = q.bias - 3 * q.filter.reshape(q.filters, -1).astype(np.int32).sum(axis=1)
    least, greatest = accumulator_interval(q.filter, bias, -125, 130)
    assert accumulator_of(step) == Accumulator("int32", least, greatest)


def test_a_maximum_is_bounded_by_what_it_is_taken_of() -> None:
    (step,) = steps(lambda x: call("max", x, axes=(1,)), input("x", (2, 5), "uint8"))
    assert intervals(step).of(step.outputs[0].value) == (0, 255)


def test_values_of_a_table_bound_what_is_computed_of_them() -> None:
    values = np.array([3, -7, 20], np.int32)
    (step,) = steps(lambda x: x.astype("int32") * table(values), input("x", (4, 3), "int8"))
    assert intervals(step).of(step.outputs[0].value) == (-128 * 20, 127 * 20)


# ---- Builds ---------------------------------------------------------------------------------------------

COUNT = 40
GREATEST = COUNT * 255 * 127


def linear(bias: int, accumulator: str = "int32") -> Program:
    """Sums of (x + 128) 127 between 0 and `GREATEST`, and a bias."""
    weights = table(np.full((2, COUNT), 127, np.int8))

    def infer(x: Tensor) -> Tensor:
        acc = call("conv", x, weights, zero_points=(-128, 0), accumulator=accumulator)
        total = (acc + table(np.array([0, bias], accumulator))).astype("int32")
        scaled = call("requantize", total, number(1 << 30), number(-18))
        return clamped(scaled)

    return Program("linear", infer=trace(infer, input("x", (1, COUNT), "int8")))


def test_an_accumulator_that_just_fits_is_accepted_and_recorded(tmp_path: Path) -> None:
    build = te.build(linear(2**31 - 1 - GREATEST), out=tmp_path)
    (row,) = json.loads((tmp_path / "manifest.json").read_text())["nodes"]
    assert row["accumulator"] == {"dtype": "int32", "least": 0, "greatest": 2**31 - 1}
    assert "80 MAC, int32 accumulator in [0, 2147483647]" in (tmp_path / "linear.c").read_text()
    te.verify(build)


def test_an_accumulator_that_could_overflow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        te.GraphError, match=r"conv.*int32 accumulator may lie in \[0, 2147483648\]"
    ) as caught:
        te.build(linear(2**31 - GREATEST), out=tmp_path)
    assert 'accumulator="int64"' in str(caught.value)
    te.build(linear(2**31 - GREATEST, "int64"), out=tmp_path)


def test_sums_that_wrap_by_definition_are_not_refused(tmp_path: Path) -> None:
    weights = np.full((2, COUNT), 2**30, np.int32)
    program = Program(
        "wrapping",
        infer=trace(
            lambda x: call("conv", x.astype("int32"), table(weights)), input("x", (1, COUNT), "int8")
        ),
    )
    te.verify(te.build(program, out=tmp_path))


def test_layers_that_share_a_function_are_both_covered_by_its_interval(tmp_path: Path) -> None:
    def infer(x: Tensor) -> tuple[Tensor, Tensor]:
        small, large = (
            call("conv", x, table(np.array([[w, -w]], np.int8)), zero_points=(0, 0), accumulator="int32")
            for w in (2, 100)
        )
        return small, large

    build = te.build(Program("shared", infer=trace(infer, input("x", (1, 2), "int8"))), out=tmp_path)
    (node,) = build.module.nodes
    assert node.accumulator == Accumulator("int32", -25500, 25500)
