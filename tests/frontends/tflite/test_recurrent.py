"""LSTM and SVDF: state from call to call, each result equal to TFLite Micro's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from support.tflite import RECURRENT_MODELS, SharedModel, assert_equals_micro, random_inputs
from support.tflite_files import Op, T, constant, model
from teeny_embed.errors import DataError
from teeny_embed.frontends.tflite import import_model


@pytest.mark.parametrize("name", RECURRENT_MODELS)
def test_integer_models_carry_their_state_as_the_interpreter_does(shared: Path, name: str) -> None:
    stored = SharedModel(shared, name)
    samples = [*stored.feeds(), *random_inputs(stored.imported, seed=11, count=4)]
    assert_equals_micro(stored.path.read_bytes(), samples)


def test_the_float_lstm_is_near_the_interpreter(shared: Path) -> None:
    stored = SharedModel(shared, "tflm/mnist_lstm_float")
    samples = [*stored.feeds(), *random_inputs(stored.imported, seed=11, count=2)]
    assert_equals_micro(stored.path.read_bytes(), samples, atol=1e-5)


# ---- Operators of their own -------------------------------------------------------------------------------


def _check(content: bytes, exact: bool, calls: int = 6) -> None:
    samples = random_inputs(import_model(content, "small.tflite"), seed=5, count=calls)
    assert_equals_micro(content, samples, atol=0.0 if exact else 1e-5)


def _svdf(dtype: str, state: str, rank: int, batch: int = 1) -> bytes:
    rng = np.random.default_rng(3)
    inputs, units, times = 6, 4, 5
    filters = units * rank
    features, over_time = (rng.standard_normal(s) for s in ((filters, inputs), (filters, times)))
    bias = rng.standard_normal(units)
    options = {"Rank": rank, "FusedActivationFunction": 0}
    if dtype == "float32":
        tensors = [
            T((batch, inputs)), constant(features, "float32"), constant(over_time, "float32"),
            constant(bias, "float32"), T((batch, filters * times), is_variable=True), T((batch, units)),
        ]  # fmt: skip
    else:
        info: Any = np.iinfo(state)
        zero_point = 9 if state == "int8" else 0
        state_scale = 8 / info.max
        tensors = [
            T((batch, inputs), "int8", scale=0.02, zero_point=-5),
            constant(np.clip(features * 40, -127, 127), "int8", scale=0.025),
            constant(np.clip(over_time * info.max / 4, info.min, info.max), state, scale=4 / info.max),
            constant(bias * 1000, scale=state_scale * 4 / info.max),
            T((batch, filters * times), state, scale=state_scale, zero_point=zero_point, is_variable=True),
            T((batch, units), "int8", scale=0.1, zero_point=3),
        ]  # fmt: skip
    operator = Op("SVDF", [0, 1, 2, 3, 4], [5], options, "SVDFOptions")
    return model(tensors, [operator], [0], [5])


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("state", ["int8", "int16"])
def test_integer_svdf_equals_the_interpreter(state: str, rank: int) -> None:
    _check(_svdf("int8", state, rank, batch=1), exact=True)


@pytest.mark.parametrize("rank", [1, 2])
def test_float_svdf_is_near_the_interpreter(rank: int) -> None:
    _check(_svdf("float32", "float32", rank), exact=False)


def _lstm(
    dtype: str, *, time_major: bool = False, cell_clip: float = 0.0, batch: int = 2, **more: int
) -> bytes:
    """Three times, four inputs, five units; `more` fills further operands by number."""
    rng = np.random.default_rng(8)
    times, inputs, units = 3, 4, 5
    shape = (times, batch) if time_major else (batch, times)
    wide = dtype == "int16"
    quantised: dict[str, Any] = {} if dtype == "float32" else {"scale": 0.02}
    hidden: dict[str, Any] = {} if dtype == "float32" else {"scale": 2.0**-15 if wide else 0.0078}
    zero_points = {"zero_point": -12} if dtype == "int8" else {}
    tensors = [T((*shape, inputs), dtype, **quantised, **zero_points)]

    def weights(*extents: int) -> T:
        values = rng.standard_normal(extents)
        if dtype == "float32":
            return constant(values, "float32")
        return constant(np.clip(values * 50, -127, 127), "int8", scale=float(rng.uniform(0.01, 0.02)))

    def bias() -> T:
        if dtype == "float32":
            return constant(rng.standard_normal(units), "float32")
        return constant(rng.standard_normal(units) * 500, "int64" if wide else "int32", scale=0.0003)

    operands = [0, *[-1] * 23]

    def add(number: int, tensor: T) -> None:
        operands[number] = len(tensors)
        tensors.append(tensor)

    for gate in range(4):
        add(1 + gate, weights(units, inputs))
        add(5 + gate, weights(units, units))
        add(12 + gate, bias())
    offset = {"zero_point": 4} if zero_points else {}
    add(18, T((batch, units), dtype, is_variable=True, **hidden, **offset))
    cell = {"dtype": "float32"} if dtype == "float32" else {"dtype": "int16", "scale": 2.0**-11}
    add(19, T((batch, units), is_variable=True, **cell))
    for number in more.values():
        add(number, weights(units))
    tensors.append(T((*shape, units), dtype, **hidden, **offset))
    options = {"FusedActivationFunction": 4, "CellClip": cell_clip, "TimeMajor": time_major}
    operator = Op(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [len(tensors) - 1], options,
        "UnidirectionalSequenceLSTMOptions",
    )  # fmt: skip
    return model(tensors, [operator], [0], [len(tensors) - 1])


@pytest.mark.parametrize("options", [{}, {"time_major": True}, {"cell_clip": 0.5}], ids=str)
@pytest.mark.parametrize("dtype", ["int8", "int16", "float32"])
def test_lstm_equals_the_interpreter(dtype: str, options: dict[str, Any]) -> None:
    _check(_lstm(dtype, **options), exact=dtype != "float32")


def test_peepholes_are_refused_by_name() -> None:
    with pytest.raises(DataError, match="peepholes"):
        import_model(_lstm("float32", peephole=9), "small.tflite")


def test_an_operand_that_is_no_state_is_refused() -> None:
    content = _svdf("float32", "float32", 1)
    tensors = import_model(content, "small.tflite").model.subgraphs[0].tensors
    assert tensors[4].is_variable
    plain = model(
        [T(t.shape, "float32", t.data) for t in tensors],
        [Op("SVDF", [0, 1, 2, 3, 4], [5], {"Rank": 1}, "SVDFOptions")], [0, 4], [5],
    )  # fmt: skip
    with pytest.raises(DataError, match="no state"):
        import_model(plain, "small.tflite")


@pytest.mark.parametrize("content", [_svdf("int8", "int16", 2), _lstm("int8", batch=1)], ids=["svdf", "lstm"])
def test_host_c_carries_the_state(content: bytes, tmp_path: Path) -> None:
    graph = import_model(content, "small.tflite").graph
    build = te.build(te.Program("small", infer=graph), target="host", out=tmp_path)
    assert te.verify(build, steps=4).ok


def test_state_starts_at_its_zero_point() -> None:
    variables = import_model(_lstm("int8"), "small.tflite").graph.variables()
    initial = {v.name.rpartition("/")[2]: set(v.initial.reshape(-1).tolist()) for v in variables}
    assert initial == {"hidden": {4}, "cell": {0}}
