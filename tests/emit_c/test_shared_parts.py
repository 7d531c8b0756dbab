"""Steps that do the same with different parts of a tensor are one C function."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed.graph.tensor import Tensor, call, constant, input, trace


def rows(x: Tensor) -> dict[str, Tensor]:
    """Each row depends on the one before, so no two can be computed at once."""
    weights = constant(np.random.default_rng(0).standard_normal((5, 5)).astype(np.float32))
    y, results = x[0:1], {}
    for row in range(1, 4):
        y = call("conv", y, weights) + x[row : row + 1]
        results[f"y{row}"] = y
    return results


@pytest.mark.parametrize("target", ["host", "cortex-m4f"])
def test_rows_of_one_tensor_share_a_function(target: str, tmp_path: Path) -> None:
    graph = trace(rows, input("x", (4, 5)))
    build = te.build(te.Program("rows", infer=graph), target=target, out=tmp_path)
    text = (tmp_path / "rows.c").read_text()
    second, third = (re.findall(rf"(\w+)\(.*x \+ {first}\b", text) for first in (10, 15))
    assert second == third and len(second) == 1
    if target == "host":
        assert te.verify(build).ok
