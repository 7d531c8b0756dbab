"""How near a result may come to a dying operand: safe, and no further than it must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from support.data import Array
from support.turns import overwritten
from teeny_embed import target as targets
from teeny_embed.graph.fuse import fuse
from teeny_embed.graph.lower import lower
from teeny_embed.graph.step import Buffer, Step
from teeny_embed.kernels.choose import Choice, choose, distance, in_place
from teeny_embed.kernels.turns import turns


def constant(*shape: int) -> Array:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


CASES: dict[str, Any] = {
    "map": lambda x: x * 2 + 1,
    "transposed": lambda x: x.transpose(0, 2, 1, 3) + 1,
    "pointwise": lambda x: te.conv(x, constant(4, 1, 1, 4)),
    "pointwise, wider": lambda x: te.conv(x, constant(9, 1, 1, 4)),
    "pointwise, narrower": lambda x: te.conv(x, constant(2, 1, 1, 4)),
    "strided": lambda x: te.conv(x, constant(5, 2, 2, 4), stride=(2, 2)),
    "padded": lambda x: te.conv(x, constant(4, 3, 3, 4), padding=((1, 1), (1, 1))),
    "rows": lambda x: te.conv(x, constant(4, 3, 1, 4), padding=((1, 1), (0, 0))),
    "pool": lambda x: te.max_pool(x, kernel=(2, 2), stride=(2, 2)),
    "sum": lambda x: te.sum(x, axes=(1, 2)),
}


def lowered(case: str) -> tuple[Step, Buffer, Buffer]:
    """The one step, its operand and its result."""
    x = te.input("x", (1, 6, 8, 4))
    (step,) = fuse(lower(te.trace(CASES[case], x), "infer", {})).steps
    (operand,) = {r.buffer for r in step.reads.values() if r.buffer.kind == "input"}
    return step, operand, step.outputs[0].buffer


@pytest.mark.parametrize("tiled", [False, True], ids=["untiled", "tiled"])
@pytest.mark.parametrize("case", CASES)
def test_a_distance_is_the_least_that_is_safe(case: str, tiled: bool) -> None:
    step, operand, result = lowered(case)
    choice = choose(step, targets.load("cortex-m4f")) if tiled else Choice("nest")
    found = distance(step, choice, operand)
    assert found is not None and found.multiple == 4
    assert overwritten(step, choice.tile, operand, result, found.byte_count) == 0
    assert overwritten(step, choice.tile, operand, result, found.byte_count + 8) == 0
    if found.byte_count:
        assert overwritten(step, choice.tile, operand, result, found.byte_count - 4) > 0


def test_a_pointwise_convolution_works_in_place_and_a_padded_one_a_row_behind() -> None:
    step, operand, _ = lowered("pointwise")
    assert in_place(step, Choice("nest", {"oc": 4}), operand)
    step, operand, _ = lowered("rows")
    found = distance(step, Choice("nest"), operand)
    assert not in_place(step, Choice("nest"), operand)
    assert found is not None and found.byte_count < 4 * step.count


def test_what_is_read_at_a_computed_position_has_no_distance() -> None:
    x, at = te.input("x", (9,)), te.input("at", (5,), "int32")
    (step,) = fuse(lower(te.trace(te.take, x, at), "infer", {})).steps
    table = next(r.buffer for r in step.reads.values() if r.affine() is None)
    assert distance(step, Choice("nest"), table) is None


def test_turns_with_a_multiple_round_their_distance_up() -> None:
    """Written up to 10 when 3 is still to be read; channels of 4."""
    order = turns([0, 3], [10, 20], multiple=4)
    assert (order.distance(1, 1).byte_count, order.distance(1, 1).multiple) == (8, 4)
    assert turns([0, 3], [10, 20]).distance(1, 1).byte_count == 7
    assert turns([0], [20]).distance(2, 1).byte_count == 0
