"""Arithmetic of scalar expressions where NumPy's own is undefined, warns or means something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def wrapping_divide(a: Any, b: Any) -> Any:
    """Integers truncate towards zero; x / 0 is 0."""
    if np.asarray(a).dtype.kind == "f":
        return np.divide(a, b)
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = np.floor_divide(a, safe)
    exact = np.multiply(quotient, safe) == a
    negative_result = (np.less(a, 0) != np.less(safe, 0)) & ~exact
    return np.where(b == 0, np.zeros_like(quotient), quotient + negative_result.astype(quotient.dtype))


def wrapping_remainder(a: Any, b: Any) -> Any:
    """What is left by `wrapping_divide`: the sign of a, and a itself for b = 0."""
    if np.asarray(a).dtype.kind == "f":
        return np.fmod(a, b)
    return np.subtract(a, np.multiply(wrapping_divide(a, b), b))


def wrapping_shift(function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """A shift whose count is taken modulo the width."""

    def run(a: Any, b: Any) -> Any:
        width = 8 * np.asarray(a).dtype.itemsize
        return function(a, np.bitwise_and(b, np.asarray(b).dtype.type(width - 1)))

    return run


def saturating_cast(a: Any, dtype: str) -> Any:
    """Integers wrap; float to integer truncates and saturates, NaN gives 0."""
    values, kind = np.asarray(a), np.dtype(dtype)
    if values.dtype.kind != "f" or kind.kind in "fb":
        return values.astype(kind)
    info = np.iinfo(kind)
    low, high = values <= float(info.min), values >= float(info.max)
    inside = np.where(low | high | np.isnan(values), values.dtype.type(0), values)
    result = np.where(high, info.max, inside.astype(kind)).astype(kind)
    return np.where(low, info.min, result).astype(kind)
