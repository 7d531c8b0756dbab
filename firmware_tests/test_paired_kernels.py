"""Kernels for cores without SIMD, in assembly and in portable C, give NumPy's bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.quantized import quantized_conv
from teeny_embed import api
from teeny_embed.graph.tensor import Tensor, call, input, trace
from teeny_embed.kernels import choose, paired


def program(depth: int, filters: int, seed: int) -> api.Program:
    """Each kind of kernel once, with odd sizes."""

    def net(x: Tensor) -> Tensor:
        rng = np.random.default_rng(seed)
        padding = ((1, 1), (1, 1))
        y = quantized_conv(x, (depth, 3, 3, 3), rng, stride=(2, 1), padding=padding)
        y = quantized_conv(y, (depth, 3, 3, 1), rng, 5, -128, groups=depth, padding=padding)
        y = quantized_conv(y, (filters, 1, 1, depth), rng, -128, 3, low=-100, high=90)
        y = quantized_conv(y, (filters, 3, 3, 1), rng, 3, 0, groups=filters, stride=(2, 2))
        y = call("reshape", y, shape=(1, int(np.prod(y.shape))))
        return quantized_conv(y, (10, y.shape[1]), rng, 0)

    return api.Program("net", infer=trace(net, input("x", (1, 13, 9, 3), "int8")))


@pytest.mark.parametrize("flags", [(), ("-DTE_PORTABLE",)], ids=["assembly", "portable"])
@pytest.mark.parametrize("target", ["cortex-m0", "cortex-m3"])
def test_every_kernel_gives_numpys_bits(
    target: str, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(choose, "quantized_kernels", lambda target: paired.pack)
    for seed, (depth, filters) in enumerate([(5, 7), (16, 33)]):
        built = api.build(program(depth, filters, seed), target, tmp_path / str(seed))
        assert api.verify(built, "qemu", flags=flags).ok
