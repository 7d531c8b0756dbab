"""An ONNX model as plain data, and one node of it as converters see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.errors import DataError
from teeny_embed.graph.tensor import Tensor, constant

Array = npt.NDArray[Any]
INTEGER = "int32"
"""What int64 becomes in the graph: ONNX's integers are positions and extents."""


@dataclass(frozen=True)
class Argument:
    """An input or output; an extent is a number or, where it is open, a name."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str


@dataclass(frozen=True, eq=False)
class Operator:
    """One node. Names of tensors are "" where none is given. `evaluate` computes it from arrays, by ONNX's
    own reference implementation: what is known when the model is read becomes constant."""

    name: str
    kind: str
    """Operator, with its domain before a dot unless that is ONNX's own: "com.microsoft.Gelu"."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    evaluate: Callable[[Mapping[str, Array]], Sequence[Array]]

    @property
    def path(self) -> str:
        """What errors and comments call it."""
        return self.name or next((o for o in self.outputs if o), self.kind)


@dataclass(frozen=True, eq=False)
class Model:
    """A file. `version` is that of ONNX's own operators."""

    file: str
    version: int
    inputs: tuple[Argument, ...]
    outputs: tuple[str, ...]
    stored: Mapping[str, Array]
    operators: tuple[Operator, ...]


class Operation:
    """A node with its operands: `tensors` are all values so far, `known` those that are known already."""

    def __init__(
        self, op: Operator, tensors: Mapping[str, Tensor], known: Mapping[str, Array], version: int
    ) -> None:
        self.op, self.version = op, version
        self._tensors, self._known = tensors, known

    @property
    def count(self) -> int:
        """How many operands it is given, left out ones too."""
        return len(self.op.inputs)

    def has(self, number: int) -> bool:
        return number < len(self.op.inputs) and self.op.inputs[number] != ""

    def __getitem__(self, number: int) -> Tensor:
        """An operand. Raises DataError where it is left out."""
        if not self.has(number):
            raise self.error(f"operand {number} is missing")
        name = self.op.inputs[number]
        if name not in self._tensors:
            return constant(narrowed(self._known[name]))
        return self._tensors[name]

    def get(self, number: int) -> Tensor | None:
        return self[number] if self.has(number) else None

    def all(self) -> list[Tensor]:
        return [self[i] for i in range(self.count)]

    def is_known(self, number: int) -> bool:
        return self.has(number) and self.op.inputs[number] in self._known

    def known(self, number: int, default: Any = None) -> Any:
        """An operand that must be known when the model is read, such as a shape, or the default."""
        if not self.has(number):
            return default
        if not self.is_known(number):
            hint = "give it as a constant; what it is computed from must not depend on inputs"
            raise self.error(f"operand {self.op.inputs[number]!r} is not known before the model runs", hint)
        return self._known[self.op.inputs[number]]

    def integers(self, number: int, attribute: str = "") -> tuple[int, ...] | None:
        """Those of an operand, or of the attribute that stood for it in older versions; None without both."""
        if self.has(number):
            return tuple(int(v) for v in np.asarray(self.known(number)).reshape(-1))
        value = self.op.attributes.get(attribute)
        return None if value is None else tuple(map(int, value))

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.op.attributes.get(name, default)

    def refuse(self, **attributes: Any) -> None:
        """Raises DataError for an attribute that is not as given here."""
        for name, only in attributes.items():
            if (found := self.attribute(name, only)) != only:
                raise self.error(f"{name}={found!r} is not supported", f"only {only!r} is")

    def error(self, what: str, hint: str = "docs/onnx.md lists what is supported") -> DataError:
        return DataError(f"{self.op.kind}: {what}", self.op.path, hint)


def narrowed(array: Array) -> Array:
    """`array` in the dtype that stands for its own: int64 is saturated, float64 rounded."""
    if array.dtype == np.int64:
        info = np.iinfo(INTEGER)
        return np.clip(array, info.min, info.max).astype(INTEGER)
    return array.astype(np.float32) if array.dtype == np.float64 else array
