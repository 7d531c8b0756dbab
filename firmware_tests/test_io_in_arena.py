"""Inputs and outputs in the arena on emulated cores: bits, counts, and less memory than TFLite Micro."""

from __future__ import annotations

from pathlib import Path

import pytest

import teeny_embed as te
from support.data import Digits
from support.nets import Case
from support.runs import assert_equal_bits
from support.tflite import SharedModel, micro_outputs, random_inputs
from teeny_embed.api.running import call

pytestmark = pytest.mark.usefixtures("emulator")


def test_training_on_the_board_keeps_numpys_bits(mnist: Digits, tmp_path: Path) -> None:
    case = Case("lenet5", "sgd", 2)
    build = te.build(case.program(), "cortex-m4f", tmp_path, io="arena")
    with te.open_runner(build, "qemu") as board, te.open_runner(build, "numpy") as reference:
        for step in range(3):
            feed = case.feed(mnist, step)
            found, expected = (call(runner, "train_step", feed) for runner in (board, reference))
            assert_equal_bits(found | board.read_state(), expected | reference.read_state(), f"step {step}")


@pytest.mark.parametrize("core", ["cortex-m4f", "cortex-m55"])
def test_an_imported_model_equals_tflite_micro(core: str, shared: Path, tmp_path: Path) -> None:
    model = SharedModel(shared, "mlperf_tiny/kws_dscnn_int8")
    build = te.build(te.Program("kws", infer=te.load(model.path)), core, tmp_path, io="arena")
    samples = random_inputs(model.imported, 3, 4)
    names = [a.name for a in build.interface.entry_points[0].arguments]
    with te.open_runner(build, "qemu") as board:
        for inputs, wanted in zip(samples, micro_outputs(model.path.read_bytes(), samples), strict=True):
            found = call(board, "infer", dict(zip(names, inputs, strict=False)))
            assert_equal_bits(found, dict(zip(names[len(inputs) :], wanted, strict=True)), core)


def test_what_is_counted_is_the_same_work(shared: Path, tmp_path: Path) -> None:
    """An in-place step may be another function, so counts are near, not equal."""
    program = te.Program("ad", infer=te.load(shared / "models/mlperf_tiny/ad_autoencoder_int8.tflite"))
    inside, outside = (
        te.profile(te.build(program, "cortex-m4f", tmp_path / io, io=io)) for io in ("arena", "caller")
    )
    counts = [each["instructions"]["infer"]["total"] for each in (inside, outside)]
    assert abs(counts[0] - counts[1]) < 0.01 * counts[1]
    assert inside["arena_bytes"] >= outside["arena_bytes"]
