"""Inputs and outputs in the arena: the same bits, no pointer for them, and a place that the header states."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import teeny_embed as te
from support.nets import Case
from support.tools import need
from teeny_embed import nn
from teeny_embed.api.running import call
from teeny_embed.deploy.status import ERR_RANGE
from teeny_embed.deploy.toolchain import run

STRICT = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")

MAIN = """
#include <stdio.h>
#include "net.h"
static net_arena_t arena;
int main(void)
{
    net_ctx_t net;
    if (net_init(&net, &arena, sizeof arena) != TE_OK) {
        return 1;
    }
    for (int call = 0; call < 2; ++call) {
        for (size_t i = 0u; i < NET_X_COUNT; ++i) {
            arena.x.at[i] = (float)i - (float)call;
        }
        if (net_infer(&net) != TE_OK) {
            return 2;
        }
        for (size_t i = 0u; i < NET_OUTPUT_COUNT; ++i) {
            printf("%a\\n", (double)arena.output.at[i]);
        }
    }
    return (&arena.bytes[NET_X_OFFSET] == (uint8_t *)arena.x.at) ? 0 : 3;
}
"""


@pytest.fixture(params=["mlp", "lenet5"])
def built(request: pytest.FixtureRequest, tmp_path: Path) -> te.Build:
    """A net that infers and trains; the label of a batch has rank 1, learning rate and loss have rank 0."""
    case = Case(request.param, "momentum", 4)
    return te.build(case.program(), "host", tmp_path / "net", io="arena")


def net(folder: Path, io: str) -> te.Build:
    layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    return te.build(te.Program("net", infer=te.trace(layers, te.input("x", (1, 8)))), "host", folder, io=io)


def test_inference_and_training_keep_numpys_bits(built: te.Build) -> None:
    report = te.compare(built, "host", steps=4)
    assert report.ok and not report.refused, report


def test_arguments_of_rank_0_are_passed_the_others_are_not(built: te.Build) -> None:
    for entry in built.interface.entry_points:
        assert {a.shape for a in entry.passed} <= {()}
        for a in entry.arguments:
            assert (a.offset_bytes is None) == (a.shape == ())
    step = next(e for e in built.interface.entry_points if e.name == "train_step")
    assert [a.name for a in step.passed] == ["learning_rate", "loss"]


def test_a_refused_call_gives_outputs_of_zeros(built: te.Build) -> None:
    entry = next(e for e in built.interface.entry_points if e.name == "train_step")
    inputs = {a.name: np.zeros(a.shape, a.dtype) for a in entry.arguments if a.direction == "in"}
    label = next(name for name, value in inputs.items() if value.dtype == np.int32)
    with te.open_runner(built) as library:
        before = library.read_state()
        status, outputs = library.call("train_step", inputs | {label: np.full(4, 10, np.int32)})
        assert status == ERR_RANGE and not any(value.any() for value in outputs.values())
        assert all(np.array_equal(before[k], v) for k, v in library.read_state().items())


def test_the_first_wrong_node_is_named(tmp_path: Path) -> None:
    build = net(tmp_path, "arena")
    path = tmp_path / "net.c"
    text = path.read_text()
    start = text.index("static void", text.index("==== 2 Nodes"))
    path.write_text(text[:start] + text[start:].replace("0.0f", "1.0f", 1))
    difference = te.compare(build, "host", steps=1).difference
    assert difference is not None and difference.node == build.interface.entry_points[0].node_names[0]


def test_the_arena_holds_what_the_caller_held_before(tmp_path: Path) -> None:
    inside, outside = net(tmp_path / "a", "arena").interface, net(tmp_path / "b", "caller").interface
    assert outside.arena_bytes < inside.arena_bytes <= outside.arena_bytes + 2 * 8 * 4
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    written = manifest["interface"]["entry_points"][0]["arguments"]
    assert [a["offset_bytes"] for a in written] == [a.offset_bytes for a in inside.entry_points[0].arguments]


def test_a_program_fills_and_reads_the_members_that_the_header_names(tmp_path: Path) -> None:
    need("gcc")
    build = net(tmp_path, "arena")
    (tmp_path / "main.c").write_text(MAIN)
    run(
        "gcc",
        [*STRICT, tmp_path / "main.c", tmp_path / "net.c", tmp_path / "net_params.c", "-o", tmp_path / "a"],
    )
    printed = [float.fromhex(line) for line in run(str(tmp_path / "a"), []).split()]
    with te.open_runner(build, "numpy") as reference:
        for number in range(2):
            x = np.arange(8, dtype=np.float32).reshape(1, 8) - np.float32(number)
            expected = call(reference, "infer", {"x": x})["output"]
            assert printed[8 * number : 8 * number + 8] == expected.reshape(-1).tolist()


def test_another_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(te.TeenyError, match="caller, arena"):
        net(tmp_path, "flash")
