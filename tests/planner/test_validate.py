"""The validator finds each kind of mistake, and only the mistake that was made."""

from __future__ import annotations

import random

import pytest

from teeny_embed.errors import PlanError
from teeny_embed.planner.placement import place
from teeny_embed.planner.problem import Buffer, Placement, Problem
from teeny_embed.planner.validate import check, validate

PROBLEM = Problem(
    (Buffer("a", 8, 0, 2), Buffer("b", 8, 1, 3), Buffer("pinned", 4, 0, 9, fixed_offset=16)), {"arena": 32}
)
GOOD = {"a": 0, "b": 8, "pinned": 16}


def broken(**moved: int) -> list[str]:
    return validate(PROBLEM, Placement.of(PROBLEM, GOOD | moved))


def test_good_placement_breaks_no_rule() -> None:
    assert broken() == []
    check(PROBLEM, Placement.of(PROBLEM, GOOD))


def test_shared_bytes_in_a_shared_step_are_an_overlap() -> None:
    assert broken(b=4) == ["overlap: a and b share bytes [4, 8) in step 1"]


def test_a_buffer_may_only_come_near_to_one_that_it_replaces() -> None:
    """`a` dies in the step in which `b` is born; `pinned` goes on living."""
    near = {("b", "a"): 4, ("b", "pinned"): 4, ("a", "b"): 4}
    problem = Problem(PROBLEM.buffers, {"arena": 32}, near)

    def found(**offsets: int) -> list[str]:
        return validate(problem, Placement.of(problem, GOOD | offsets))

    assert found(a=4, b=0) == []
    assert found(a=2, b=0)[1:] == ["overlap: a and b share bytes [2, 8) in step 1"]
    assert found(a=0, b=4) == ["overlap: a and b share bytes [4, 8) in step 1"]
    assert found(b=12) == ["overlap: pinned and b share bytes [16, 20) in step 1"]


def test_offset_off_its_alignment_is_found() -> None:
    assert broken(b=22) == ["alignment: b is at 22, not a multiple of 4"]


def test_offset_that_left_its_fixed_place_is_found() -> None:
    assert broken(pinned=20) == ["fixed offset: pinned is at 20, not at 16"]


def test_offset_outside_the_memory_is_found() -> None:
    assert broken(b=28) == ["bounds: b ends at 36, arena at 32"]
    assert broken(a=-8) == ["bounds: a is at -8, below the start of arena"]


def test_missing_and_unknown_buffers_are_found() -> None:
    placement = Placement({"a": 0, "pinned": 16, "c": 0}, {"arena": 20}, {"arena": 20})
    assert validate(PROBLEM, placement) == [
        "missing: b has no offset",
        "unknown: c has an offset, but is no buffer",
    ]


def test_wrong_height_and_impossible_lower_bound_are_found() -> None:
    assert validate(PROBLEM, Placement(GOOD, {"arena": 24}, {"arena": 21})) == [
        "height: arena is said to be 24 bytes high, its highest buffer ends at 20",
        "lower bound: arena is said to need 21 bytes, its highest buffer ends at 20",
    ]


def test_buffers_in_different_memories_may_have_equal_offsets() -> None:
    buffers = (Buffer("a", 8, 0, 1), Buffer("b", 8, 0, 1, memory="fast"))
    problem = Problem(buffers, {"arena": None, "fast": None})
    assert validate(problem, Placement.of(problem, {"a": 0, "b": 0})) == []


def test_check_raises_with_every_broken_rule() -> None:
    with pytest.raises(PlanError, match=r"wrong\n  fixed offset: pinned is at 20.*\n  overlap: a and b"):
        check(PROBLEM, Placement.of(PROBLEM, GOOD | {"b": 4, "pinned": 20}))


def test_validator_agrees_with_a_byte_by_byte_replay() -> None:
    for seed in range(300):
        print("seed", seed)
        rng = random.Random(seed)
        buffers = tuple(
            Buffer(f"b{i}", rng.randint(1, 8), low, low + rng.randint(1, 4), alignment=1)
            for i, low in enumerate(rng.choices(range(6), k=4))
        )
        offsets = {b.name: rng.randrange(12) for b in buffers}
        used = [
            (step, byte)
            for b in buffers
            for step in range(b.lower, b.upper)
            for byte in range(offsets[b.name], offsets[b.name] + b.size_bytes)
        ]
        problem = Problem(buffers)
        found = any(rule.startswith("overlap") for rule in validate(problem, Placement.of(problem, offsets)))
        assert found == (len(set(used)) < len(used))


def test_every_move_of_a_tight_placement_is_found() -> None:
    problem = Problem(tuple(Buffer(f"b{i}", 8, 0, 1) for i in range(4)), {"arena": 32})
    offsets = place(problem).offsets
    for name in offsets:
        for move in (-4, 4):
            assert validate(problem, Placement.of(problem, {**offsets, name: offsets[name] + move}))
