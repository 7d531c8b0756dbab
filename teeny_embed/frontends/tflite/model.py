"""What a `.tflite` file says, as plain data: checked, and without a trace of how it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.errors import DataError

Array = npt.NDArray[Any]
ABSENT = -1
"""The tensor index of an optional operand that is left out."""


@dataclass(frozen=True, eq=False)
class Quantization:
    """real = scale (stored - zero point): for the whole tensor, or one of each per slice of `axis`."""

    scales: npt.NDArray[np.float32]
    zero_points: npt.NDArray[np.int64]
    axis: int

    @property
    def per_channel(self) -> bool:
        return self.scales.size > 1


@dataclass(frozen=True, eq=False)
class TensorInfo:
    """A tensor of a subgraph. `data` is its constant value, None for what is computed."""

    index: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None
    data: Array | None
    is_variable: bool
    where: str

    @property
    def scale(self) -> float:
        """Of the whole tensor, a binary32 number. Raises DataError."""
        return float(self._one().scales[0])

    @property
    def zero_point(self) -> int:
        """Of the whole tensor. Raises DataError."""
        return int(self._one().zero_points[0])

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest number of its type. Raises DataError where that is no integer."""
        if not self.dtype.startswith(("int", "uint")):
            raise DataError(f"tensor {self.name!r} is {self.dtype}, expected integers", self.where)
        info = np.iinfo(self.dtype)
        return int(info.min), int(info.max)

    def _one(self) -> Quantization:
        if self.quantization is None or self.quantization.per_channel:
            what = "is not quantised" if self.quantization is None else "is quantised per channel"
            raise DataError(f"tensor {self.name!r} {what}; one scale is needed", self.where)
        return self.quantization


@dataclass(frozen=True, eq=False)
class OperatorInfo:
    """An operator of a subgraph. Operands and results are tensor indices.

    `options` are the fields of its options, those of a custom operator too where they can be read.
    """

    index: int
    name: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    options: Mapping[str, Any]
    custom_options: bytes
    where: str


@dataclass(frozen=True, eq=False)
class Subgraph:
    """Operators in the order in which they run."""

    name: str
    tensors: tuple[TensorInfo, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[OperatorInfo, ...]


@dataclass(frozen=True, eq=False)
class Model:
    """A whole file; subgraph 0 is the net. The names of its signature, by tensor index, where it has one."""

    file: str
    subgraphs: tuple[Subgraph, ...]
    input_names: Mapping[int, str]
    output_names: Mapping[int, str]
