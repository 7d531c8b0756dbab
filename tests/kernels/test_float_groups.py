"""Float weights packed at build time, loads of several registers, and `float="fast"`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed import nn
from teeny_embed.api.verification import is_near
from teeny_embed.errors import GraphError


def program() -> te.Program:
    """A linear layer whose 13 outputs no tile divides, and one behind it; the weights are constants."""
    net = nn.Sequential(nn.Linear(24, 13), nn.ReLU(), nn.Linear(13, 5))
    return te.Program("net", infer=te.trace(net, te.input("x", (3, 24))))


@pytest.mark.parametrize("flags", [(), ("-DTE_PORTABLE",)])
def test_weights_loaded_together_keep_every_bit(tmp_path: Path, flags: tuple[str, ...]) -> None:
    build = te.build(program(), "cortex-m4f", tmp_path)
    assert "net_weights" in (tmp_path / "net.c").read_text()
    build = replace(build, target=replace(build.target, flags=(*build.target.flags, *flags)))
    assert te.verify(build, on="qemu", steps=3).ok


def test_weights_are_packed_without_a_copy_at_run_time(tmp_path: Path) -> None:
    build = te.build(program(), "host", tmp_path)
    assert [step.title for step in build.plan.entries[0].schedule.steps] == [
        step.title for step in te.build(program(), "cortex-m0", tmp_path).plan.entries[0].schedule.steps
    ]
    assert te.verify(build, steps=3).ok


def test_fast_float_fuses_and_is_recorded(tmp_path: Path) -> None:
    build = te.build(program(), "cortex-m4f", tmp_path, float="fast")
    assert json.loads((tmp_path / "manifest.json").read_text())["float"] == "fast"
    assert "float fast" in (tmp_path / "net.h").read_text()
    report = te.verify(build, on="qemu", steps=3)
    assert "none off by more than 0.0001" in str(report)


def test_fast_float_is_not_any_word(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="exact, fast"):
        te.build(program(), "host", tmp_path, float="loose")


def test_near_is_relative_to_the_largest_of_a_tensor() -> None:
    expected = np.array([100.0, 0.0], np.float32)
    assert is_near(expected, expected + np.float32(0.005), 1e-4)
    assert not is_near(expected, expected + np.float32(0.05), 1e-4)
    assert not is_near(expected, expected, 0.0)
    assert not is_near(np.array([3]), np.array([3]), 1e-4)
