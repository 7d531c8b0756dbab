"""The stored forms of a state, which NAME_store.c writes and reads: all of it, or its parameters.

Python reads and writes the same bytes: see `stored` and `from_stored`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from teeny_embed.emit_c.interface import StateField
from teeny_embed.errors import DataError

CHUNK_BYTES = 64
HEADER_BYTES = 32
CRC_BYTES = 4
STEPS_OFFSET_BYTES = 4
"""Of the number of steps in the state."""


@dataclass(frozen=True)
class Part:
    """A run of elements of one size in the state."""

    offset: int
    byte_count: int
    element_bytes: int


@dataclass(frozen=True)
class Form:
    """What a slot holds; `byte_count` is all of it, a multiple of CHUNK_BYTES."""

    name: str
    magic: int
    parts: tuple[Part, ...]

    @property
    def payload_bytes(self) -> int:
        return sum(part.byte_count for part in self.parts)

    @property
    def byte_count(self) -> int:
        return -(-(HEADER_BYTES + self.payload_bytes + CRC_BYTES) // CHUNK_BYTES) * CHUNK_BYTES


def state_form(fields: Sequence[StateField]) -> Form:
    """All tensors of a state."""
    return Form("state", int.from_bytes(b"TES1", "little"), _parts(fields))


def parameters_form(fields: Sequence[StateField]) -> Form:
    """The parameters alone: what some entry point trains. It may hold none."""
    parameters = [field for field in fields if field.kind == "parameter"]
    return Form("parameters", int.from_bytes(b"TEP1", "little"), _parts(parameters))


def forms(fields: Sequence[StateField]) -> tuple[Form, ...]:
    """Those that hold something, the whole state first."""
    return tuple(form for form in (state_form(fields), parameters_form(fields)) if form.parts)


def _parts(fields: Sequence[StateField]) -> tuple[Part, ...]:
    """Neighbours of one element size are one part."""
    parts: list[Part] = []
    for field in fields:
        element_bytes = np.dtype(field.dtype).itemsize
        part = Part(field.offset_bytes, prod(field.shape) * element_bytes, element_bytes)
        last = parts[-1] if parts else None
        if last and last.element_bytes == element_bytes and last.offset + last.byte_count == part.offset:
            part = Part(last.offset, last.byte_count + part.byte_count, element_bytes)
            parts.pop()
        parts.append(part)
    return tuple(parts)


def stored(form: Form, signature: int, state: bytes, sequence: int) -> bytes:
    """The content of a slot, for the bytes of a state struct on a little-endian machine."""
    (steps,) = struct.unpack_from("<I", state, STEPS_OFFSET_BYTES)
    header = struct.pack("<5I", form.magic, signature, sequence, steps, form.payload_bytes)
    payload = b"".join(state[part.offset : part.offset + part.byte_count] for part in form.parts)
    content = (header.ljust(HEADER_BYTES, b"\0") + payload).ljust(form.byte_count - CRC_BYTES, b"\0")
    return content + struct.pack("<I", zlib.crc32(content))


def from_stored(form: Form, signature: int, content: bytes, state: bytes) -> bytes:
    """`state` with what a slot holds. Raises DataError for what is damaged or another model's."""
    hint = "save it again"
    if len(content) != form.byte_count or content[:4] != struct.pack("<I", form.magic):
        raise DataError(f"these {len(content)} bytes are no stored {form.name}", hint=hint)
    _, found, _, steps, payload_bytes = struct.unpack_from("<5I", content)
    if (found, payload_bytes) != (signature, form.payload_bytes):
        raise DataError(f"the stored {form.name} are another model's: signature 0x{found:08x}", hint=hint)
    if zlib.crc32(content[:-CRC_BYTES]) != struct.unpack("<I", content[-CRC_BYTES:])[0]:
        raise DataError(f"the stored {form.name} are damaged", hint=hint)
    changed, at = bytearray(state), HEADER_BYTES
    for part in form.parts:
        changed[part.offset : part.offset + part.byte_count] = content[at : at + part.byte_count]
        at += part.byte_count
    if form.name == "state":
        struct.pack_into("<II", changed, 0, signature, steps)
    return bytes(changed)
