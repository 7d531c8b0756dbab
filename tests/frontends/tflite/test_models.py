"""Whole models: the import equals TFLite Micro, in every bit where numbers are integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.tflite import (
    FLOAT_MODELS,
    INTEGER_MODELS,
    WIDE_MODELS,
    Runner,
    SharedModel,
    assert_equals_micro,
    random_inputs,
)


@pytest.mark.parametrize("name", INTEGER_MODELS)
def test_integer_models_equal_the_stored_vectors(shared: Path, name: str) -> None:
    model = SharedModel(shared, name)
    run = Runner(model.imported.graph)
    for inputs, wanted in zip(model.feeds(), model.wanted(), strict=True):
        np.testing.assert_array_equal(run(*inputs)[0].reshape(wanted.shape), wanted)


@pytest.mark.parametrize("name", INTEGER_MODELS)
def test_integer_models_equal_the_interpreter_on_fresh_inputs(shared: Path, name: str) -> None:
    model = SharedModel(shared, name)
    assert_equals_micro(model.path.read_bytes(), random_inputs(model.imported, seed=7, count=3))


@pytest.mark.parametrize("name", WIDE_MODELS)
def test_16_bit_operators_equal_the_interpreter(shared: Path, name: str) -> None:
    model = SharedModel(shared, name)
    samples = [*model.feeds(), *random_inputs(model.imported, seed=3, count=1)]
    assert_equals_micro(model.path.read_bytes(), samples)


@pytest.mark.parametrize("name", FLOAT_MODELS)
def test_float_models_are_near_the_stored_vectors(shared: Path, name: str) -> None:
    model = SharedModel(shared, name)
    run = Runner(model.imported.graph)
    got = np.stack([run(*inputs)[0] for inputs in model.feeds()])
    wanted = model.wanted()
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_hybrid_weights_are_multiplied_out_and_said_so(
    shared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "teeny_embed")
    model = SharedModel(shared, "mlperf_tiny/kws_dscnn_float")
    run = Runner(model.imported.graph)
    got = np.stack([run(*inputs)[0] for inputs in model.feeds()])
    with np.load(shared / "vectors" / "derived" / "kws_dscnn_float.npz") as vectors:
        wanted = vectors["out0"]
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert "op 0: int8 weights" in caplog.text
