"""Real data to learn from."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Digits:
    """MNIST's training digits, and the same made smaller: the mean of blocks of what lies inside a margin."""

    def __init__(self, file: Path) -> None:
        with np.load(file) as arrays:
            self._images = arrays["x_train"]
            self.labels = arrays["y_train"].astype(np.int32)

    @cached_property
    def images(self) -> dict[int, Array]:
        """[count, size, size, 1] in [0, 1] by size."""
        whole = self._images.astype(np.float32) / np.float32(255)
        inside = whole[:, 2:-2, 2:-2]
        smaller = {s: inside.reshape(-1, s, 24 // s, s, 24 // s).mean((2, 4)) for s in (8, 12)}
        return {s: images[..., np.newaxis] for s, images in ({28: whole} | smaller).items()}
