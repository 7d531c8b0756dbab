"""Kernels for cores without SIMD: runs are proven, and the portable twin gives the interpreter's bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.quantized import quantized_conv
from teeny_embed import api
from teeny_embed.graph.tensor import Tensor, input, trace
from teeny_embed.kernels import choose, paired

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "pointwise": ((1, 4, 5, 6), (7, 1, 1, 6), {}),
    "pointwise, five pixels, many filters": ((1, 1, 5, 40), (37, 1, 1, 40), {}),
    "3x3, padded": ((1, 6, 5, 4), (5, 3, 3, 4), {"padding": ((1, 1), (1, 1))}),
    "3x3, padded, stride 2": ((1, 9, 7, 3), (5, 3, 3, 3), {"stride": (2, 1), "padding": ((1, 1), (0, 2))}),
    "10x4, one channel": ((1, 23, 9, 1), (6, 10, 4, 1), {"stride": (2, 2), "padding": ((4, 5), (1, 1))}),
    "dilated": ((1, 9, 8, 2), (3, 2, 3, 2), {"dilation": (3, 2), "padding": ((1, 1), (2, 2))}),
    "batch": ((2, 5, 4, 3), (4, 3, 3, 3), {"padding": ((1, 1), (1, 1))}),
    "clamped": ((1, 4, 5, 6), (7, 1, 1, 6), {"low": -20, "high": 33, "output_zero_point": -7}),
    "linear": ((1, 11), (4, 11), {}),
    "linear, two filters": ((1, 64), (2, 64), {}),
    "linear, 70 filters, three rows": ((3, 13), (70, 13), {}),
    "linear, clamped": ((1, 16), (9, 16), {"low": 5, "high": 90}),
    "depthwise": ((1, 6, 5, 4), (4, 3, 3, 1), {"groups": 4, "padding": ((1, 1), (1, 1))}),
    "depthwise, stride 2": (
        (1, 8, 8, 3), (3, 3, 3, 1), {"groups": 3, "stride": (2, 2), "padding": ((0, 1), (0, 1))},
    ),
    "depthwise, one row": ((1, 1, 9, 2), (2, 1, 3, 1), {"groups": 2, "padding": ((0, 0), (1, 1))}),
    "depthwise, two filters a channel": ((1, 6, 5, 3), (6, 3, 2, 1), {"groups": 3}),
    "depthwise, dilated, batch": (
        (2, 9, 7, 2), (2, 3, 3, 1), {"groups": 2, "dilation": (2, 2), "padding": ((2, 2), (2, 2))},
    ),
    "depthwise, wide": ((1, 3, 41, 1), (1, 3, 3, 1), {"groups": 1, "padding": ((1, 1), (1, 1))}),
}  # fmt: skip


def program(case: str, seed: int = 3) -> api.Program:
    x_shape, filter_shape, where = CASES[case]

    def net(x: Tensor) -> Tensor:
        return quantized_conv(x, filter_shape, np.random.default_rng(seed), **where)

    return api.Program("net", infer=trace(net, input("x", x_shape, "int8")))


@pytest.mark.parametrize("case", CASES)
def test_the_portable_twin_gives_numpys_bits(
    case: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(choose, "quantized_kernels", lambda target: paired.pack)
    built = api.build(program(case), "host", tmp_path)
    assert "_requantize_sums(" in (tmp_path / "net.c").read_text()
    assert api.verify(built).ok


@pytest.mark.parametrize("largest", [1, 5, 40, 127])
def test_runs_hold_all_weights_and_never_overflow_sixteen_bits(largest: int) -> None:
    weights = np.random.default_rng(largest).integers(-largest, largest + 1, 200)
    found = paired.runs(weights)
    assert [w for run in found for w in run] == weights.tolist()
    assert all(0 < len(run) <= paired.LONGEST_RUN for run in found)
    assert all(128 * sum(abs(w) for w in run) <= 32767 for run in found)


def test_a_filter_of_zeros_has_no_runs() -> None:
    assert paired.runs(np.zeros(9, np.int8)) == []
