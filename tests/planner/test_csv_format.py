"""minimalloc's files read and write without loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from teeny_embed.errors import PlanError
from teeny_embed.planner.csv_format import read_placement, read_problem, write_csv
from teeny_embed.planner.placement import place
from teeny_embed.planner.problem import Buffer, Problem


def test_plain_problem_is_written_with_minimalloc_columns_only() -> None:
    problem = Problem((Buffer("a", 8, 0, 3, alignment=1),))
    assert write_csv(problem) == "id,lower,upper,size\na,0,3,8\n"
    assert write_csv(problem, place(problem)) == "id,lower,upper,size,offset\na,0,3,8,0\n"


def test_every_field_survives_a_round_trip() -> None:
    buffers = (Buffer("a, b", 8, 0, 3, 16, fixed_offset=32), Buffer("c", 4, 1, 2, 1, memory="fast"))
    problem = Problem(buffers, {"arena": 64, "fast": None})
    placement = place(problem)
    text = write_csv(problem, placement)
    assert read_problem(text, {"arena": 64, "fast": None}) == problem
    assert read_problem(text).buffers == buffers
    assert read_placement(text, problem) == placement


def test_minimalloc_example_is_placed_within_its_capacity(shared: Path) -> None:
    text = (shared / "planner_benchmarks/minimalloc/input.12.csv").read_text()
    problem = read_problem(text, {"arena": 12})
    assert place(problem).height_bytes == {"arena": 12}
    assert write_csv(problem) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,lower,upper\na,0,1\n", "the CSV has no column size"),
        ("", "the CSV has no column id, lower, upper, size"),
        ("id,lower,upper,size\na,0,1,4\nb,0,x,4\n", "upper is 'x', not a whole number\n  at line 3"),
        ("id,lower,upper,size\na,0,1\n", "size is '', not a whole number\n  at line 2"),
    ],
)
def test_wrong_csv_says_what_and_where(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        read_problem(text)


def test_plan_without_offsets_says_so() -> None:
    problem = Problem((Buffer("a", 8, 0, 3),))
    with pytest.raises(PlanError, match="offset is None"):
        read_placement(write_csv(problem), problem)
    with pytest.raises(PlanError, match="the plan has no row for a"):
        read_placement("id,lower,upper,size,offset\n", problem)
