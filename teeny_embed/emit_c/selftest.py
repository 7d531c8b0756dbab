"""The self-test of a module: which calls it makes, on which inputs, and the hash of all that they give.

Inputs are not stored: both sides compute them from numbers, in arithmetic that is exact everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.emit_c.interface import Argument, EntryPoint
from teeny_embed.emit_c.literals import C_TYPES

Words = npt.NDArray[np.uint32]
FIRST_HASH, HASH_FACTOR = 2166136261, 16777619
"""Of the 32-bit FNV-1a hash (Fowler, Noll and Vo, 1991), here of words."""
RATE = 2.0**-6
"""What learning rates are."""
TINY = 2.0**-127
"""Makes subnormals of float32 inputs in the first round: gradients and moments show what flushes them."""


@dataclass(frozen=True)
class Fill:
    """How the elements of an input are made of words: `expression` in C, of the uint32_t `word`."""

    dtype: str
    bound: int | None = None
    """Of integers: they stay below it; None: any."""
    rate: bool = False

    @property
    def expression(self) -> str:
        c_type = C_TYPES[self.dtype]
        if self.rate:
            return "0x1p-6f"
        if self.bound is not None:
            return f"({c_type})(word % {self.bound}u)"
        if self.dtype in ("float32", "float64"):
            real = "(float)((int32_t)(word >> 16) - 32768) * 0x1p-15f"
            return real if self.dtype == "float32" else f"(double)({real})"
        if self.dtype == "bool":
            return "(uint8_t)(word & 1u)"
        modulus, least = self._range
        return (
            f"({c_type})((int32_t)(word % {modulus}u) - {-least})"
            if least
            else f"({c_type})(word % {modulus}u)"
        )

    @property
    def _range(self) -> tuple[int, int]:
        """How many integers, from which on: as many as 31 bits hold, and finite ones as bits of a float16."""
        if self.dtype == "float16":
            return 0x3C00, 0
        kind = np.dtype(self.dtype)
        count = min(1 << (8 * kind.itemsize), 1 << 31)
        return count, -(count // 2) if kind.kind == "i" else 0

    def values(self, words: Words) -> npt.NDArray[Any]:
        """What C computes."""
        if self.rate:
            return np.full(words.shape, RATE, np.float32)
        if self.bound is not None:
            return (words % np.uint32(self.bound)).astype(self.dtype)
        if self.dtype in ("float32", "float64"):
            return ((words >> 16).astype(self.dtype) - 32768) * 2.0**-15
        if self.dtype == "bool":
            return (words & 1).astype(bool)
        modulus, least = self._range
        whole = (words % np.uint32(modulus)).astype(np.int64) + least
        return (
            whole.astype(np.uint16).view(np.float16) if self.dtype == "float16" else whole.astype(self.dtype)
        )


@dataclass(frozen=True)
class Operand:
    """An argument of a call. `place` is its C expression; `fill` says what an input holds."""

    argument: Argument
    place: str
    fill: Fill | None
    seed: int

    @property
    def c_type(self) -> str:
        return C_TYPES[self.argument.dtype]

    @property
    def is_scaled(self) -> bool:
        """Whether it holds subnormals in the first round."""
        return self.argument.dtype == "float32" and self.argument.shape != () and self.fill is not None


@dataclass(frozen=True)
class Call:
    """One entry point; `operands` in the order of its arguments, `passed` those that are passed."""

    entry: EntryPoint
    operands: tuple[Operand, ...]

    @property
    def passed(self) -> tuple[Operand, ...]:
        return tuple(o for o in self.operands if o.argument.offset_bytes is None)

    @property
    def buffers(self) -> tuple[Operand, ...]:
        """Those that are passed as pointers."""
        return tuple(o for o in self.passed if not o.argument.by_value)

    @property
    def uses_words(self) -> bool:
        return any(o.fill is not None and not o.fill.rate for o in self.operands)


@dataclass(frozen=True)
class SelfTest:
    """All entry points in turn, `rounds` times, from the initial state; that is hashed after each round."""

    calls: tuple[Call, ...]
    rounds: int
    has_floats: bool
    hash: int = 0


def words(seed: int, count: int) -> Words:
    """word i: the number seed + i, its bits mixed by the finaliser of MurmurHash3 (Appleby, 2011)."""
    n: Any = np.arange(seed, seed + count, dtype=np.uint32)
    n = (n ^ (n >> 16)) * np.uint32(0x85EBCA6B)
    n = (n ^ (n >> 13)) * np.uint32(0xC2B2AE35)
    return np.asarray(n ^ (n >> 16))


def inputs(call: Call, round_number: int) -> dict[str, npt.NDArray[Any]]:
    """What the inputs of a call hold in one round, by name."""
    found: dict[str, npt.NDArray[Any]] = {}
    for operand in call.operands:
        if operand.fill is not None:
            argument = operand.argument
            values = operand.fill.values(words(operand.seed + (round_number << 24), argument.count))
            if operand.is_scaled and round_number == 0:
                values = values * np.float32(TINY)
            found[argument.name] = values.reshape(argument.shape)
    return found


def hashed(hash: int, values: npt.ArrayLike) -> int:
    """Continues a hash with the elements of a tensor: one word each, two where they have 64 bits; one NaN."""
    flat = np.ascontiguousarray(values).reshape(-1)
    if flat.dtype.kind == "f":
        flat = np.where(np.isnan(flat), np.array(np.nan, flat.dtype), flat)
    size = flat.dtype.itemsize
    if flat.dtype.kind == "i" and size < 4:
        flat = flat.astype(np.int32)
    raw = flat.view(f"u{flat.dtype.itemsize}")
    halves = raw.view(np.uint32) if raw.dtype.itemsize == 8 else raw.astype(np.uint32)
    for word in halves.tolist():
        hash = ((hash ^ word) * HASH_FACTOR) & 0xFFFFFFFF
    return hash


def call_of(
    entry: EntryPoint,
    number: int,
    bounds: Mapping[str, int],
    rates: Sequence[str],
    members: Mapping[str, str],
) -> Call:
    """The call of an entry point. `members` has the arena's members of arguments that lie there."""
    operands = []
    for position, argument in enumerate(entry.arguments):
        fill = None
        if argument.direction == "in":
            fill = Fill(argument.dtype, bounds.get(argument.name), argument.name in rates)
        if argument.offset_bytes is not None:
            place = f"ctx->arena->{members[argument.name]}.at"
        else:
            place = f"value_{argument.name}" if argument.by_value else f"io->{entry.name}.{argument.name}"
        operands.append(Operand(argument, place, fill, (number << 20) + (position << 16)))
    return Call(entry, tuple(operands))
