"""Parameters in `.safetensors` files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed import nn

pytest.importorskip("safetensors")


def test_what_is_saved_is_loaded_in_every_bit(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).initialize(5)
    te.save_safetensors(tmp_path / "net.safetensors", net.state_dict())
    other = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    other.load(te.load_safetensors(tmp_path / "net.safetensors"))
    for name, value in net.state_dict().items():
        assert value.tobytes() == other.state_dict()[name].tobytes(), name


def test_shapes_and_dtypes_stay(tmp_path: Path) -> None:
    given = {"a": np.array(3, np.int32), "b": np.arange(6, dtype=np.float16).reshape(3, 2).T}
    te.save_safetensors(tmp_path / "x", given)
    found = te.load_safetensors(tmp_path / "x")
    assert {n: (v.dtype, v.tolist()) for n, v in found.items()} == {
        n: (v.dtype, v.tolist()) for n, v in given.items()
    }


def test_what_is_no_file_of_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(te.DataError, match="cannot be read"):
        te.load_safetensors(tmp_path / "none")
    (tmp_path / "damaged").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    with pytest.raises(te.DataError, match="no file of tensors"):
        te.load_safetensors(tmp_path / "damaged")


def test_what_is_no_tensor_is_refused_and_nothing_written(tmp_path: Path) -> None:
    with pytest.raises(te.DataError, match="'name' is <U4"):
        te.save_safetensors(tmp_path / "x", {"name": "text"})
    assert not (tmp_path / "x").exists()
