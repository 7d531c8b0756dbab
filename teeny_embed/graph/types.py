"""Tensor types: a static shape and an element type. Memory order is row-major."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from teeny_embed.errors import DTypeError, ShapeError
from teeny_embed.graph.scalar import DTYPES

# ---- What operators take. All of DTYPES can be stored, moved, chosen and cast; float16 nothing else.

FLOAT = ("float32",)
NUMBERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", *FLOAT)
ARITHMETIC = (*NUMBERS, "float64")
"""For + - * /, minimum, maximum and comparisons."""
TOTALS = ("int32", "uint32", "int64", "uint64", *FLOAT)
"""For sums of products and other sums; smaller integers would overflow too soon."""


@dataclass(frozen=True)
class TensorType:
    """Shape (row-major, every extent >= 1) and NumPy dtype name."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise DTypeError(f"unknown dtype {self.dtype!r}", hint=f"one of {', '.join(DTYPES)}")
        if any(not isinstance(d, int) or d < 1 for d in self.shape):
            hint = "nothing is empty; an extent that is bound later is None or a name"
            raise ShapeError(f"shape {self.shape}: every extent must be an integer >= 1", hint=hint)

        if self.count >= 1 << 31:
            raise ShapeError(f"shape {self.shape} has {self.count} elements", hint="at most 2^31 - 1")

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def count(self) -> int:
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.count * np.dtype(self.dtype).itemsize

    @property
    def is_float(self) -> bool:
        return self.dtype.startswith("float")

    def with_shape(self, shape: Sequence[int]) -> TensorType:
        return TensorType(tuple(shape), self.dtype)

    def with_dtype(self, dtype: str) -> TensorType:
        return TensorType(self.shape, dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


def expect(dtypes: Sequence[str], *types: TensorType) -> None:
    """Raises DTypeError if an operand is of none of `dtypes`."""
    for type in types:
        if type.dtype not in dtypes:
            expected = " or ".join(dtypes) if len(dtypes) < 3 else f"one of {', '.join(dtypes)}"
            whole = type.dtype.startswith(("bool", "int", "uint")) and "int32" in dtypes
            hint = 'cast with .astype("int32")' if whole else 'cast with .astype("float32")'
            raise DTypeError(f"operand is {type.dtype}, expected {expected}", hint=hint)


def broadcast(*types: TensorType) -> tuple[int, ...]:
    """The shape that NumPy's broadcasting gives."""
    try:
        return tuple(int(d) for d in np.broadcast_shapes(*(t.shape for t in types)))
    except ValueError:
        shapes = " and ".join(str(list(t.shape)) for t in types)
        raise ShapeError(
            f"shapes {shapes} do not broadcast", hint="trailing extents must be equal or 1"
        ) from None
