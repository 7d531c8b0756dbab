"""Named functions of integers as instruction sets spell them, and in portable C, give NumPy's bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.quantized import clamped, number, table
from teeny_embed import api
from teeny_embed.graph.tensor import Tensor, call, input, trace

TARGETS = ("cortex-m0", "cortex-m3", "cortex-m4f", "cortex-m7", "cortex-m33", "cortex-m55")
COUNT = 96


def requantised(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Of all that an int16 can make of one, by several scales, to int8."""
    rng = np.random.default_rng(1)
    wide = x.astype("int32") * table(rng.integers(1, 1 << 15, COUNT).astype(np.int32))
    each = table(rng.integers(1 << 30, 1 << 31, COUNT).astype(np.int32))
    places = table(-rng.integers(12, 24, COUNT).astype(np.int32))
    fine = call("shift_left", y.astype("int32") - 4, number(20))
    return (
        clamped(call("requantize", wide, each, places) + 5),
        clamped(call("requantize", wide, number(1623821475), number(-22)), -100, 127),
        clamped(call("requantize", wide, number(1623821475), number(-9)), -(1 << 15), (1 << 15) - 1, "int16"),
        call("requantize", wide, number((1 << 31) - 1), number(0)),
        clamped(call("requantize", fine, number(1 << 30), number(-21)) - 128),
        call("requantize", call("requantize", fine, each, number(-1)) + wide, each, number(-31)),
    )


@pytest.mark.parametrize("flags", [(), ("-DTE_PORTABLE",)], ids=["spelled", "portable"])
@pytest.mark.parametrize("target", TARGETS)
def test_integer_functions_give_numpys_bits(target: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    x, y = input("x", (7, COUNT), "int16"), input("y", (7, COUNT), "int8")
    built = api.build(api.Program("functions", infer=trace(requantised, x, y)), target, tmp_path)
    text = (tmp_path / "functions.c").read_text()
    assert all(f"functions_{name}(" in text for name in ("high_product", "saturate_int8", "saturate_int16"))
    assert api.verify(built, "qemu", flags=flags).ok
