"""One interface to a compiled model, wherever it runs: host library, emulated board, serial board."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from teeny_embed.emit_c.interface import Argument, EntryPoint, Interface, StateField
from teeny_embed.errors import DataError

Array = npt.NDArray[Any]


class Runner(Protocol):
    """Calls the entry points of one instance of a model. Closes itself as a context manager."""

    @property
    def interface(self) -> Interface:
        """The model that is run."""

    def reset(self) -> int:
        """Sets the state to its initial values; a `te_status_t`, 0 if good."""

    def call(self, entry: str, inputs: Mapping[str, npt.ArrayLike]) -> tuple[int, dict[str, Array]]:
        """Calls an entry point; its `te_status_t` and its outputs by name (0 where not written)."""

    def read_state(self) -> dict[str, Array]:
        """All state tensors by their logical names."""

    def write_state(self, values: Mapping[str, npt.ArrayLike]) -> None:
        """Overwrites some or all state tensors."""

    def close(self) -> None:
        """Frees what the runner holds. May be called twice."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class ClosingContext:
    """Makes a runner a context manager."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def entry_index(interface: Interface, name: str) -> int:
    """Position of an entry point. Raises DataError for an unknown name."""
    names = [entry.name for entry in interface.entry_points]
    if name not in names:
        raise DataError(f"{interface.name} has no entry point {name!r}", hint="it has " + ", ".join(names))
    return names.index(name)


def input_arrays(entry: EntryPoint, values: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
    """The inputs in order, contiguous and of the declared dtype and shape. Raises DataError."""
    arguments = [argument for argument in entry.arguments if argument.direction == "in"]
    _same_names(entry.name, [argument.name for argument in arguments], list(values))
    return {argument.name: _array(argument, values[argument.name], entry.name) for argument in arguments}


def output_arrays(entry: EntryPoint) -> dict[str, Array]:
    """Zeros for each output, in order."""
    outputs = [argument for argument in entry.arguments if argument.direction == "out"]
    return {argument.name: np.zeros(argument.shape, argument.dtype) for argument in outputs}


def state_from_bytes(interface: Interface, raw: bytes) -> dict[str, Array]:
    """The tensors inside the bytes of a state struct."""
    return {field.name: _field(field, bytearray(raw)) for field in interface.state}


def state_into_bytes(interface: Interface, raw: bytes, values: Mapping[str, npt.ArrayLike]) -> bytes:
    """The bytes of a state struct with some tensors replaced. Raises DataError."""
    fields = {field.name: field for field in interface.state}
    if unknown := sorted(set(values) - set(fields)):
        raise DataError(f"{interface.name} has no state {unknown[0]!r}", hint="it has " + ", ".join(fields))
    changed = bytearray(raw)
    for name, value in values.items():
        _field(fields[name], changed)[...] = _array(fields[name], value, "state")
    return bytes(changed)


def _field(field: StateField, raw: bytearray) -> Array:
    return np.ndarray(field.shape, field.dtype, buffer=raw, offset=field.offset_bytes)


def _array(declared: Argument | StateField, value: npt.ArrayLike, where: str) -> Array:
    """Python numbers and lists take the declared dtype; an array must have it."""
    typed = isinstance(value, np.ndarray | np.generic)
    array = np.asarray(value) if typed else np.asarray(value, declared.dtype)
    if array.dtype != declared.dtype or array.shape != declared.shape:
        raise DataError(
            f"{declared.name} is {array.dtype}{list(array.shape)}, "
            f"expected {declared.dtype}{list(declared.shape)}",
            where=where,
        )
    return np.ascontiguousarray(array).reshape(declared.shape)


def _same_names(where: str, expected: list[str], given: list[str]) -> None:
    if missing := [name for name in expected if name not in given]:
        raise DataError(f"input {missing[0]!r} is missing", where=where)
    if unknown := [name for name in given if name not in expected]:
        hint = "known are " + ", ".join(expected)
        raise DataError(f"there is no input {unknown[0]!r}", where=where, hint=hint)
