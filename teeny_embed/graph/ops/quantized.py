"""Requantisation as an operator. Quantised contractions and maps are the ordinary operators on integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from teeny_embed.graph.op import NOT_DIFFERENTIABLE, Attribute, Op, Sample, register
from teeny_embed.graph.requantize import RULES
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.types import TensorType, broadcast, expect


def _rule(value: Any) -> str:
    if value not in RULES:
        raise ValueError(f"one of {', '.join(RULES)}")
    return str(value)


def _infer(x: TensorType, multiplier: TensorType, shift: TensorType, rounding: str) -> TensorType:
    expect((RULES[rounding].parameters[0].dtype,), x)
    expect(("int32",), multiplier, shift)
    return TensorType(broadcast(x, multiplier, shift), "int32")


def _scalar(x: Scalar, multiplier: Scalar, shift: Scalar, rounding: str) -> Scalar:
    return RULES[rounding](x, multiplier, shift)


def _samples(rng: np.random.Generator) -> list[Sample]:
    multiplier = rng.integers(1 << 30, 1 << 31, 3).astype(np.int32)
    shift = np.array([-9, 0, 2], np.int32)
    x = rng.integers(-(1 << 20), 1 << 20, (4, 3)).astype(np.int32)
    return [Sample((x, multiplier, shift), {"rounding": rule}) for rule in ("tflite", "tflite_single")]


register(
    Op(
        "requantize",
        "an accumulator times multiplier 2^(shift - 31), by a named rounding rule",
        _infer,
        NOT_DIFFERENTIABLE,
        scalar=_scalar,
        attributes={"rounding": Attribute("rounding rule", default="tflite", check=_rule)},
        samples=_samples,
    )
)
