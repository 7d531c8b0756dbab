"""The nets of the tests are what they are said to be, and exercise what they are there for."""

from __future__ import annotations

import itertools

import numpy as np

from support.data import Array, Digits
from support.nets import CASES, Case, lenet5
from teeny_embed.graph.lower import Evaluator


def states(case: Case, digits: Digits, steps: int) -> list[dict[str, Array]]:
    """Values of all variables before the first step and after each."""
    graph = case.graphs()["train_step"]
    run = Evaluator(graph)
    found = [{v.name: v.value.copy() for v in graph.variables()}]
    for step in range(steps):
        _, assigned = run(case.feed(digits, step))
        for variable, value in assigned.items():
            variable.set(value)
        found.append({v.name: v.value.copy() for v in graph.variables()})
    return found


def test_lenet5_has_61706_parameters() -> None:
    assert sum(p.value.size for p in lenet5().parameters()) == 61_706


def test_some_gradients_are_clipped_and_some_are_not(mnist: Digits) -> None:
    found = states(Case("clipped", "sgd", 8), mnist, 50)
    moves = [
        np.sqrt(sum(np.sum(np.square(b[n] - a[n], dtype=np.float64)) for n in a)) / 0.05
        for a, b in itertools.pairwise(found)
    ]
    clipped = np.isclose(moves, 0.55, rtol=1e-3)
    assert max(moves) < 0.551
    assert 10 < np.count_nonzero(clipped) < 40


def test_normalization_and_dropout_advance_their_state(mnist: Digits) -> None:
    first, *_, last = states(Case("normalized", "sgd", 8), mnist, 5)
    assert last["random.calls"] == first["random.calls"] + 5
    for name in first:
        if "running" in name:
            assert not np.any(first[name] == last[name])


def test_every_case_learns_something(mnist: Digits) -> None:
    for case in CASES:
        first, last = states(case, mnist, 1)
        assert all(np.any(first[n] != last[n]) for n in first), case
