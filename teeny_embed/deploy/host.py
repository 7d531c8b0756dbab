"""Runs a model on this machine, compiled to a shared library."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.deploy import declarations, toolchain
from teeny_embed.deploy.runner import (
    Array,
    ClosingContext,
    entry_index,
    input_arrays,
    output_arrays,
    state_from_bytes,
    state_into_bytes,
)
from teeny_embed.deploy.status import OK
from teeny_embed.emit_c.interface import EntryPoint, Interface
from teeny_embed.emit_c.literals import C_TYPES
from teeny_embed.errors import DeviceError, ToolError

ALIGNMENT_BYTES = 64
ARENA_GARBAGE = 0xA5
"""Fills the arena before each call: reads of what was never written become visible."""

_GUARD = 0x5A


class HostLibrary(ClosingContext):
    """One instance of a model, compiled by `compiler` with `flags` ("gcc" or "clang").

    `directory` holds the generated files. The library is built in `out`, or in a temporary directory that
    is gone once it is loaded. Instances have memory of their own. Raises ToolError, also when the header
    declares other functions than the interface.
    """

    def __init__(
        self,
        interface: Interface,
        directory: Path,
        compiler: str = "gcc",
        flags: Sequence[str] = ("-O2",),
        out: Path | None = None,
    ) -> None:
        self.interface = interface
        declared = declarations.read(directory.resolve() / f"{interface.name}.h")
        sources = [directory.resolve() / name for name in interface.sources]
        with tempfile.TemporaryDirectory(prefix="teeny_embed_") as temporary:
            path = (out or Path(temporary)).resolve() / f"lib{interface.name}.so"
            path.parent.mkdir(parents=True, exist_ok=True)
            toolchain.build_host_library(sources, path, compiler, flags)
            self._functions = _functions(ctypes.CDLL(str(path)), declared, interface)
        self._context = declared.structure(f"{interface.name}_ctx_t")()
        self._state = _GuardedBlock(interface.state_bytes)
        self._arena = _GuardedBlock(interface.arena_bytes)
        self._arena.bytes[:] = ARENA_GARBAGE
        self._initialize()

    def reset(self) -> int:
        """See `Runner.reset`."""
        return self._invoke("reset") if self.interface.state_bytes else 0

    def call(self, entry: str, inputs: Mapping[str, npt.ArrayLike]) -> tuple[int, dict[str, Array]]:
        """See `Runner.call`. Raises DeviceError if the model wrote outside of its memory."""
        declared = self.interface.entry_points[entry_index(self.interface, entry)]
        arrays = input_arrays(declared, inputs)
        outputs = output_arrays(declared)
        self._arena.bytes[:] = ARENA_GARBAGE
        for argument, place in self._slots(declared, arrays):
            place[...] = arrays[argument]
        status = self._invoke(entry, *_arguments(declared, arrays | outputs))
        for block, name in ((self._state, "state"), (self._arena, "arena")):
            if not block.is_intact():
                raise DeviceError(f"{self.interface.name}_{entry} wrote outside of its {name}")
        if status == OK:
            for argument, place in self._slots(declared, outputs):
                outputs[argument][...] = place
        return status, outputs

    def read_state(self) -> dict[str, Array]:
        """See `Runner.read_state`."""
        return state_from_bytes(self.interface, self._state.bytes.tobytes())

    def write_state(self, values: Mapping[str, npt.ArrayLike]) -> None:
        """See `Runner.write_state`."""
        changed = state_into_bytes(self.interface, self._state.bytes.tobytes(), values)
        self._state.bytes[:] = np.frombuffer(changed, np.uint8)

    def close(self) -> None:
        """See `Runner.close`. The library stays loaded until Python ends: ctypes cannot unload it."""

    def _slots(self, entry: EntryPoint, arrays: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
        """Those of `arrays` that lie in the arena, by name, as views of it."""
        for a in entry.arguments:
            if a.name in arrays and a.offset_bytes is not None:
                yield a.name, np.ndarray(a.shape, a.dtype, self._arena.bytes.data, a.offset_bytes)

    def _initialize(self) -> None:
        blocks = (self._state, self._arena) if self.interface.state_bytes else (self._arena,)
        sizes = [value for block in blocks for value in (block.address, block.bytes.size)]
        status = self._invoke("init", *sizes)
        if status != 0:
            raise DeviceError(f"{self.interface.name}_init failed with status {status}")

    def _invoke(self, name: str, *arguments: Any) -> int:
        return int(self._functions[name](ctypes.addressof(self._context), *arguments))


class _GuardedBlock:
    """Aligned bytes between two guards that nobody may write."""

    def __init__(self, byte_count: int) -> None:
        self._whole = np.full(byte_count + 3 * ALIGNMENT_BYTES, _GUARD, np.uint8)
        start = ALIGNMENT_BYTES + -self._whole.ctypes.data % ALIGNMENT_BYTES
        self.bytes = self._whole[start : start + byte_count]
        self.bytes[:] = 0
        self._guards = (self._whole[:start], self._whole[start + byte_count :])
        self.address = self._whole.ctypes.data + start

    def is_intact(self) -> bool:
        return all(bool((guard == _GUARD).all()) for guard in self._guards)


def _functions(
    library: ctypes.CDLL, declared: declarations.Declarations, interface: Interface
) -> dict[str, Any]:
    """The model's functions with the parameter types of its header, by name without prefix."""
    for entry in interface.entry_points:
        _check_parameters(interface.name, entry, declared)
    names = ["init", *(["reset"] if interface.state_bytes else []), *(e.name for e in interface.entry_points)]
    found = {}
    for name in names:
        function = library[f"{interface.name}_{name}"]
        function.restype = ctypes.c_int32
        function.argtypes = [p.ctype for p in declared.functions[f"{interface.name}_{name}"]]
        found[name] = function
    return found


def _check_parameters(model: str, entry: EntryPoint, declared: declarations.Declarations) -> None:
    symbol = f"{model}_{entry.name}"
    found = declared.functions.get(symbol, ())[1:]  # after the context
    expected = [(C_TYPES[a.dtype], not a.by_value) for a in entry.passed]
    if [(_c_type(p.scalar), p.by_address) for p in found] != expected:
        raise ToolError(f"{symbol} has other parameters than its interface", where=f"{model}.h")


def _c_type(scalar: Any) -> str:
    return C_TYPES[np.dtype(scalar).name] if scalar else "void"


def _arguments(entry: EntryPoint, arrays: Mapping[str, Array]) -> list[Any]:
    """Scalars by value, arrays by address."""
    return [
        arrays[argument.name].item() if argument.by_value else arrays[argument.name].ctypes.data
        for argument in entry.passed
    ]
