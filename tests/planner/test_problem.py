"""A problem that nobody can place is refused when it is stated."""

from __future__ import annotations

from typing import Any

import pytest

from teeny_embed.errors import PlanError
from teeny_embed.planner.problem import Buffer, Problem, lower_bound_bytes, naive_bytes, peak_step

GOOD: dict[str, Any] = {"name": "b", "size_bytes": 8, "lower": 1, "upper": 3}


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"size_bytes": 0}, "size is 0 bytes"),
        ({"upper": 1}, r"lifetime \[1, 1\) holds no step"),
        ({"lower": -1}, r"lifetime \[-1, 3\)"),
        ({"alignment": 12}, "alignment is 12, not a power of two"),
        ({"alignment": 0, "fixed_offset": 4}, "alignment is 0"),
        ({"fixed_offset": 6}, "fixed offset 6 is not a multiple of 4"),
        ({"fixed_offset": -4}, "fixed offset -4"),
    ],
)
def test_buffer_that_cannot_be_placed_says_why(arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(PlanError, match=f"buffer b cannot be placed: its {rule}"):
        Buffer(**(GOOD | arguments))


def test_two_buffers_of_one_name_are_refused() -> None:
    with pytest.raises(PlanError, match="two buffers are called b"):
        Problem((Buffer("b", 4, 0, 1), Buffer("b", 4, 1, 2)))


def test_memory_without_a_capacity_is_refused() -> None:
    with pytest.raises(PlanError, match="b is in memory fsat, known are: fast, slow"):
        Problem((Buffer("b", 4, 0, 1, memory="fsat"),), {"fast": 8, "slow": None})


def test_fixed_buffer_beyond_the_end_of_its_memory_is_refused() -> None:
    with pytest.raises(PlanError, match="b is fixed to end at 12, arena ends at 10"):
        Problem((Buffer("b", 4, 0, 1, fixed_offset=8),), {"arena": 10})


def test_bound_lets_a_fine_buffer_use_what_a_coarse_one_leaves() -> None:
    assert lower_bound_bytes((Buffer("a", 5, 0, 1, 4), Buffer("b", 3, 0, 1, 1))) == 8


def test_bound_of_coarse_buffers_is_not_weakened_by_a_fine_one() -> None:
    coarse = (Buffer("a", 5, 0, 2), Buffer("b", 5, 0, 2))
    assert lower_bound_bytes((*coarse, Buffer("tiny", 1, 0, 1, alignment=1))) == 13


def test_bound_counts_a_fixed_buffer_up_to_its_end() -> None:
    assert lower_bound_bytes((Buffer("a", 4, 0, 1, fixed_offset=96),)) == 100


def test_naive_height_uses_no_byte_twice() -> None:
    assert naive_bytes((Buffer("a", 5, 0, 1), Buffer("b", 8, 1, 2), Buffer("c", 2, 2, 3))) == 18


def test_peak_is_the_first_step_with_most_live_bytes() -> None:
    assert peak_step((Buffer("a", 4, 0, 2), Buffer("b", 4, 3, 5), Buffer("c", 4, 4, 5))) == 4
    assert peak_step((Buffer("a", 4, 2, 3), Buffer("b", 4, 5, 6))) == 2
