"""Mistakes in files and arguments are refused, and leave everything as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed import nn
from teeny_embed.api.samples import read_vectors
from teeny_embed.cli.model import extents, load_program


@pytest.mark.parametrize("size", [10, 150])
def test_truncated_vectors_are_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "v.npz"
    np.savez(path, x=np.ones((2, 4), np.float32))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(te.DataError, match="cannot be read"):
        read_vectors(path)


def test_a_model_that_exits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "random.py"
    path.write_text("import sys\nsys.exit(1)\n")
    with pytest.raises(te.DataError, match="SystemExit"):
        load_program(f"{path}:net")
    with pytest.raises(te.DataError, match="gives no extent"):
        extents(["N=²"])


def test_loading_sets_all_variables_or_none() -> None:
    layer = nn.Linear(2, 1).initialize(0)
    before = layer.state_dict()
    with pytest.raises(te.DataError, match="bias"):
        layer.load({"weight": [[1, 2]], "bias": [1, 2]})
    assert all(np.array_equal(before[name], value) for name, value in layer.state_dict().items())


def test_a_directory_in_the_place_of_a_file_is_refused_first(tmp_path: Path) -> None:
    program = te.Program("net", infer=te.trace(nn.ReLU(), te.input("x", (1, 2))))
    (tmp_path / "net.h").mkdir()
    with pytest.raises(te.DataError, match="directory"):
        te.build(program, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["net.h"]


@pytest.mark.parametrize("option", ["float", "io", "optimize"])
def test_options_that_are_none_are_refused(option: str, tmp_path: Path) -> None:
    program = te.Program("net", infer=te.trace(nn.ReLU(), te.input("x", (1, 2))))
    with pytest.raises(te.GraphError, match=f"{option}='no' is none of"):
        te.build(program, out=tmp_path, **{option: "no"})  # type: ignore[arg-type]


def test_bad_arguments_of_compare_are_refused(tmp_path: Path) -> None:
    program = te.Program("net", infer=te.trace(nn.ReLU(), te.input("x", (1, 2))))
    build = te.build(program, out=tmp_path)
    vectors = {"x": np.ones((1, 2), np.float32), "outptu": np.ones((1, 2), np.float32)}
    for options in (
        {"tolerance": -1.0},
        {"seed": -1},
        {"vectors": vectors},
        {"vectors": {"x": np.array("a")}},
    ):
        with pytest.raises(te.DataError):
            te.compare(build, "numpy", **options)
