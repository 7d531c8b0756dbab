"""The map shows who lies where and when; its text is part of what a user reads, so it is compared whole."""

from __future__ import annotations

from teeny_embed.planner.placement import place
from teeny_embed.planner.problem import Buffer, Placement, Problem
from teeny_embed.planner.report import memory_map

PROBLEM = Problem(
    (
        Buffer("image", 784, 0, 2),
        Buffer("stem.conv", 4704, 1, 3),
        Buffer("stem.pool", 1176, 2, 4),
        Buffer("logits", 40, 3, 5, memory="fast"),
    ),
    {"arena": 8000, "fast": None, "spare": 64},
)

MAP = """\
arena: 5,880 of 8,000 bytes, lower bound 5,880, gap 0.0%
  offset  bytes  lifetime  steps  name
       0  4,704    [1, 3)   .##.  stem.conv *
   4,704    784    [0, 2)   ##..  image
   4,704  1,176    [2, 4)   ..##  stem.pool *
peak: step 2, 5,880 bytes live in the buffers marked *

fast: 40 bytes, lower bound 40, gap 0.0%
  offset  bytes  lifetime  steps  name
       0     40    [3, 5)  ...##  logits *
peak: step 3, 40 bytes live in the buffers marked *

spare: empty
"""


def test_map_lists_buffers_by_offset_with_the_peak_marked() -> None:
    assert memory_map(PROBLEM, place(PROBLEM)) == MAP


def test_map_reports_the_gap_in_percent() -> None:
    problem = Problem((Buffer("a", 8, 0, 1), Buffer("b", 8, 1, 2)))
    assert "arena: 12 bytes, lower bound 8, gap 50.0%\n" in memory_map(
        problem, Placement.of(problem, {"a": 0, "b": 4})
    )


def test_bars_of_many_steps_keep_their_width_and_show_every_buffer() -> None:
    problem = Problem(tuple(Buffer(f"b{i}", 4, i, i + 1) for i in range(1000)))
    bars = [line.split()[4] for line in memory_map(problem, place(problem)).splitlines()[2:1002]]
    assert {len(bar) for bar in bars} == {40}
    assert all("#" in bar for bar in bars)
