"""A variable may be assigned anything, its old value and that of others included: C and NumPy agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.random_programs import SIZE, random_step
from support.runs import assert_equal_bits
from teeny_embed.api import Program, build
from teeny_embed.deploy.host import HostLibrary
from teeny_embed.deploy.reference import ReferenceRunner
from teeny_embed.graph.node import Graph, Variable
from teeny_embed.graph.tensor import Tensor, assign, call, constant, input, read, trace

Step = Callable[[Variable, Variable, Tensor], Tensor]


def shift_window(a: Variable, b: Variable, x: Tensor) -> Tensor:
    assign(a, call("concat", read(a)[1:], x[:1], axis=0))
    return read(a).sum()


def shift_window_back(a: Variable, b: Variable, x: Tensor) -> Tensor:
    assign(a, call("concat", x[:1], read(a)[:-1], axis=0))
    return read(a).sum()


def transpose(a: Variable, b: Variable, x: Tensor) -> Tensor:
    assign(a, read(a).transpose(1, 0) + x)
    return read(a).sum()


def square(a: Variable, b: Variable, x: Tensor) -> Tensor:
    assign(a, 0.1 * (read(a) @ read(a)))
    return read(a).sum()


def swap(a: Variable, b: Variable, x: Tensor) -> Tensor:
    old_a, old_b = read(a), read(b)
    assign(a, old_b)
    assign(b, old_a)
    return x


def swap_and_transpose(a: Variable, b: Variable, x: Tensor) -> Tensor:
    old_a, old_b = read(a), read(b)
    assign(a, old_a * 0.5 + old_b.transpose(1, 0))
    assign(b, old_b * 0.5 + old_a.transpose(1, 0))
    return old_a @ old_b


def fibonacci(a: Variable, b: Variable, x: Tensor) -> Tensor:
    old = read(a)
    assign(a, (old + read(b)) * 0.5)
    assign(b, old)
    return x


def return_old_and_new(a: Variable, b: Variable, x: Tensor) -> Tensor:
    old = read(a)
    assign(a, old * 0.5 + x)
    return read(a) @ old


def return_the_new_value(a: Variable, b: Variable, x: Tensor) -> Tensor:
    assign(a, read(a) * 0.5 + x)
    return read(a)


def give_one_value_to_both(a: Variable, b: Variable, x: Tensor) -> Tensor:
    value = read(a) * 0.5 + x
    assign(a, value)
    assign(b, value)
    return x


def keep_the_input(a: Variable, b: Variable, x: Tensor) -> Tensor:
    assign(a, x)
    return read(b)


def clear(a: Variable, b: Variable, x: Tensor) -> Tensor:
    assign(a, constant(np.ones((SIZE, SIZE), np.float32)))
    return read(a) + x


STEPS: tuple[Step, ...] = (
    shift_window, shift_window_back, transpose, square, swap, swap_and_transpose, fibonacci,
    return_old_and_new, return_the_new_value, give_one_value_to_both, keep_the_input, clear,
)  # fmt: skip


def traced(step: Step, a: Variable, b: Variable) -> Graph:
    return trace(lambda x: step(a, b, x), input("x", (SIZE, SIZE)), names=("y",))


def check(steps: dict[str, Step], folder: Path) -> None:
    """All steps of one program, one after the other, twice: the state of one is the next one's."""
    rng = np.random.default_rng(0)
    a, b = (Variable(n, rng.standard_normal((SIZE, SIZE), dtype=np.float32), "state") for n in "ab")
    program = Program("net", **{name: traced(step, a, b) for name, step in steps.items()})
    built = build(program, "host", folder)
    with (
        HostLibrary(built.interface, built.directory) as library,
        ReferenceRunner(built.interface, program.entry_points) as reference,
    ):
        assert library.reset() == reference.reset() == 0
        for name in [*steps, *steps]:
            x = rng.standard_normal((SIZE, SIZE), dtype=np.float32)
            found, expected = (runner.call(name, {"x": x}) for runner in (library, reference))
            assert found[0] == expected[0] == 0
            assert_equal_bits(found[1], expected[1], name)
            assert_equal_bits(library.read_state(), reference.read_state(), f"the state after {name}")


def test_every_kind_of_assignment_gives_numpys_bits(tmp_path: Path) -> None:
    check({step.__name__: step for step in STEPS}, tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_random_assignments_give_numpys_bits(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    check({f"step{number}": random_step(rng) for number in range(25)}, tmp_path)
