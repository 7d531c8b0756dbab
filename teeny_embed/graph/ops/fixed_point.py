"""Operators of bits and fixed-point numbers. A shift's count is its operand, modulo the number of bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from teeny_embed.graph import fixed_point
from teeny_embed.graph import scalar as s
from teeny_embed.graph.op import NOT_DIFFERENTIABLE, Op, Sample, register
from teeny_embed.graph.ops.elementwise import same_type
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.types import NUMBERS, TensorType, expect


def _int32_type(*types: TensorType, **_: Any) -> TensorType:
    expect(("int32",), *types)
    return same_type(*types)


def _whole_type(*types: TensorType, **_: Any) -> TensorType:
    expect(NUMBERS[:-1], *types)
    return same_type(*types)


def _square_root_type(x: TensorType, **_: Any) -> TensorType:
    expect(("uint64",), x)
    return x.with_dtype("uint32")


def _samples(operand_count: int, shift: bool) -> Callable[..., list[Sample]]:
    def make(rng: np.random.Generator) -> list[Sample]:
        low, high = (0, 31) if shift else (-(1 << 31), (1 << 31) - 1)
        x = rng.integers(-(1 << 31), 1 << 31, (2, 5)).astype(np.int32)
        y = rng.integers(low, high, (5,)).astype(np.int32)
        return [Sample((x, y)[:operand_count])]

    return make


def _operator(
    name: str,
    summary: str,
    scalar: Callable[..., Scalar],
    count: int = 2,
    infer: Callable[..., TensorType] = _int32_type,
) -> None:
    register(
        Op(
            name,
            summary,
            infer,
            NOT_DIFFERENTIABLE,
            scalar=scalar,
            samples=_samples(count, name.startswith("shift")),
        )
    )


_operator("shift_left", "x 2^y; bits that leave are lost", s.shift_left, infer=_whole_type)
_operator("shift_right", "x 2^-y rounded down", s.shift_right, infer=_whole_type)
_operator("bitwise_and", "bits of both", s.bit_and, infer=_whole_type)
_operator("bitwise_or", "bits of either", s.bit_or, infer=_whole_type)
_operator("bitwise_xor", "bits that differ", s.bit_xor, infer=_whole_type)
_operator("bitwise_not", "all bits turned", lambda x: s.bit_xor(x, -1), 1, infer=_whole_type)
_operator(
    "shift_right_rounding",
    "x 2^-y rounded to the nearest, ties away from zero",
    fixed_point.shift_right_rounding,
)
_operator("shift_left_saturating", "x 2^y, saturating", fixed_point.shift_left_saturating)
_operator("multiply_high", "x y 2^-31 rounded to the nearest, ties up; saturates", fixed_point.multiply_high)
_operator("leading_zeros", "zero bits before the first one; 32 for 0", fixed_point.leading_zeros, 1)
_operator("inverse_of_one_plus", "1 / (1 + x) of a Q0.31 in [0, 1]", fixed_point.inverse_of_one_plus, 1)
_operator("inverse_square_root", "1 / sqrt(2 x) as Q0.31 of a Q3.28", fixed_point.inverse_square_root, 1)
_operator("log_fixed", "log(x) as Q5.26 of a Q12.19 that is 1 or more", fixed_point.log_12, 1)
register(
    Op(
        "square_root",
        "the integer nearest to the square root of a uint64; at most 2^16 - 1 below 2^32",
        _square_root_type,
        NOT_DIFFERENTIABLE,
        scalar=fixed_point.square_root,
        samples=lambda rng: [Sample((rng.integers(0, 1 << 63, (2, 5)).astype(np.uint64),))],
    )
)
