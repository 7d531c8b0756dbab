"""What the integers of a quantised argument stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Quantization:
    """real = scale (stored - zero_point), for numbers stored as `dtype` (an integer type of at most 16 bits).

    `scale` is a binary32 number. The rounding rule is `round_away`: to the nearest, ties away from zero, as
    the quantising operators of TensorFlow Lite have it.
    """

    scale: float
    zero_point: int
    dtype: str

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest number that is stored."""
        info = np.iinfo(self.dtype)
        return int(info.min), int(info.max)

    def quantize(self, real: npt.ArrayLike) -> npt.NDArray[Any]:
        """real / scale in binary32, rounded, plus the zero point, saturated; the zero point for NaN."""
        low, high = self.limits
        with np.errstate(over="ignore"):  # what is too large saturates
            scaled = np.asarray(real, np.float32) / np.float32(self.scale)
        inside = np.nan_to_num(scaled, nan=0.0).clip(low - self.zero_point, high - self.zero_point)
        whole = np.trunc(inside)
        rest = inside - whole
        rounded = whole.astype(np.int32) + (rest >= 0.5) - (rest <= -0.5)
        return np.asarray(rounded + self.zero_point).astype(self.dtype)

    def dequantize(self, stored: npt.ArrayLike) -> npt.NDArray[Any]:
        """float32: scale (stored - zero_point)."""
        above = np.asarray(stored, np.int32) - self.zero_point
        return np.asarray(above.astype(np.float32) * np.float32(self.scale))
