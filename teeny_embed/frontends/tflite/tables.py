"""Functions of one 8-bit number are tables: every stored value is worked out when the model is imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from teeny_embed.frontends.tflite.model import Array, TensorInfo
from teeny_embed.graph import scalar
from teeny_embed.graph.node import scoped
from teeny_embed.graph.requantize import RULES
from teeny_embed.graph.tensor import Tensor, call, constant


def evaluated(function: scalar.ScalarFunction, *values: Any) -> Array:
    """A scalar function of arrays, now."""
    arrays = [np.asarray(v, p.dtype) for v, p in zip(values, function.parameters, strict=True)]
    with np.errstate(all="ignore"):
        return np.asarray(scalar.evaluate(function.body, dict(zip(function.parameters, arrays, strict=True))))


def requantized(x: Any, multiplier: Any, shift: Any) -> Array:
    """int64 [...] of int32 numbers rescaled by the rule "tflite"."""
    return evaluated(RULES["tflite"], x, multiplier, shift).astype(np.int64)


def looked_up(x: Tensor, info: TensorInfo, output: TensorInfo, function: Callable[[Array], Array]) -> Tensor:
    """`function` of the 256 stored values less their zero point, plus the output's zero point, clamped."""
    least, greatest = info.limits
    above = np.arange(least, greatest + 1) - info.zero_point
    table = np.clip(function(above) + output.zero_point, *output.limits).astype(output.dtype)
    return call("take", constant(table, name=scoped("table")), x.astype("int32") - least)
