"""Resource variables and operators that run subgraphs, equal to TFLite Micro."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import teeny_embed as te
from support.tflite import Array, Runner, assert_equals_micro, micro_outputs, random_inputs
from support.tflite_files import Graph, Op, T, constant, file
from teeny_embed.errors import DataError
from teeny_embed.frontends.tflite import import_model

VECTOR = T((3,))
HANDLE = Op("VAR_HANDLE", [], [0], {"SharedName": "total"}, "VarHandleOptions")
ADD = {"FusedActivationFunction": 0}


def _adding(*before: Op) -> Graph:
    """x is added to the variable, and the sum is the output."""
    return Graph(
        [T((), "resource"), VECTOR, VECTOR, VECTOR],
        [
            *before,
            HANDLE,
            Op("READ_VARIABLE", [0], [2], {}, "ReadVariableOptions"),
            Op("ADD", [1, 2], [3], ADD, "AddOptions"),
            Op("ASSIGN_VARIABLE", [0, 3], [], {}, "AssignVariableOptions"),
        ],
        [1],
        [3],
    )


def _accumulator(once: bool) -> bytes:
    """The variable starts at 0, or at what a subgraph assigns once."""
    call_once = Op("CALL_ONCE", [], [], {"InitSubgraphIndex": 1}, "CallOnceOptions")
    main = _adding(call_once) if once else _adding()
    first = Graph(
        [T((), "resource"), constant([1, -2, 0.5], "float32")],
        [HANDLE, Op("ASSIGN_VARIABLE", [0, 1], [], {}, "AssignVariableOptions")],
        [],
        [],
    )
    return file([main, first] if once else [main])


def _run(content: bytes, samples: list[tuple[Array, ...]]) -> list[Array]:
    run = Runner(import_model(content, "small.tflite").graph)
    return [run(*inputs)[0] for inputs in samples]


@pytest.mark.parametrize("once", [False, True])
def test_variables_carry_from_call_to_call(once: bool) -> None:
    content = _accumulator(once)
    assert_equals_micro(content, random_inputs(import_model(content, "small.tflite"), seed=1, count=4))


def test_host_c_starts_from_what_is_assigned_once(tmp_path: Path) -> None:
    graph = import_model(_accumulator(once=True), "small.tflite").graph
    assert te.verify(te.build(te.Program("small", infer=graph), target="host", out=tmp_path), steps=3).ok


def _two_types() -> bytes:
    graph = Graph(
        [T((), "resource"), VECTOR, T((2,))],
        [
            HANDLE,
            Op("ASSIGN_VARIABLE", [0, 1], [], {}, "AssignVariableOptions"),
            Op("READ_VARIABLE", [0], [2], {}, "ReadVariableOptions"),
        ],
        [1],
        [2],
    )
    return file([graph])


def test_a_variable_has_one_type() -> None:
    with pytest.raises(DataError, match="variable 'resource/total'"):
        import_model(_two_types(), "small.tflite")


# ---- Branches and loops -----------------------------------------------------------------------------------


def _binary(name: str) -> Graph:
    return Graph(
        [VECTOR, VECTOR, VECTOR], [Op(name, [0, 1], [2], ADD, f"{name.title()}Options")], [0, 1], [2]
    )


def _choice(condition: T) -> bytes:
    main = Graph(
        [condition, VECTOR, VECTOR, VECTOR],
        [Op("IF", [0, 1, 2], [3], {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}, "IfOptions")],
        [i for i, t in enumerate([condition, VECTOR, VECTOR]) if t.data is None],
        [3],
    )
    return file([main, _binary("ADD"), _binary("MUL")])


@pytest.mark.parametrize("condition", [T((1,), "bool"), constant([False], "bool")], ids=["input", "known"])
def test_one_of_two_subgraphs(condition: T) -> None:
    content = _choice(condition)
    assert_equals_micro(content, random_inputs(import_model(content, "small.tflite"), seed=3, count=6))


def test_branches_decide_what_a_variable_becomes() -> None:
    """Added up where the condition holds, else left as it is."""
    main = Graph(
        [T((1,), "bool"), VECTOR, VECTOR],
        [Op("IF", [0, 1], [2], {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}, "IfOptions")],
        [0, 1],
        [2],
    )
    kept = Graph(
        [T((), "resource"), VECTOR, VECTOR],
        [HANDLE, Op("READ_VARIABLE", [0], [2], {}, "ReadVariableOptions")],
        [1],
        [2],
    )
    content = file([main, _adding(), kept])
    one = np.ones(3, np.float32)
    samples: list[tuple[Array, ...]] = [(np.array([c]), one) for c in (False, True, False, True, True, False)]
    assert [found[0] for found in _run(content, samples)] == [0, 1, 1, 2, 3, 3]


def _loop(limit: T) -> bytes:
    """x doubled as often as a counter from 0 is below the limit."""
    number = T((), "int32")
    main = Graph(
        [constant(0), VECTOR, limit, number, VECTOR, number],
        [Op("WHILE", [0, 1, 2], [3, 4, 5], {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}, "WhileOptions")],
        [i for i, t in enumerate([constant(0), VECTOR, limit]) if t.data is None],
        [4],
    )
    condition = Graph(
        [number, VECTOR, number, T((), "bool")], [Op("LESS", [0, 2], [3], {}, "LessOptions")], [0, 1, 2], [3]
    )
    body = Graph(
        [number, VECTOR, number, constant(1), number, VECTOR],
        [Op("ADD", [0, 3], [4], ADD, "AddOptions"), Op("ADD", [1, 1], [5], ADD, "AddOptions")],
        [0, 1, 2],
        [4, 5, 2],
    )
    return file([main, condition, body])


def test_loops_over_known_numbers_are_written_out() -> None:
    x = np.array([1, -2, 0.5], np.float32)
    content = _loop(constant(3))
    (found,) = _run(content, [(x,)])
    np.testing.assert_array_equal(found, 8 * x)
    np.testing.assert_array_equal(found, micro_outputs(content, [(x,)])[0][0])


def test_loops_over_inputs_are_refused_by_name() -> None:
    with pytest.raises(DataError, match="WHILE: how often it loops"):
        import_model(_loop(T((), "int32")), "small.tflite")


def test_a_subgraph_that_calls_itself_is_refused() -> None:
    main = Graph([], [Op("CALL_ONCE", [], [], {"InitSubgraphIndex": 0}, "CallOnceOptions")], [], [])
    content = file([Graph([VECTOR], main.operators, [0], [0])])
    with pytest.raises(DataError, match="calls itself"):
        import_model(content, "small.tflite")
