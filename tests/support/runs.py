"""Training runs, wherever they happen, and how their bits are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from support.data import Array, Digits
from support.nets import Case
from teeny_embed.deploy.runner import Runner
from teeny_embed.graph.node import Variable


@dataclass(frozen=True)
class Run:
    """What a training run computes: status and outputs of each call, and the state after the last one."""

    results: list[tuple[int, dict[str, Array]]]
    state: dict[str, Array]


def train(runner: Runner, case: Case, digits: Digits, steps: int) -> Run:
    """Resets, trains, and infers the last inputs once."""
    results = [(runner.reset(), {})]
    for step in range(steps):
        feed = case.feed(digits, step)
        results.append(runner.call("train_step", feed))
    results.append(runner.call("infer", {a: feed[a] for a in input_names(runner, "infer")}))
    return Run(results, runner.read_state())


def input_names(runner: Runner, entry: str) -> list[str]:
    declared = next(e for e in runner.interface.entry_points if e.name == entry)
    return [a.name for a in declared.arguments if a.direction == "in"]


def assert_equal_runs(found: Run, expected: Run) -> None:
    """Equal statuses and equal bits."""
    for call, (ours, theirs) in enumerate(zip(found.results, expected.results, strict=True)):
        assert ours[0] == theirs[0], f"call {call}: status {ours[0]}, expected {theirs[0]}"
        assert_equal_bits(ours[1], theirs[1], f"call {call}")
    assert_equal_bits(found.state, expected.state, "the state")


def assert_equal_bits(found: Mapping[str, Array], expected: Mapping[str, Array], where: str) -> None:
    """Equal names, types and bits, but any NaN equals any NaN. Names the tensors that differ."""
    assert list(found) == list(expected)
    different = {name: differing_count(found[name], expected[name]) for name in expected}
    different = {name: count for name, count in different.items() if count}
    first = next(iter(different), None)
    assert first is None, (
        f"{where}: elements that differ {different}; {first}: {found[first]}, expected {expected[first]}"
    )


def differing_count(a: Array, b: Array) -> int:
    """Elements with different bits."""
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    return int(np.count_nonzero(bits(a) != bits(b)))


def bits(a: Array) -> Array:
    """The elements as unsigned integers, all NaNs alike."""
    if a.dtype.kind == "f":
        a = np.where(np.isnan(a), np.array(np.nan, a.dtype), a)
    return np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}")


def named(values: Mapping[Variable, Array]) -> dict[str, Array]:
    """By the name of the variable."""
    return {variable.name: value for variable, value in values.items()}
