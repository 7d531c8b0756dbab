"""What follows a sum in vectors is computed in vectors, to NumPy's bits, NaN and signed zeros included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.runs import assert_equal_bits
from teeny_embed.api import Program, build
from teeny_embed.deploy.host import HostLibrary
from teeny_embed.deploy.reference import ReferenceRunner
from teeny_embed.graph.tensor import Tensor, call, constant, input, trace


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("outputs", [16, 21])
def test_choices_and_numbers_in_an_epilogue(compiler: str, outputs: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    weight = constant(rng.integers(-2, 3, (outputs, 4)).astype(np.float32))
    bias = rng.integers(-2, 3, outputs).astype(np.float32)
    bias[1], bias[2] = -0.0, np.float32(3e-41)

    def net(x: Tensor, scale: Tensor) -> Tensor:
        y = call("conv", x, weight) + constant(bias)
        return call("minimum", call("relu", y), constant(2.0)) * scale - y / constant(3.0)

    graph = trace(net, input("x", (3, 4)), input("scale", ()))
    built = build(Program("net", infer=graph), "host", tmp_path)
    feed = {"x": np.array([[1, 2, 0, -1], [0, -0.0, 0, 0], [np.nan, 1, np.inf, 0]], np.float32)}
    feed["scale"] = np.array(-0.0, np.float32)
    with (
        HostLibrary(built.interface, built.directory, compiler, ("-O2",)) as library,
        ReferenceRunner(built.interface, built.program.entry_points) as reference,
    ):
        assert_equal_bits(library.call("infer", feed)[1], reference.call("infer", feed)[1], compiler)
    assert "net_mask" in (tmp_path / "net.c").read_text()
