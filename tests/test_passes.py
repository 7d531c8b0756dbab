"""No pass changes a bit: every net computes the same before and after each, down to the planned memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from support.data import Array, Digits
from support.nets import CASES, Case
from support.runs import assert_equal_bits
from support.turns import overwritten
from teeny_embed import target as targets
from teeny_embed.api.building import IO
from teeny_embed.graph import evaluate
from teeny_embed.graph.canonicalize import canonicalize, drop_identities, fold_constants
from teeny_embed.graph.fuse import fuse
from teeny_embed.graph.lower import VariableBuffers, environment, lower
from teeny_embed.graph.node import Variable, verify
from teeny_embed.graph.rewrite import expand_composites, transform
from teeny_embed.graph.spaces import is_identity
from teeny_embed.graph.step import Buffer, Schedule, Step
from teeny_embed.kernels.choose import Choice, choose, prepare
from teeny_embed.planner.order import orders
from teeny_embed.planner.plan import EntryPlan, plan
from teeny_embed.planner.storage import in_arena
from teeny_embed.target import Target

STEPS = 2
TARGETS = [targets.load(name) for name in ("host", "cortex-m4f")]
CASE = pytest.mark.parametrize("case", CASES, ids=str)


def kernels(target: Target) -> Callable[[Step], Choice]:
    return lambda step: choose(step, target)


def computed(
    schedule: Schedule, case: Case, digits: Digits, planned: EntryPlan | None = None
) -> list[dict[str, Array]]:
    """Outputs and new values of variables of a few calls in a row, in the memory of the plan if given."""
    values: dict[Variable, Array] = {
        b.variable: b.variable.initial for b in schedule.buffers() if b.variable is not None
    }
    results = []
    for step in range(STEPS):
        memory = environment(schedule, case.feed(digits, step), values)
        if planned is not None:
            memory = SharedMemory(planned, memory)
        evaluate.run(schedule, memory)
        values |= {b.variable: memory[b].copy() for b, _ in schedule.assigns if b.variable is not None}
        outputs = {b.name: memory[b].copy() for b in schedule.outputs}
        results.append(outputs | {variable.name: value for variable, value in values.items()})
    return results


def assert_equal_results(found: list[dict[str, Array]], expected: list[dict[str, Array]], what: str) -> None:
    for step, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert_equal_bits({name: ours[name] for name in theirs}, theirs, f"{what}, call {step}")


# ---- Graphs -------------------------------------------------------------------------------------------

BIT_PRESERVING = {
    "fold_constants": lambda graph: transform(expand_composites(graph), fold_constants),
    "drop_identities": lambda graph: transform(expand_composites(graph), drop_identities),
}


@CASE
def test_graph_passes_change_no_bit(case: Case, mnist: Digits) -> None:
    """Nor does canonicalisation as a whole, unless it says so."""
    for entry, graph in case.graphs().items():
        expected = computed(lower(graph, entry), case, mnist)
        reference = canonicalize(graph)
        passes = {name: verify(rewrite(graph)) for name, rewrite in BIT_PRESERVING.items()}
        if reference.changes == graph.changes:
            passes["canonicalize"] = reference
        for name, rewritten in passes.items():
            assert_equal_results(computed(lower(rewritten, entry), case, mnist), expected, f"{entry}, {name}")


# ---- Steps --------------------------------------------------------------------------------------------


def lowered(case: Case) -> dict[str, Schedule]:
    variables: VariableBuffers = {}
    return {entry: lower(g, entry, variables) for entry, g in case.program().entry_points.items()}


class SharedMemory(dict[Buffer, Array]):
    """Values in the bytes that the plan gives them. Every call begins with garbage in the arena."""

    def __init__(self, entry: EntryPlan, given: evaluate.Environment) -> None:
        super().__init__()
        self._entry = entry
        self._arena = np.full(entry.arena_bytes, 0xFF, np.uint8)  # read as floats, NaN
        self._outside = {b: np.zeros(b.type.shape, b.type.dtype) for b in entry.schedule.buffers()}
        self._outside |= {buffer: value.copy() for buffer, value in given.items()}
        for buffer in entry.schedule.inputs:
            self[buffer] = given[buffer]

    def __getitem__(self, buffer: Buffer) -> Array:
        root = self._entry.storage[buffer]
        if root not in self._entry.offsets:
            return self._outside[root].reshape(buffer.type.shape)
        offset = self._entry.offsets[root]
        return np.ndarray(buffer.type.shape, buffer.type.dtype, self._arena.data, offset)

    def __setitem__(self, buffer: Buffer, value: Array) -> None:
        self[buffer][...] = value


@CASE
def test_fusion_order_kernels_and_shared_memory_change_no_bit(case: Case, mnist: Digits) -> None:
    for entry, schedule in lowered(case).items():
        expected = computed(schedule, case, mnist)
        fused = fuse(schedule)
        assert len(fused.steps) < len(schedule.steps)
        for number, steps in enumerate(orders(fused, in_arena(fused))):
            found = computed(replace(fused, steps=steps), case, mnist)
            assert_equal_results(found, expected, f"{entry}, order {number}")
        for target, io in itertools.product(TARGETS, IO):
            (planned,) = plan([prepare(fused, target)], kernels(target), io).entries
            found = computed(planned.schedule, case, mnist, planned)
            assert_equal_results(found, expected, f"{entry} for {target.name}, io={io}")


# ---- What holds for every plan ------------------------------------------------------------------------


def entries(case: Case) -> Iterator[tuple[Target, EntryPlan]]:
    for target, io in itertools.product(TARGETS, IO):
        prepared = [prepare(fuse(schedule), target) for schedule in lowered(case).values()]
        yield from ((target, entry) for entry in plan(prepared, kernels(target), io).entries)


@CASE
def test_a_step_writes_only_over_what_it_has_read(case: Case) -> None:
    """Turn by turn, where operand and result share bytes; only what dies may be written over."""
    for target, entry in entries(case):
        steps = entry.schedule.steps
        last_use = {entry.storage[b]: i for i, step in enumerate(steps) for b in step.buffers()}
        last_use |= {entry.storage[b]: len(steps) for b in entry.schedule.outputs}
        for i, step in enumerate(steps):
            choice = choose(step, target)
            for result, operand in itertools.product(step.buffers_written(), step.buffers_read()):
                gap = bytes_before(entry, result, operand)
                if gap is None:
                    continue
                root = entry.storage[operand]
                assert root is entry.storage[result] or last_use[root] == i
                if choice.in_order and choice.vector is None and choice.kernel == "nest":
                    assert overwritten(step, choice.tile, operand, result, gap) == 0
                else:
                    own = [r for r in step.reads.values() if r.buffer is operand]
                    assert gap == 0 and all(is_identity(r, step.dims) for r in own)


def bytes_before(entry: EntryPlan, result: Buffer, operand: Buffer) -> int | None:
    """How many bytes a result begins before an operand; None if they share none."""
    roots = [entry.storage[b] for b in (result, operand)]
    if roots[0] is roots[1]:
        return 0
    if any(root not in entry.offsets for root in roots):
        return None
    gap = entry.offsets[roots[1]] - entry.offsets[roots[0]]
    return gap if -roots[1].type.size_bytes < gap < roots[0].type.size_bytes else None


@CASE
def test_results_and_scratch_of_a_step_share_no_byte(case: Case) -> None:
    for _, entry in entries(case):
        for step in entry.schedule.steps:
            roots = {entry.storage[b] for b in (*step.buffers_written(), step.scratch) if b is not None}
            ranges = sorted(
                (entry.offsets[r], entry.offsets[r] + r.type.size_bytes) for r in roots if r in entry.offsets
            )
            assert len(roots) == len(step.outputs) + (step.scratch is not None)
            assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))


@CASE
def test_in_an_arena_with_io_inputs_live_from_the_start_and_outputs_to_the_end(case: Case) -> None:
    for entry in (e for _, e in entries(case) if any(b in e.offsets for b in e.schedule.outputs)):
        lifetimes = {b.name: b for b in entry.problem.buffers}
        steps = len(entry.schedule.steps)
        for buffers, step in ((entry.schedule.inputs, 0), (entry.schedule.outputs, steps - 1)):
            for buffer in buffers:
                root = entry.storage[buffer]
                assert (root in entry.offsets) == (buffer.type.shape != ())
                assert root not in entry.offsets or lifetimes[entry.names[root]].is_live_at(step)


@CASE
def test_nothing_is_written_that_the_caller_or_the_flash_owns(case: Case) -> None:
    for _, entry in entries(case):
        versions = {value for _, value in entry.schedule.assigns}
        for step in entry.schedule.steps:
            for buffer in step.buffers_written():
                root = entry.storage[buffer]
                assert root.kind in ("activation", "output") or root in entry.offsets or buffer in versions


@CASE
def test_nothing_of_the_state_is_written_before_the_loss_is_checked(case: Case) -> None:
    for _, entry in entries(case):
        versions = {value for _, value in entry.schedule.assigns}
        checked = {check.buffer for check in entry.schedule.checks if check.kind == "finite"}
        for step in entry.schedule.steps:
            written = set(step.buffers_written())
            checked -= written
            assert not (written & versions and checked)
