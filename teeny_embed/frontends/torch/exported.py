"""What a torch module computes for inputs of given shapes, as plain data: no object of torch is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

INTEGER = "int32"
"""What torch's int64 becomes: its integers are positions and classes."""


@dataclass(frozen=True, eq=False)
class Stored:
    """A parameter or buffer; one that several modules share has several names."""

    names: tuple[str, ...]
    value: Array
    kind: str
    trainable: bool


@dataclass(frozen=True)
class Ref:
    """A tensor by the name that the export gives it."""

    name: str


@dataclass(frozen=True, eq=False)
class Operator:
    """One call. `operand` is its first argument; `arguments` are others, by torch's names.

    Tensors are `Ref`s and lists are tuples. Arguments that have their default value are left out, and so
    are those that say where and how torch stores a tensor. `path` is the module, such as "encoder.layers.0".
    """

    result: str
    name: str
    overload: str
    operand: Any
    arguments: Mapping[str, Any]
    path: str
    where: str


@dataclass(frozen=True)
class Argument:
    """An input of the module."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, eq=False)
class Exported:
    """A module in training or evaluation mode, for inputs of these shapes.

    `stored` are its parameters and buffers, tensor name to name in the module; `constants` what its
    code made. `mutations` are buffers with the tensor that they become. `output_names` are the keys of a dict
    that the module returns, or None.
    """

    inputs: tuple[Argument, ...]
    stored: Mapping[str, str]
    constants: Mapping[str, Array]
    operators: tuple[Operator, ...]
    outputs: tuple[Ref, ...]
    output_names: tuple[str, ...] | None
    mutations: tuple[tuple[str, Ref], ...]


def numpy_dtype(name: str) -> str:
    """The NumPy name of a dtype of torch: "torch.float32" is float32, "torch.int64" is `INTEGER`."""
    name = name.removeprefix("torch.")
    return INTEGER if name == "int64" else name


def narrowed(array: Array) -> Array:
    """`array` in the dtype that stands for its own. Raises OverflowError for an integer that is too large."""
    if array.dtype != np.int64:
        return array
    info = np.iinfo(INTEGER)
    if array.size and (array.min() < info.min or array.max() > info.max):
        raise OverflowError(f"an integer of {int(array.max())} or {int(array.min())} does not fit {INTEGER}")
    return array.astype(INTEGER)
