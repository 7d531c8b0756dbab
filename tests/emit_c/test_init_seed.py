"""`init="seed"`: reset draws the initial parameters on the device, bit for bit as they were drawn here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import teeny_embed as te
from support.process import sanitized
from support.runs import assert_equal_bits
from support.tools import need
from teeny_embed import nn
from teeny_embed.cli import main
from teeny_embed.emit_c.lint import lint

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wsign-conversion", "-Werror")


def net(seed: int = 3) -> nn.Sequential:
    """Odd counts, a parameter of one element, and one that starts with the same value everywhere."""
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.25), nn.Flatten(), nn.Linear(27, 1),
        nn.Linear(1, 5),
    )  # fmt: skip
    return model.initialize(seed)


def program(model: nn.Module, name: str = "net") -> te.Program:
    x, label = te.input("x", (2, 5, 5, 1)), te.input("label", (2,), "int32")
    step = te.train_step(model, nn.cross_entropy, nn.SGD(momentum=0.9), x, label)
    return te.Program(name, train_step=step)


def manifest(build: te.Build) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((build.directory / "manifest.json").read_text())
    return loaded


def test_reset_draws_the_same_bits(tmp_path: Path) -> None:
    build = te.build(program(net()), "host", tmp_path / "net", init="seed")
    expected = {v.name: v.initial for v in build.program.variables()}
    with te.open_runner(build, flags=("-O2", *WARNINGS)) as runner:
        found = runner.read_state()
    assert_equal_bits(found, {name: expected[name] for name in found}, "the state after reset")
    assert not lint([build.directory / "net.h", build.directory / "net.c"], "net")


@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_portable_c_draws_the_same_bits_under_sanitizers(level: str, tmp_path: Path) -> None:
    build = te.build(program(net()), "cortex-m0", tmp_path / "net", init="seed")
    with sanitized(build, tmp_path / "run", level=level) as runner:
        assert runner.reset() == 0
        found = runner.read_state()
    expected = {v.name: v.initial for v in build.program.variables()}
    assert_equal_bits(found, {name: expected[name] for name in found}, "the state after reset")


def test_training_from_drawn_parameters_gives_numpys_bits(tmp_path: Path) -> None:
    need("gcc")
    te.verify(te.build(program(net()), out=tmp_path, init="seed"), steps=4)


def test_drawn_parameters_need_no_flash(tmp_path: Path) -> None:
    const, seed = (te.build(program(net()), out=tmp_path / i, init=i) for i in ("const", "seed"))
    assert manifest(const)["constant_bytes"] == 4 * (27 + 3 + 27 + 5 + 5)
    assert manifest(seed)["constant_bytes"] == 0
    assert not (seed.directory / "net_params.c").exists() and seed.interface.sources == ("net.c",)
    for key in ("weights_hash", "graph_hash", "state_bytes", "arena_bytes"):
        assert manifest(const)[key] == manifest(seed)[key]


def test_the_manifest_records_what_is_drawn(tmp_path: Path) -> None:
    const, seed = (manifest(te.build(program(net()), out=tmp_path / i, init=i)) for i in ("const", "seed"))
    assert list(const["seeds"]) == ["dropout3/random_uniform"]
    assert seed["seeds"]["conv0.weight"] == {"seed": 3, "stream": 0, "bound": 1 / 3}
    assert seed["seeds"]["linear6.bias"]["stream"] == 7
    assert "batch_norm1.weight" not in seed["seeds"]  # starts with 1 everywhere


def test_kinds_may_differ_by_name(tmp_path: Path) -> None:
    build = te.build(program(net()), out=tmp_path, init={"linear5.weight": "seed", "conv0.bias": "const"})
    assert list(manifest(build)["seeds"]) == ["linear5.weight", "dropout3/random_uniform"]
    assert manifest(build)["constant_bytes"] == 4 * (27 + 3 + 5 + 5)
    te.verify(build, steps=2)


def test_loaded_parameters_stay_in_flash(tmp_path: Path) -> None:
    loaded = program(net())
    loaded.load({"conv0.weight": np.arange(27).reshape(3, 3, 3, 1)})
    build = te.build(loaded, out=tmp_path, init="seed")
    assert "conv0.weight" not in manifest(build)["seeds"]
    with te.open_runner(build) as runner:
        assert runner.read_state()["conv0.weight"][2, 2, 2, 0] == 26
    with pytest.raises(te.DataError, match=r"conv0\.weight cannot be drawn"):
        te.build(loaded, out=tmp_path, init={"conv0.weight": "seed"})


def test_frozen_parameters_cannot_be_drawn(tmp_path: Path) -> None:
    model = net()
    model.parameters()[0].trainable = False
    te.build(program(model), out=tmp_path, init="seed")
    with pytest.raises(te.DataError, match="not trained"):
        te.build(program(model), out=tmp_path, init={"conv0.weight": "seed"})


def test_unknown_names_and_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(te.DataError, match="no variable 'conv1"):
        te.build(program(net()), out=tmp_path, init={"conv1.weight": "const"})
    for init in ("zero", {"conv0.weight": "random"}):
        with pytest.raises(te.AttributeValueError, match="unknown"):
            te.build(program(net()), out=tmp_path, init=init)
    assert not list(tmp_path.iterdir())


def test_the_command_line_draws_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import teeny_embed as te\nfrom teeny_embed import nn\nnet = nn.Linear(4, 3).initialize(7)\n"
    text += 'x, y = te.input("x", (1, 4)), te.input("y", (1, 3))\n'
    text += 'program = te.Program("net", train_step=te.train_step(net, nn.mse, nn.SGD(), x, y))\n'
    Path("model.py").write_text(text)
    result = CliRunner().invoke(main, ["compile", "model.py:program", "--init", "seed", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["seeds"]["weight"]["seed"] == 7
    assert CliRunner().invoke(main, ["compile", "model.py:program", "--init", "zero"]).exit_code == 2
