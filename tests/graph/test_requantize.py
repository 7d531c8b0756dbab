"""The rounding rules, against the formulas of their definitions in Python's own integers."""

from __future__ import annotations

import numpy as np
import pytest

from teeny_embed.graph import scalar as s
from teeny_embed.graph.requantize import RULES

HALF = 1 << 30


def tflite(x: int, multiplier: int, shift: int) -> int:
    """gemmlowp: SaturatingRoundingDoublingHighMul, then RoundingDivideByPOT."""
    product = (x << max(shift, 0)) * multiplier
    nudged = product + (HALF if product >= 0 else 1 - HALF)
    high = abs(nudged) // (1 << 31) * (1 if nudged >= 0 else -1)  # C's division truncates
    places = max(-shift, 0)
    mask = (1 << places) - 1
    return (high >> places) + ((high & mask) > (mask >> 1) + (high < 0))


def tflite_single(x: int, multiplier: int, shift: int) -> int:
    return (x * multiplier + (1 << (30 - shift))) >> (31 - shift)


def tflite_wide(x: int, multiplier: int, shift: int) -> int:
    reduced = (multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF
    return (x * reduced + (1 << (14 - shift))) >> (15 - shift)


DEFINITIONS = {"tflite": tflite, "tflite_single": tflite_single, "tflite_wide": tflite_wide}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_its_definition(rule: str) -> None:
    function = RULES[rule]
    rng = np.random.default_rng(1)
    places = 40 if rule == "tflite_wide" else 20
    x = rng.integers(-(1 << places), 1 << places, 4000)
    x[:6] = [0, 1, -1, HALF >> 10, -HALF >> 10, 12345]
    multiplier = rng.integers(HALF, 1 << 31, x.size)
    multiplier[::7] = HALF
    multiplier[1::7] = (1 << 31) - 1
    multiplier[2::7] = 0
    shift = rng.integers(-31 if rule == "tflite" else -20, 4, x.size)
    if rule == "tflite_wide":
        shift = rng.integers(-30, -9, x.size)
    values = [v.astype(p.dtype) for v, p in zip((x, multiplier, shift), function.parameters, strict=True)]
    found = s.evaluate(function.body, dict(zip(function.parameters, values, strict=True)))
    expected = [DEFINITIONS[rule](*map(int, v)) for v in zip(x, multiplier, shift, strict=True)]
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)
