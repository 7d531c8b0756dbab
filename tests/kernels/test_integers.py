"""Integer arithmetic in cheaper forms: the same bits, and only where they are proven to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import teeny_embed as te
from support.data import Array
from support.expressions import INTERVALS, random_expression, values_between
from support.quantized import clamped, number, quantized_conv, table
from teeny_embed.api import Program, build
from teeny_embed.graph import scalar as s
from teeny_embed.graph.interval import Intervals
from teeny_embed.graph.requantize import RULES, SATURATE, high_product
from teeny_embed.graph.tensor import Tensor, call, input, trace
from teeny_embed.kernels.integers import simplified_scalar

X, SHIFT = s.var("x", "int32"), s.var("shift", "int8")
MULTIPLIERS = (0, 1 << 30, (1 << 30) + 1, 1623821475, (1 << 31) - 1)
REQUANTIZE = RULES["tflite"]


def between(low: int, high: int) -> Intervals:
    return Intervals({X: (np.asarray([low]), np.asarray([high]))})


def accumulators(bits: int) -> Array:
    """Ends, small numbers (with ties), what lies beside powers of two, random ones; of both signs."""
    rng = np.random.default_rng(bits)
    most = (1 << bits) - 1
    edges = [d + (1 << b) for b in range(bits) for d in (-1, 0, 1)]
    values = np.concatenate(
        [np.arange(-600, 601), edges, np.negative(edges), rng.integers(-most, most + 1, 20000)]
    )
    return np.append(np.clip(values, -most, most), [-most, most]).astype(np.int32)


def calls(root: s.Scalar) -> set[str]:
    return {f.name for f in s.functions_used([root])}


# ---- Requantisation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [-31, -30, -17, -8, -2, -1, 0, 1, 5])
@pytest.mark.parametrize("multiplier", MULTIPLIERS)
def test_a_requantisation_of_small_numbers_is_a_high_product_and_a_shift(multiplier: int, shift: int) -> None:
    bits = 30 - max(shift, 0)
    most = (1 << bits) - 1
    root = REQUANTIZE(X, multiplier, shift)
    found = simplified_scalar(root, between(-most, most))
    assert calls(found) <= {"high_product"}
    values = {X: accumulators(bits)}
    np.testing.assert_array_equal(s.evaluate(found, values), s.evaluate(root, values))


def test_a_table_of_shifts_to_the_right_is_shifted_by() -> None:
    values = accumulators(30)
    rng = np.random.default_rng(3)
    shifts = rng.integers(-31, 0, values.size).astype(np.int8)
    root = REQUANTIZE(X, 1623821475, s.cast(SHIFT, "int32"))
    most = np.asarray([(1 << 30) - 1])
    known = {X: (-most, most), SHIFT: (np.asarray([-31]), np.asarray([-1]))}
    found = simplified_scalar(root, Intervals(known))
    assert calls(found) == {"high_product"}
    env = {X: values, SHIFT: shifts}
    np.testing.assert_array_equal(s.evaluate(found, env), s.evaluate(root, env))


@pytest.mark.parametrize("shift", [-8, 0, 3])
def test_what_may_be_large_is_requantised_as_the_rule_says(shift: int) -> None:
    root = REQUANTIZE(X, 1623821475, shift)
    most = 1 << (30 - max(0, shift))
    assert simplified_scalar(root, between(-1, most)) is root
    assert simplified_scalar(root, between(-most, 1)) is root


def test_shifts_in_both_directions_stay_as_they_are() -> None:
    root = REQUANTIZE(X, 1623821475, s.cast(SHIFT, "int32"))
    known = {X: (np.asarray([-5]), np.asarray([5])), SHIFT: (np.asarray([-3]), np.asarray([0]))}
    assert simplified_scalar(root, Intervals(known)) is root


def test_a_high_product_is_the_product_without_its_lower_half() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.integers(-(1 << 31), 1 << 31, (2, 5000)).astype(np.int32)
    x[:6], y[:6] = [-(1 << 31)] * 3 + [(1 << 31) - 1] * 3, [-(1 << 31), -1, (1 << 31) - 1] * 2
    found = s.evaluate(high_product.body, dict(zip(high_product.parameters, (x, y), strict=True)))
    assert found.tolist() == [(int(a) * int(b) + (1 << 31)) >> 32 for a, b in zip(x, y, strict=True)]


# ---- The rest ---------------------------------------------------------------------------------------------


def test_any_expression_keeps_its_values() -> None:
    rng = np.random.default_rng(5)
    values = values_between(rng, 200)
    for _ in range(300):
        root = random_expression(rng, 3)
        found = simplified_scalar(root, Intervals(INTERVALS))
        np.testing.assert_array_equal(s.evaluate(found, values), s.evaluate(root, values), err_msg=repr(root))


@pytest.mark.parametrize("dtype, unit", [("int8", 1), ("int16", 256)])
@pytest.mark.parametrize("ends", [(-(1 << 31), (1 << 31) - 1), (-500, 500), (0, 500), (-500, 3), (-90, 80)])
@pytest.mark.parametrize("bounds", [(-128, 127), (-5, 127), (-128, 6), (-3, 100), (-300, 300), (9, 3)])
def test_a_clamp_to_a_small_type_keeps_its_values(
    bounds: tuple[int, int], ends: tuple[int, int], dtype: str, unit: int
) -> None:
    low, high = bounds[0] * unit, (bounds[1] + 1) * unit - 1
    if ends[1] < 1 << 30:
        ends = ends[0] * unit, ends[1] * unit
    inside = s.select(s.less_equal(X, s.const(high, "int32")), X, high)
    root = s.cast(s.select(s.less_equal(s.const(low, "int32"), inside), inside, low), dtype)
    found = simplified_scalar(root, between(*ends))
    values = {X: np.unique(np.clip(accumulators(31), *ends)).astype(np.int32)}
    np.testing.assert_array_equal(s.evaluate(found, values), s.evaluate(root, values))


@pytest.mark.parametrize("dtype", SATURATE)
def test_a_clamp_to_all_of_a_type_is_one_function_and_none_where_nothing_is_clamped(dtype: str) -> None:
    saturate, info = SATURATE[dtype], np.iinfo(dtype)
    root = s.substitute(saturate.body, {saturate.parameters[0]: X})
    assert simplified_scalar(root, between(4 * info.min, info.max)) is saturate(X)
    assert simplified_scalar(root, between(info.min, info.max)) is s.cast(X, dtype)


def test_a_bound_that_is_never_passed_is_left_out() -> None:
    root = s.select(s.less_equal(X, s.const(255, "int32")), X, 255) + X
    assert simplified_scalar(root, between(-9, 255)) is s.add(X, X)
    assert simplified_scalar(root, between(-9, 256)) is root


def test_zero_points_and_ties_are_added_before_the_shift_in_one_constant() -> None:
    root = REQUANTIZE(X - 7, 1623821475, -9) - 100
    found = simplified_scalar(root, between(0, 1000))
    additions = [n for n in s.walk([found]) if n.op in ("add", "subtract")]
    assert found.op == "shift_right" and len(additions) == 3
    values = {X: np.arange(1001, dtype=np.int32)}
    np.testing.assert_array_equal(s.evaluate(found, values), s.evaluate(root, values))


# ---- Programs ---------------------------------------------------------------------------------------------


def sum_of_two(a: Tensor, b: Tensor) -> Tensor:
    """A quantised addition, as frontends write it."""

    def scaled(x: Tensor, zero_point: int, multiplier: int, shift: int) -> Tensor:
        fine = call("shift_left", x.astype("int32") - zero_point, number(20))
        return call("requantize", fine, number(multiplier), number(shift))

    total = scaled(a, -128, 1623821475, -2) + scaled(b, 4, 1 << 30, 0)
    return clamped(call("requantize", total, number(1098017566), number(-17)) - 128)


def test_a_quantised_addition_is_printed_without_a_wrapping_cast(tmp_path: Path) -> None:
    a, b = (input(n, (1, 300), "int8") for n in "ab")
    built = build(Program("sums", infer=trace(sum_of_two, a, b)), out=tmp_path)
    node = (tmp_path / "sums.c").read_text().partition("TE_NODE static")[2].partition("/* ====")[0]
    assert "uint32_t" not in node and "sums_saturate_int8(" in node and "sums_high_product(" in node
    assert te.verify(built).ok


def test_a_function_that_only_a_kernel_in_assembly_replaces_is_not_printed(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    program = Program(
        "net", infer=trace(lambda x: quantized_conv(x, (8, 1, 1, 16), rng), input("x", (1, 4, 4, 16), "int8"))
    )
    for target, printed in (("cortex-m3", False), ("host", True)):
        build(program, target, tmp_path / target)
        text = (tmp_path / target / "net.c").read_text()
        assert ("net_requantize_tflite(" in text or "net_high_product(" in text) is printed


def test_large_accumulators_are_verified_too(tmp_path: Path) -> None:
    def infer(x: Tensor) -> Tensor:
        large = x.astype("int32") * table(np.array([1 << 23, 1 << 24], np.int32))
        return call("requantize", large, number(1623821475), table(np.array([-3, 1], np.int32)))

    built = build(Program("large", infer=trace(infer, input("x", (9, 2), "int8"))), out=tmp_path)
    assert "large_requantize_tflite(" in (tmp_path / "large.c").read_text()
    assert te.verify(built).ok


@pytest.mark.parametrize("zero_point, matters", [(-128, False), (-127, True), (0, True)])
def test_ties_do_not_matter_where_negative_numbers_become_the_least(zero_point: int, matters: bool) -> None:
    scaled = REQUANTIZE(X, 1623821475, -7) + zero_point
    inside = s.select(s.less_equal(scaled, s.const(127, "int32")), scaled, 127)
    root = s.cast(s.select(s.less_equal(s.const(-128, "int32"), inside), inside, -128), "int8")
    found = simplified_scalar(root, between(-(1 << 20), 1 << 20))
    shifts = [n for n in s.walk([found]) if n.op == "shift_right" and n.args[1].attr == 31]
    assert bool(shifts) == matters
    values = {X: np.clip(accumulators(21), -(1 << 20), 1 << 20).astype(np.int32)}
    np.testing.assert_array_equal(s.evaluate(found, values), s.evaluate(root, values))
