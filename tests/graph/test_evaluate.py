"""NumPy's ordered evaluation against the definition of a step, one number at a time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine
from teeny_embed.graph.evaluate import run_step, sum_rows
from teeny_embed.graph.lower import lower
from teeny_embed.graph.op import REGISTRY, Sample
from teeny_embed.graph.step import Buffer, Read, Step
from teeny_embed.graph.tensor import call, constant, trace
from teeny_embed.graph.tensor import input as placeholder

Point = dict[str, int]


def element(read: Read, point: Point, known: dict[s.Scalar, Any], env: dict[Buffer, Any]) -> Any:
    """The element that a read sees, its fill, or None where there is none."""
    index = []
    for i, extent in zip(read.index, read.shape, strict=True):
        if isinstance(i, Affine):
            numerator = i.constant + sum(c * point[d] for d, c in i.terms)
            at, rest = divmod(numerator, i.divisor)
            if (i.exact and rest) or not 0 <= at < extent:
                return None if read.fill is None else np.array(read.fill.attr, read.buffer.type.dtype)
        else:
            at = int(s.evaluate(i, known))
        index.append(at)
    return env[read.buffer].reshape(read.shape)[tuple(index)]


def leaves(reads: dict[str, Read], point: Point, env: dict[Buffer, Any]) -> dict[s.Scalar, Any] | None:
    known: dict[s.Scalar, Any] = {s.index(d): np.int32(p) for d, p in point.items()}
    for name, read in sorted(reads.items(), key=lambda item: item[1].affine() is None):
        value = element(read, point, known, env)
        if value is None:
            return None
        known[s.var(name, read.buffer.type.dtype)] = value
    return known


def fold(step: Step, level: int, point: Point, env: dict[Buffer, Any]) -> dict[s.Scalar, Any]:
    total = {f.accumulator: np.array(f.start.attr, f.dtype) for f in step.folds}
    dims = step.levels[level]
    for position in itertools.product(*(range(e) for _, e in dims)):
        here = {**point, **dict(zip((d for d, _ in dims), position, strict=True))}
        if level + 1 < len(step.levels):
            for a, part in fold(step, level + 1, here, env).items():
                total[a] = np.add(total[a], part)
            continue
        known = leaves(step.fold_reads(), here, env)
        if known is not None:
            total = {f.accumulator: s.evaluate(f.update, {**known, **total}) for f in step.folds}
    return total


def by_definition(step: Step, env: dict[Buffer, Any]) -> list[Any]:
    results = [np.zeros([e for _, e in step.dims], o.buffer.type.dtype) for o in step.outputs]
    for position in itertools.product(*(range(e) for _, e in step.dims)):
        point = dict(zip((d for d, _ in step.dims), position, strict=True))
        known = leaves(step.epilogue_reads(), point, env)
        assert known is not None
        if step.folds:
            known |= fold(step, 0, point, env)
        for result, output in zip(results, step.outputs, strict=True):
            result[position] = s.evaluate(output.value, known)
    return results


def sample_cases() -> list[Any]:
    found = []
    for op in REGISTRY.values():
        if op.samples is not None and op.composite is None:
            rng = np.random.default_rng(5)
            found += [pytest.param(op.name, c, id=f"{op.name}-{i}") for i, c in enumerate(op.samples(rng))]
    return found


@pytest.mark.parametrize(("name", "sample"), sample_cases())
def test_every_op_is_evaluated_as_its_step_is_defined(name: str, sample: Sample) -> None:
    operands = [np.asarray(o) for o in sample.operands]
    inputs = [placeholder(f"in{i}", o.shape, o.dtype.name) for i, o in enumerate(operands)]
    graph = trace(lambda *xs: call(name, *xs, **sample.attributes), *inputs)
    schedule = lower(graph, "f")
    env: dict[Buffer, Any] = dict(zip(schedule.inputs, map(np.ascontiguousarray, operands), strict=True))
    env |= {b: b.value for b in schedule.buffers() if b.value is not None}
    with np.errstate(all="ignore"):
        for step in schedule.steps:
            expected = by_definition(step, env)
            run_step(step, env)
            for result, output in zip(expected, step.outputs, strict=True):
                np.testing.assert_array_equal(env[output.buffer].reshape(result.shape), result)


@pytest.mark.parametrize("columns", [1, 2, 3, 17, 150])
def test_rows_are_added_one_after_the_other(columns: int) -> None:
    rng = np.random.default_rng(columns)
    rows = (rng.standard_normal((999, columns)) * 10.0 ** rng.integers(-6, 6, (999, columns))).astype("f4")
    total = np.zeros(columns, np.float32)
    for row in rows:
        total = total + row
    np.testing.assert_array_equal(sum_rows(rows), total)


def test_absent_terms_leave_infinities_out() -> None:
    g = placeholder("g", (1, 2))
    weight = constant(np.array([[np.inf, 1], [2, np.nan]], "f4"))
    graph = trace(lambda t: call("conv_input_grad", t, weight, extents=()), g)
    schedule = lower(graph, "f")
    env: dict[Buffer, Any] = {schedule.inputs[0]: np.array([[0, 3]], "f4")}
    env |= {b: b.value for b in schedule.buffers() if b.value is not None}
    for step in schedule.steps:
        run_step(step, env)
    np.testing.assert_array_equal(env[schedule.outputs[0]], np.array([[6, np.nan]], "f4"))
