"""`Program` and `build`: what is written, what is refused, and that refusals leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed import nn


def net(seed: int = 0) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).initialize(seed)


def program(model: nn.Module, name: str = "small") -> te.Program:
    x, label = te.input("x", (1, 6)), te.input("label", (), "int32")
    step = te.train_step(model, nn.cross_entropy, nn.SGD(momentum=0.9), x, label)
    return te.Program(name, infer=te.trace(model, x), train_step=step)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_equal_models_give_equal_bytes_in_any_directory(tmp_path: Path) -> None:
    first = te.build(program(net()), "cortex-m4f", tmp_path / "here")
    te.build(program(net()), "cortex-m4f", tmp_path / "there" / "deeper")
    assert files(first.directory) == files(tmp_path / "there" / "deeper")
    assert sorted(files(first.directory)) == [
        "manifest.json",
        "small.c",
        "small.h",
        "small_params.c",
        "small_store.c",
        "small_store.h",
        "te_abi.h",
    ]


def test_other_weights_change_the_weights_hash_alone(tmp_path: Path) -> None:
    import json

    manifests = [
        json.loads(
            (
                te.build(program(net(seed)), "host", tmp_path / str(seed)).directory / "manifest.json"
            ).read_text()
        )
        for seed in (1, 2)
    ]
    differing = {key for key in manifests[0] if manifests[0][key] != manifests[1][key]}
    assert differing == {"weights_hash"}


def test_a_program_goes_on_from_loaded_values(tmp_path: Path) -> None:
    loaded = program(net())
    weight = np.full((5, 6), 0.25, np.float32)
    loaded.load({"linear0.weight": weight})
    with te.open_runner(te.build(loaded, out=tmp_path)) as runner:
        assert np.array_equal(runner.read_state()["linear0.weight"], weight)
    with pytest.raises(te.DataError, match="no variable 'weight'"):
        loaded.load({"weight": weight})


def test_loaded_values_reach_frozen_parameters(tmp_path: Path) -> None:
    layer = nn.Linear(2, 1, bias=False)
    frozen = te.Program("frozen", infer=te.trace(layer, te.input("x", (1, 2))))
    frozen.load({"weight": [[2.0, 3.0]]})
    with te.open_runner(te.build(frozen, out=tmp_path)) as runner:
        _, outputs = runner.call("infer", {"x": np.array([[10, 100]], np.float32)})
    assert outputs["output"] == 320


@pytest.mark.parametrize("name", ["Small", "two words", "int"])
def test_names_that_c_cannot_use_are_refused(name: str) -> None:
    with pytest.raises(te.GraphError, match="identifier"):
        program(net(), name)


def test_reserved_entry_points_are_refused() -> None:
    with pytest.raises(te.GraphError, match="'reset'"):
        te.Program("small", reset=te.trace(net(), te.input("x", (1, 6))))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_parameters_are_refused_before_anything_is_written(tmp_path: Path, bad: float) -> None:
    model = net()
    broken = program(model)
    broken.load({"linear2.bias": [0.0, bad, 0.0]})
    with pytest.raises(te.DataError, match=r"linear2\.bias"):
        te.build(broken, out=tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_model_too_large_for_a_board_is_refused_with_its_memory_map(tmp_path: Path) -> None:
    model = nn.Linear(64, 64)
    x, target = te.input("x", (128, 64)), te.input("target", (128, 64))
    large = te.Program("large", train_step=te.train_step(model, nn.mse, nn.SGD(), x, target))
    with pytest.raises(te.PlanError, match="microbit") as caught:
        te.build(large, "microbit", tmp_path / "out")
    assert "lifetime" in str(caught.value) and "hint" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_an_unknown_target_is_refused_with_a_proposal(tmp_path: Path) -> None:
    with pytest.raises(te.TargetError, match="cortex-m4"):
        te.build(program(net()), "cortex-m4g", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_an_output_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(te.DataError, match="written"):
        te.build(program(net()), out=tmp_path / "out")
    assert files(tmp_path) == {"out": b"mine"}


def test_the_report_states_sizes_and_a_map(tmp_path: Path) -> None:
    text = te.build(program(net()), out=tmp_path).report()
    assert text.startswith("small for host: arena ") and "lower bound" in text and "train_step" in text


def test_public_names_load() -> None:
    assert all(getattr(te, name) is not None for name in te.__all__)
    with pytest.raises(AttributeError):
        te.no_such_name  # noqa: B018
