"""Arenas of imported models are below TFLite Micro's for the same file, counted as it counts: with inputs and
outputs inside."""

from __future__ import annotations

from pathlib import Path

import pytest

import teeny_embed as te
from support.tflite import INTEGER_MODELS, RECURRENT_MODELS, WIDE_MODELS, SharedModel, micro_arena

pytest.importorskip("tflite_micro")

QUICK = ("mlperf_tiny/kws_dscnn_int8", "mlperf_tiny/ad_autoencoder_int8", "tflm/mnist_lstm_int8")
MODELS = (*INTEGER_MODELS, *RECURRENT_MODELS, *WIDE_MODELS)


@pytest.mark.parametrize(
    "name", [pytest.param(m, marks=() if m in QUICK else pytest.mark.full) for m in MODELS]
)
def test_the_arena_is_below_that_of_tflite_micro(name: str, shared: Path, tmp_path: Path) -> None:
    model = SharedModel(shared, name)
    total, _ = micro_arena(model.path.read_bytes())
    program = te.Program("net", infer=te.load(model.path))
    for core in ("cortex-m4f", "cortex-m55"):
        interface = te.build(program, core, tmp_path / core, io="arena").interface
        assert interface.arena_bytes + interface.state_bytes < total, core
