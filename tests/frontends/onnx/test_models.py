"""Shared ONNX models: what onnxruntime computes, and in C the bits of NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed import nn
from teeny_embed.graph.lower import Evaluator

MODELS = {
    "onnx/autoencoder1d": "onnx/autoencoder1d",
    "onnx/cct_1_16_16_8": "onnx/cct_1_16_16_8",
    "onnx/lstm_keras_tiny": "onnx/lstm_keras_tiny",
    "onnx/mnist14_cnn": "onnx/mnist14_cnn",
    "onnx/mnist8_cntk": "onnx/mnist8_cntk",
    "onnx/mnist_mlp_bn": "onnx/mnist_mlp_bn",
    "onnx/silero_vad_16k": "onnx/silero_vad_16k",
    "onnx/tfl_helloworld": "onnx/tfl_helloworld",
    "onnx/transformer_deepquant": "onnx/transformer_deepquant",
    "derived/ic_resnet8_float": "mlperf_tiny/ic_resnet8_float",
    "derived/kws_dscnn_float": "derived/kws_dscnn_float",
    "derived/vww_mobilenetv1_float": "mlperf_tiny/vww_mobilenetv1_float",
}
INTEGERS = ("ic_resnet8_int8_qdq", "kws_dscnn_int8_qdq", "mnist8_cntk_int8_qdq", "mnist8_cntk_int8_qoperator")
DIMS = {"onnx/lstm_keras_tiny": {"N": 1, "M1": 6}, "onnx/tfl_helloworld": {"N": 1}}
LARGE = (
    "derived/ic_resnet8_float",
    "derived/vww_mobilenetv1_float",
    "onnx/silero_vad_16k",
    "derived/kws_dscnn_float",
)
"""In C only in the long run."""


def program_of(shared: Path, model: str) -> te.Program:
    graph = te.load(shared / "models" / f"{model}.onnx")
    return te.Program("model", infer=graph).bind(DIMS.get(model, {}))


def samples_of(shared: Path, vectors: str) -> dict[str, Any]:
    with np.load(shared / "vectors" / f"{vectors}.npz") as archive:
        return {name: archive[name] for name in archive.files if name != "meta"}


def worst(program: te.Program, vectors: dict[str, Any], count: int = 2) -> float:
    """The largest difference from the stored outputs, of the largest of the tensor."""
    graph = program.entry_points["infer"]
    run, errors = Evaluator(graph), []
    for sample in range(min(count, len(vectors["in0"]))):
        feed = {
            name: vectors[f"in{i}"][sample].reshape(node.type.shape)
            for i, (name, node) in enumerate(graph.inputs)
        }
        found, _ = run(feed)
        for i, ours in enumerate(found.values()):
            theirs = vectors[f"out{i}"][sample]
            errors.append(abs(ours.reshape(theirs.shape) - theirs).max() / abs(theirs).max())
    return float(max(errors))


@pytest.mark.parametrize("model", MODELS)
def test_a_float_model_computes_what_onnxruntime_does(model: str, shared: Path) -> None:
    """To 1e-5 of the largest: sums have another order."""
    assert worst(program_of(shared, model), samples_of(shared, MODELS[model])) <= 1e-5


@pytest.mark.parametrize("model", INTEGERS)
def test_an_integer_model_is_within_one_step(model: str, shared: Path) -> None:
    """Steps of the output are 1 / 256 of its range, of softmax, or less than 1 / 128 of the largest score."""
    assert worst(program_of(shared, f"derived/{model}"), samples_of(shared, f"derived/{model}"), 8) <= 1 / 100


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=[pytest.mark.full] if m in LARGE else []) for m in MODELS]
)
def test_c_has_the_bits_of_numpy(model: str, shared: Path, tmp_path: Path) -> None:
    build = te.build(program_of(shared, model), out=tmp_path)
    te.verify(build, on="host", steps=1)


CHANNELS_FIRST = (
    "derived/ic_resnet8_float", "derived/kws_dscnn_float", "derived/vww_mobilenetv1_float",
    "onnx/mnist14_cnn", "onnx/mnist8_cntk",
)  # fmt: skip


@pytest.mark.parametrize("model", CHANNELS_FIRST)
def test_no_step_moves_axes(model: str, shared: Path, tmp_path: Path) -> None:
    nodes = te.build(program_of(shared, model), "cortex-m4f", tmp_path).module.nodes
    assert nodes and [n.title for n in nodes if "transpose" in n.title] == []


def test_a_model_is_trained_like_one_of_our_own(shared: Path) -> None:
    graph: Any = te.load(shared / "models" / "onnx" / "mnist14_cnn.onnx")
    x, label = te.input("x", (1, 1, 14, 14)), te.input("label", (), "int32")
    step = te.train_step(graph, nn.cross_entropy, nn.SGD(), x, label)
    assert {v.name for v, _ in step.assigns} == {v.name for v in graph.variables()} != set()


def test_frames_carry_their_state(shared: Path) -> None:
    """Sixteen frames of silero: the second output is the next frame's second input."""
    graph = program_of(shared, "onnx/silero_vad_16k").entry_points["infer"]
    run, vectors = Evaluator(graph), samples_of(shared, "onnx/silero_vad_16k")
    (sound, _), (state, _) = graph.inputs
    carried = vectors["in1"][0]
    for frame in range(16):
        found, _ = run({sound: vectors["in0"][frame], state: carried})
        probability, carried = found.values()
        assert abs(probability - vectors["out0"][frame]).max() <= 1e-5
