"""Quantised models compiled to C give the bits of TFLite Micro: outputs and every layer, on every core."""

from __future__ import annotations

import zlib
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from support.runners import CORES, Place
from support.tflite import (
    FLOAT_MODELS,
    INTEGER_MODELS,
    RECURRENT_MODELS,
    WIDE_MODELS,
    SharedModel,
    micro_outputs,
    micro_tensors,
    random_inputs,
)
from support.tflite import Runner as NumPy
from teeny_embed.api import Program, build
from teeny_embed.deploy.runner import Array, Runner
from teeny_embed.graph.node import CONSTANT, INPUT, Graph

Sample = tuple[Array, ...]

HOST = Place("host")
FRESH_COUNT = {"host": 200, "cortex-m4f": 200}
"""Seeded inputs beside the stored ones; 8 where nothing is said."""
IN_EVERY_RUN = {
    "host": INTEGER_MODELS,
    "cortex-m0": ("mlperf_tiny/ad_autoencoder_int8",),
    "cortex-m3": ("mlperf_tiny/kws_dscnn_int8",),
    "cortex-m4f": ("mlperf_tiny/ic_resnet8_int8", "mlperf_tiny/vww_mobilenetv1_int8"),
    "cortex-m7": ("tflm/micro_speech_int8",),
    "cortex-m33": ("mlperf_tiny/sww_streaming_int8",),
    "cortex-m55": ("mlperf_tiny/kws_dscnn_int8",),
}
WITH_STATE = (*RECURRENT_MODELS, "tflm/audio_preprocessor_int8")
EVERY_MODEL = pytest.mark.parametrize("name", (*INTEGER_MODELS, *WITH_STATE, *WIDE_MODELS))
EVERY_PLACE = pytest.mark.parametrize("target", ["host", *CORES])
RESET_BETWEEN_SAMPLES = ("tflm/mnist_lstm_int8",)


def compiled(
    graph: Graph, place: Place, folder: Path, flags: tuple[str, ...] = ()
) -> AbstractContextManager[Runner]:
    """The graph as entry point `infer` of a module that runs at `place`."""
    built = build(Program("model", infer=graph), place.target, folder / "c")
    return replace(place, flags=flags).runner(built, folder / "firmware")


def assert_same_outputs(
    name: str, model: SharedModel, place: Place, fresh: int, folder: Path, flags: tuple[str, ...] = ()
) -> None:
    """The stored samples, then fresh ones; state goes on from one to the next unless the model is reset."""
    content = model.path.read_bytes()
    samples = [*model.feeds(), *random_inputs(model.imported, zlib.crc32(name.encode()), fresh)]
    alone = name in RESET_BETWEEN_SAMPLES
    runs = [[sample] for sample in samples] if alone else [samples]
    names = [n for n, _ in model.imported.graph.inputs]
    with compiled(model.imported.graph, place, folder, flags) as runner:
        for run in runs:
            assert runner.reset() == 0
            for inputs, wanted in zip(run, micro_outputs(content, run), strict=True):
                status, found = runner.call("infer", dict(zip(names, inputs, strict=True)))
                assert status == 0
                for ours, theirs in zip(found.values(), wanted, strict=True):
                    np.testing.assert_array_equal(ours.reshape(theirs.shape), theirs, name)


@pytest.mark.parametrize(("target", "name"), [(t, n) for t, names in IN_EVERY_RUN.items() for n in names])
def test_outputs_equal_the_interpreter(shared: Path, target: str, name: str, tmp_path: Path) -> None:
    assert_same_outputs(name, SharedModel(shared, name), Place(target), 2, tmp_path)


@pytest.mark.full
@EVERY_PLACE
@EVERY_MODEL
def test_outputs_equal_the_interpreter_on_many_inputs(
    shared: Path, target: str, name: str, tmp_path: Path
) -> None:
    fresh = FRESH_COUNT.get(target, 8)
    assert_same_outputs(name, SharedModel(shared, name), Place(target), fresh, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("target", CORES)
@EVERY_MODEL
def test_portable_kernels_equal_the_interpreter(shared: Path, target: str, name: str, tmp_path: Path) -> None:
    """The same packed tables, through the C99 that stands beside each kernel in assembly."""
    assert_same_outputs(name, SharedModel(shared, name), Place(target), 2, tmp_path, ("-DTE_PORTABLE",))


# ---- Layers -------------------------------------------------------------------------------------------


def assert_same_layers(model: SharedModel, place: Place, folder: Path) -> None:
    """Every tensor that an operator of the model computes, for the first stored sample."""
    imported = model.imported
    computed = {i: n for i, n in imported.tensors.items() if n.op not in (INPUT, CONSTANT)}
    outputs = tuple((f"tensor_{i}", node) for i, node in computed.items())
    sample = model.feeds()[0]
    feed = dict(zip((n for n, _ in imported.graph.inputs), sample, strict=True))
    wanted = micro_tensors(model.path.read_bytes(), sample, list(computed))
    with compiled(replace(imported.graph, outputs=outputs), place, folder) as runner:
        assert runner.reset() == 0
        status, found = runner.call("infer", feed)
        assert status == 0
        for (index, theirs), ours in zip(wanted.items(), found.values(), strict=True):
            layer = computed[index].name
            np.testing.assert_array_equal(ours.reshape(theirs.shape), theirs, f"{layer}, tensor {index}")


@pytest.mark.parametrize(
    ("target", "name"),
    [("host", "mlperf_tiny/ic_resnet8_int8"), ("cortex-m4f", "mlperf_tiny/kws_dscnn_int8")],
)
def test_every_layer_equals_the_interpreter(shared: Path, target: str, name: str, tmp_path: Path) -> None:
    assert_same_layers(SharedModel(shared, name), Place(target), tmp_path)


@pytest.mark.full
@EVERY_PLACE
@pytest.mark.parametrize("name", INTEGER_MODELS)
def test_every_layer_equals_the_interpreter_everywhere(
    shared: Path, target: str, name: str, tmp_path: Path
) -> None:
    assert_same_layers(SharedModel(shared, name), Place(target), tmp_path)


# ---- Float models -------------------------------------------------------------------------------------


WITH_AN_FPU = ("host", "cortex-m4f", "cortex-m7", "cortex-m33", "cortex-m55")
FLOATS = (*FLOAT_MODELS, "mlperf_tiny/kws_dscnn_float", "tflm/mnist_lstm_float")
QUICK = ("mlperf_tiny/ad_autoencoder_float",)


@pytest.mark.parametrize("target", WITH_AN_FPU)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.full) for n in FLOATS]
)
def test_float_models_equal_numpy(shared: Path, target: str, name: str, tmp_path: Path) -> None:
    model = SharedModel(shared, name)
    sample = model.feeds()[0]
    wanted = NumPy(model.imported.graph)(*sample)
    names = [n for n, _ in model.imported.graph.inputs]
    with compiled(model.imported.graph, Place(target), tmp_path) as runner:
        assert runner.reset() == 0
        status, found = runner.call("infer", dict(zip(names, sample, strict=True)))
    assert status == 0
    for ours, theirs in zip(found.values(), wanted, strict=True):
        np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32), name)
