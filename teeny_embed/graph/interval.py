"""Intervals of integers: what accumulators can reach, whatever the input."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def accumulator_interval(
    filter: npt.NDArray[Any], bias: npt.NDArray[Any], low: int, high: int
) -> tuple[int, int]:
    """(least, greatest) of every partial sum, in any order, of bias + sum of x w with low <= x <= high.

    `filter` is [outputs, ...], `bias` [outputs]; the bias may come first or last.
    """
    weights = filter.reshape(len(filter), -1).astype(np.int64)
    least = np.minimum(0, np.minimum(weights * low, weights * high)).sum(axis=1)
    greatest = np.maximum(0, np.maximum(weights * low, weights * high)).sum(axis=1)
    offset = bias.astype(np.int64)
    return int((np.minimum(offset, 0) + least).min()), int((np.maximum(offset, 0) + greatest).max())
