"""Placements keep every rule, are deterministic, and lie between the lower bound and the naive height."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from teeny_embed.errors import PlanError
from teeny_embed.planner.csv_format import read_problem
from teeny_embed.planner.placement import place
from teeny_embed.planner.problem import Buffer, Distances, Placement, Problem, lower_bound_bytes, naive_bytes
from teeny_embed.planner.validate import validate

SEED = 20_261
INSTANCES = "ABCDEFGHIJK"


def random_buffers(rng: random.Random, count: int, most_bytes: int = 40, steps: int = 12) -> list[Buffer]:
    buffers = []
    for i in range(count):
        lower = rng.randrange(steps)
        upper = rng.randint(lower + 1, steps)
        alignment = rng.choice((1, 2, 4, 4, 8))
        buffers.append(Buffer(f"b{i}", rng.randint(1, most_bytes), lower, upper, alignment))
    return buffers


def random_distances(rng: random.Random, buffers: list[Buffer]) -> dict[tuple[str, str], int]:
    """For some of the pairs of which one dies in the step in which the other is born."""
    return {
        (below.name, above.name): rng.randrange(below.size_bytes)
        for below in buffers
        for above in buffers
        if above is not below and above.upper == below.lower + 1 and rng.random() < 0.5
    }


def fits_below(
    buffers: list[Buffer], height: int, near: Distances, placed: tuple[tuple[Buffer, int], ...] = ()
) -> bool:
    """Tries every offset of every buffer: no theory that the planner might share."""
    if len(placed) == len(buffers):
        return True
    b = buffers[len(placed)]
    return any(
        all(
            b.upper <= o.lower
            or o.upper <= b.lower
            or p - at >= near.get((b.name, o.name), b.size_bytes)
            or at - p >= near.get((o.name, b.name), o.size_bytes)
            for o, p in placed
        )
        and fits_below(buffers, height, near, (*placed, (b, at)))
        for at in range(0, height - b.size_bytes + 1, b.alignment)
    )


def best_height(buffers: list[Buffer], near: Distances) -> int:
    return next(h for h in range(10_000) if fits_below(buffers, h, near))


def placed_arena(*buffers: Buffer) -> Placement:
    problem = Problem(buffers)
    placement = place(problem)
    assert validate(problem, placement) == []
    return placement


@pytest.mark.parametrize("case", range(20))
def test_random_placements_are_valid_deterministic_and_between_the_bounds(case: int) -> None:
    for seed in range(SEED + 50 * case, SEED + 50 * case + 50):
        print("seed", seed)
        rng = random.Random(seed)
        buffers = random_buffers(rng, rng.randint(1, 14))
        near = random_distances(rng, buffers) if seed % 2 else {}
        problem = Problem(tuple(buffers), distances=near)
        placement = place(problem)
        assert validate(problem, placement) == []
        assert lower_bound_bytes(problem.buffers, near) <= placement.height_bytes["arena"]
        assert placement.height_bytes["arena"] <= naive_bytes(problem.buffers)
        rng.shuffle(buffers)
        again = place(Problem(tuple(buffers), distances=near))
        assert again == placement, "the order of the buffers must not matter"


def test_exhaustive_search_finds_nothing_below_the_bound_and_the_gap_is_measured_from_it() -> None:
    optimal = 0
    for seed in range(SEED, SEED + 150):
        print("seed", seed)
        rng = random.Random(seed)
        buffers = random_buffers(rng, rng.randint(1, 5), most_bytes=9, steps=5)
        near = random_distances(rng, buffers) if seed % 2 else {}
        placement = place(Problem(tuple(buffers), distances=near))
        height, bound = placement.height_bytes["arena"], placement.lower_bound_bytes["arena"]
        best = best_height(buffers, near)
        assert bound <= best <= height
        assert placement.gap["arena"] == height / bound - 1
        optimal += height == best
    assert optimal >= 130, f"greedy placement was best in {optimal} of 150 problems"


def test_random_fixed_offsets_are_kept() -> None:
    for seed in range(SEED, SEED + 200):
        print("seed", seed)
        rng = random.Random(seed)
        buffers = random_buffers(rng, 6)
        fixed = Buffer("fixed", rng.randint(1, 40), 2, 9, fixed_offset=4 * rng.randrange(20))
        placement = placed_arena(*buffers, fixed)
        assert placement.offsets["fixed"] == fixed.fixed_offset
        assert placement.height_bytes["arena"] <= naive_bytes((*buffers, fixed))


def test_buffers_that_touch_in_time_share_bytes() -> None:
    placement = placed_arena(Buffer("early", 8, 0, 3), Buffer("late", 8, 3, 5))
    assert placement.offsets == {"early": 0, "late": 0}


def test_buffers_that_meet_in_one_step_share_no_byte() -> None:
    assert placed_arena(Buffer("a", 8, 0, 3), Buffer("b", 8, 2, 5)).height_bytes == {"arena": 16}


def test_what_replaces_a_buffer_may_begin_its_distance_before_it() -> None:
    old, new, other = Buffer("old", 8, 0, 3), Buffer("new", 12, 2, 5), Buffer("other", 4, 3, 5)
    problem = Problem((old, new, other), distances={("new", "old"): 4})
    placement = place(problem)
    assert validate(problem, placement) == []
    assert placement.offsets["old"] - placement.offsets["new"] == 4
    assert (placement.height_bytes, placement.lower_bound_bytes) == ({"arena": 16}, {"arena": 16})


def test_offset_respects_alignment() -> None:
    placement = placed_arena(Buffer("a", 5, 0, 1, alignment=1), Buffer("b", 3, 0, 1, alignment=16))
    assert placement.offsets["b"] % 16 == 0
    assert placement.height_bytes == {"arena": 8}


def test_padding_above_the_highest_buffer_is_not_counted() -> None:
    placement = placed_arena(Buffer("a", 5, 0, 1), Buffer("b", 5, 0, 1))
    assert (placement.height_bytes, placement.lower_bound_bytes) == ({"arena": 13}, {"arena": 13})


def test_buffers_flow_around_one_with_a_fixed_offset() -> None:
    placement = placed_arena(
        Buffer("fixed", 8, 0, 9, fixed_offset=8), Buffer("below", 8, 0, 9), Buffer("above", 12, 0, 9)
    )
    assert placement.offsets == {"fixed": 8, "below": 0, "above": 16}


def test_memories_are_placed_independently() -> None:
    buffers = (Buffer("a", 8, 0, 1), Buffer("b", 8, 0, 1, memory="fast"))
    placement = place(Problem(buffers, {"arena": None, "fast": 8, "unused": 0}))
    assert placement.offsets == {"a": 0, "b": 0}
    assert placement.height_bytes == {"arena": 8, "fast": 8, "unused": 0}
    assert placement.gap == {"arena": 0.0, "fast": 0.0, "unused": 0.0}


def test_nothing_to_place_needs_no_bytes() -> None:
    assert placed_arena().height_bytes == {"arena": 0}


def test_a_chain_of_activations_reaches_the_lower_bound() -> None:
    chain = [Buffer(f"x{i}", 100 * (1 + i % 7), i, i + 2) for i in range(150)]
    assert placed_arena(*chain).gap == {"arena": 0.0}


def test_a_training_step_comes_within_one_percent_of_the_lower_bound() -> None:
    depth = 40
    kept = [Buffer(f"act{i}", 64 * (depth - i), i, 2 * depth - i) for i in range(depth)]
    grads = [Buffer(f"grad{i}", b.size_bytes, b.upper - 1, b.upper + 1) for i, b in enumerate(kept)]
    assert placed_arena(*kept, *grads).gap["arena"] < 0.01


def test_too_small_a_memory_names_who_takes_what_at_the_peak() -> None:
    buffers = (Buffer("image", 784, 0, 2), Buffer("conv", 4704, 1, 3), Buffer("pool", 1176, 3, 4))
    with pytest.raises(PlanError) as error:
        place(Problem(buffers, {"arena": 5000}))
    assert str(error.value).splitlines() == [
        "arena has 5,000 bytes, but no plan needs fewer than 5,488",
        "live in step 1, 5,488 bytes:",
        "  bytes  share  lifetime  name",
        "  4,704  85.7%    [1, 3)  conv",
        "    784  14.3%    [0, 2)  image",
        "  hint: make what is live at the peak smaller, or choose a target with more memory",
    ]


def test_a_search_that_fails_does_not_claim_that_no_plan_exists(shared: Path) -> None:
    text = (shared / "planner_benchmarks/minimalloc/A.1048576.csv").read_text()
    with pytest.raises(PlanError, match=r"the best plan found needs(.|\n)*1,048,576 bytes is not ruled out"):
        place(read_problem(text, {"arena": 1_048_576}))


def test_fixed_offsets_that_collide_are_an_error_naming_both() -> None:
    buffers = (Buffer("a", 8, 0, 3, fixed_offset=0), Buffer("b", 8, 2, 5, fixed_offset=4))
    with pytest.raises(PlanError, match=r"a and b overlap\n  at step 2"):
        place(Problem(buffers))


@pytest.mark.parametrize("name", INSTANCES)
def test_minimalloc_instance_is_placed_validly_and_no_higher_than_greedy_by_size(
    name: str, shared: Path
) -> None:
    folder = shared / "planner_benchmarks"
    rows = csv.DictReader((folder / "reference.csv").read_text().splitlines())
    reference = next(row for row in rows if row["instance"] == name)
    problem = read_problem((folder / f"minimalloc/{name}.1048576.csv").read_text())
    placement = place(problem)
    assert validate(problem, placement) == []
    assert placement.lower_bound_bytes["arena"] == int(reference["max_live"])
    assert placement.height_bytes["arena"] <= int(reference["greedy_by_size_first_fit"])
