"""Builds for size: the same bits, from less code."""

from __future__ import annotations

from pathlib import Path

import pytest

import teeny_embed as te
from support import int8_figures as figures
from support.data import Digits
from support.figures import COMPILER, found_compiler
from support.nets import Case
from support.runs import assert_equal_bits
from support.tflite import SharedModel, micro_outputs, random_inputs
from teeny_embed.api.running import call

pytestmark = pytest.mark.usefixtures("emulator")


@pytest.mark.parametrize(("target", "on"), [("host", "host"), ("cortex-m4f", "qemu"), ("cortex-m55", "qemu")])
def test_an_imported_model_equals_tflite_micro(target: str, on: str, shared: Path, tmp_path: Path) -> None:
    model = SharedModel(shared, "mlperf_tiny/kws_dscnn_int8")
    program = te.Program("kws", infer=te.load(model.path))
    build = te.build(program, target, tmp_path, optimize="size")
    samples = random_inputs(model.imported, 2, 4)
    names = [a.name for a in build.interface.entry_points[0].arguments]
    with te.open_runner(build, on) as runner:
        for inputs, wanted in zip(samples, micro_outputs(model.path.read_bytes(), samples), strict=True):
            found = call(runner, "infer", dict(zip(names, inputs, strict=False)))
            assert_equal_bits(found, dict(zip(names[len(inputs) :], wanted, strict=True)), target)


def test_training_keeps_numpys_bits_and_takes_less_code(mnist: Digits, tmp_path: Path) -> None:
    case = Case("lenet5", "sgd", 1)
    small, fast = (
        te.build(case.program(), "cortex-m4f", tmp_path / each, optimize=each) for each in ("size", "speed")
    )
    with te.open_runner(small, "qemu") as board, te.open_runner(small, "numpy") as reference:
        feed = case.feed(mnist, 0)
        found, expected = (call(runner, "train_step", feed) for runner in (board, reference))
        assert_equal_bits(found | board.read_state(), expected | reference.read_state(), "one step")
    bytes_of = [te.profile(build)["code_bytes"] for build in (small, fast)]
    assert 2 * bytes_of[0] < bytes_of[1]


FLASH_BYTES = {("cortex-m4f", "kws_dscnn"): 8_040, ("cortex-m55", "kws_dscnn"): 8_432}
"""Beyond weights and biases, at most."""


@pytest.mark.parametrize(("core", "name"), FLASH_BYTES)
def test_flash_is_small(core: str, name: str, shared: Path, tmp_path: Path) -> None:
    if (compiler := found_compiler()) != COMPILER:
        pytest.skip(f"bytes are recorded for {COMPILER}, this is {compiler}")
    cost = figures.cost(figures.model(shared, name), core, tmp_path, optimize="size")
    assert cost.flash_bytes <= FLASH_BYTES[core, name]
