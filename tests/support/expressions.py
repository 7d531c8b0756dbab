"""Random integer expressions over leaves with known ends."""

from __future__ import annotations

import numpy as np

from support.data import Array
from teeny_embed.graph import scalar as s

ENDS: dict[str, tuple[int, int]] = {"x": (-128, 127), "y": (0, 255), "z": (-(2**31), 2**31 - 1), "w": (3, 9)}
LEAVES = {n: s.var(n, "int32") for n in ENDS}
INTERVALS = {LEAVES[n]: (np.asarray([low]), np.asarray([high])) for n, (low, high) in ENDS.items()}


def values_between(rng: np.random.Generator, count: int) -> dict[s.Scalar, Array]:
    """For each leaf its ends and numbers between them, in any order."""
    values = {}
    for name, (low, high) in ENDS.items():
        values[LEAVES[name]] = rng.integers(low, high + 1, count).astype(np.int32)
        values[LEAVES[name]][:2] = [low, high]
        rng.shuffle(values[LEAVES[name]])
    return values


def random_expression(rng: np.random.Generator, depth: int) -> s.Scalar:
    """An int32 expression of the leaves."""
    if depth == 0:
        return (
            rng.choice(list(LEAVES.values()))
            if rng.random() < 0.7
            else s.const(int(rng.integers(-9, 300)), "int32")
        )
    a, b, c, d = (random_expression(rng, depth - 1) for _ in range(4))
    places = s.const(int(rng.integers(0, 31)), "int32")
    made = [
        a + b, a - b, a * b, s.negative(a), s.shift_left(a, places), s.shift_right(a, places),
        s.bit_and(a, b), s.bit_or(a, b), s.divide(a, s.const(7, "int32")),
        s.remainder(a, s.const(7, "int32")),
        s.select(s.less(a, b), a, b), s.select(s.less(a, b), b, a), s.select(s.less_equal(a, b), c, d),
        s.select(s.logical_or(s.equal(a, b), s.logical_not(s.less(c, d))), a, d),
        s.cast(s.cast(a, "int8"), "int32"), s.cast(s.cast(a, "uint16"), "int32"),
        s.cast(s.shift_right(s.cast(a, "int64") * s.cast(b, "int64"), s.const(31, "int64")), "int32"),
    ]  # fmt: skip
    return made[int(rng.integers(len(made)))]
