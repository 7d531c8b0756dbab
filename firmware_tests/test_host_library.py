"""The host library: a model as a shared library, driven through the same interface as a board."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from teeny_embed.deploy.host import HostLibrary
from teeny_embed.deploy.runner import Array, Runner
from teeny_embed.emit_c.interface import Argument, Interface
from teeny_embed.errors import DataError, DeviceError, ToolError


def train(runner: Runner, steps: list[dict[str, Array]]) -> list[Array]:
    assert runner.reset() == 0
    results = [runner.call("train_step", inputs) for inputs in steps]
    assert [status for status, _ in results] == [0] * len(steps)
    return [outputs["loss"] for _, outputs in results]


def test_training_reduces_the_loss_and_counts_its_steps(digits, digits_directory, training_steps):
    with HostLibrary(digits, digits_directory) as library:
        losses = train(library, training_steps[:1] * 20)
        assert losses[-1] < 0.5 * losses[0]
        assert library.read_state()["steps"] == 20


def test_gcc_and_clang_compute_equal_bits(digits, digits_directory, training_steps):
    states = []
    for compiler, flags in (("gcc", ("-O0",)), ("gcc", ("-O3",)), ("clang", ("-O2",))):
        with HostLibrary(digits, digits_directory, compiler, flags) as library:
            train(library, training_steps)
            states.append({name: value.tobytes() for name, value in library.read_state().items()})
    assert states[0] == states[1] == states[2]


def test_two_instances_are_independent(digits, digits_directory, training_steps):
    with HostLibrary(digits, digits_directory) as one, HostLibrary(digits, digits_directory) as other:
        assert one.reset() == other.reset() == 0
        before = other.read_state()
        one.call("train_step", training_steps[0])
        assert all(np.array_equal(value, before[name]) for name, value in other.read_state().items())
        assert one.read_state()["steps"] == 1


def test_state_travels_from_one_instance_to_another(digits, digits_directory, training_steps):
    inputs = {"image": training_steps[0]["image"]}
    with HostLibrary(digits, digits_directory) as one, HostLibrary(digits, digits_directory) as other:
        train(one, training_steps)
        other.reset()
        other.write_state(one.read_state())
        assert other.call("infer", inputs)[1]["probability"].tobytes() == (
            one.call("infer", inputs)[1]["probability"].tobytes()
        )


def test_a_call_before_reset_returns_its_status(digits, digits_directory, training_steps):
    with HostLibrary(digits, digits_directory) as library:
        status, outputs = library.call("infer", {"image": training_steps[0]["image"]})
        assert (status, outputs["probability"].any()) == (-4, False)


def test_the_arena_is_filled_with_garbage_before_each_call(mischief, mischief_directory):
    with HostLibrary(mischief, mischief_directory) as library:
        assert [library.call("read_arena", {})[1]["byte"][0] for _ in range(2)] == [0xA5, 0xA5]


@pytest.mark.parametrize("at", [-1, 16])
def test_writing_outside_of_the_arena_is_noticed(mischief, mischief_directory, at):
    with (
        HostLibrary(mischief, mischief_directory) as library,
        pytest.raises(DeviceError, match="outside of its arena"),
    ):
        library.call("write_arena", {"at": at})


def test_every_dtype_passes_unchanged(mischief, mischief_directory):
    with HostLibrary(mischief, mischief_directory) as library:
        check_echo(library)


def check_echo(runner: Runner) -> None:
    values = {
        "bool": [True, False, True], "int8": [-128, 0, 127], "float64": [5e-324, -0.0, 0.1],
        "int16": [-32768, 1, 32767], "uint32": [0, 1, 2**32 - 1],
    }  # fmt: skip
    status, outputs = runner.call("echo", {f"in_{name}": value for name, value in values.items()})
    assert status == 0
    for name, value in values.items():
        assert outputs[f"out_{name}"].tobytes() == np.array(value, name).tobytes()


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'image' is missing"),
        ({"image": np.zeros((1, 64))}, r"image is float64\[1, 64\], expected float32\[1, 64\]"),
        ({"image": np.zeros((64,), np.float32)}, r"image is float32\[64\]"),
        ({"image": np.zeros((1, 64), np.float32), "label": 1}, "there is no input 'label'"),
    ],
)
def test_wrong_inputs_are_refused(digits, digits_directory, inputs, message):
    with HostLibrary(digits, digits_directory) as library, pytest.raises(DataError, match=message):
        library.call("infer", inputs)


def test_unknown_names_are_refused(digits, digits_directory):
    with HostLibrary(digits, digits_directory) as library:
        with pytest.raises(DataError, match="no entry point 'evaluate'"):
            library.call("evaluate", {})
        with pytest.raises(DataError, match="no state 'net/bias'"):
            library.write_state({"net/bias": 0})


def test_an_interface_that_is_not_the_headers_is_refused(mischief, mischief_directory):
    wrong = Argument("at", "float32", (), "in")
    entry = dataclasses.replace(mischief.entry_points[2], arguments=(wrong,))
    with pytest.raises(ToolError, match="write_arena"):
        HostLibrary(dataclasses.replace(mischief, entry_points=(entry,)), mischief_directory)


def test_compiler_output_is_in_the_error(tmp_path: Path):
    (tmp_path / "bad.h").write_text("typedef int bad;\n")
    (tmp_path / "bad.c").write_text("int f(void) { return nonsense; }\n")
    with pytest.raises(ToolError, match="nonsense"):
        HostLibrary(Interface("bad", (), (), 0, 16, ("bad.c",)), tmp_path)
