"""The state struct and the constant tables: where each tensor lies, and what `reset` stores in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from teeny_embed.emit_c.interface import StateField
from teeny_embed.emit_c.literals import C_TYPES, literal
from teeny_embed.emit_c.names import Names
from teeny_embed.emit_c.scalar_printer import ScalarPrinter
from teeny_embed.graph import scalar as s
from teeny_embed.graph.functions import initial_value
from teeny_embed.graph.node import Variable

HEADER_BYTES = 16  # signature, steps, two reserved words


@dataclass(frozen=True)
class StateMember:
    """A variable in the state, and what reset stores in its element i: `value`, after `statements`."""

    name: str
    field: StateField
    type: str
    count: int
    statements: tuple[str, ...]
    value: str


@dataclass(frozen=True)
class Table:
    """A constant array in flash."""

    name: str
    comment: str
    type: str
    values: tuple[str, ...]
    size_bytes: int
    align_bytes: int = 0
    """More than its elements need, where a kernel loads several at once; else 0."""


class Tables:
    """Constant arrays under names of their own; equal contents are stored once."""

    def __init__(self, module: str, names: Names) -> None:
        self._module, self._names = module, names
        self._tables: dict[bytes, Table] = {}

    def add(self, name: str, comment: str, values: np.ndarray[Any, Any], align_bytes: int = 0) -> str:
        """The symbol of the table that holds `values`."""
        flat = np.ascontiguousarray(values).reshape(-1)
        key = bytes([align_bytes]) + flat.dtype.str.encode() + flat.tobytes()
        if key not in self._tables:
            symbol, dtype = f"{self._module}_{self._names.unique(name)}", flat.dtype.name
            texts = tuple(literal(v, dtype).strip("()") for v in flat)
            self._tables[key] = Table(symbol, comment, C_TYPES[dtype], texts, flat.nbytes, align_bytes)
        return self._tables[key].name

    def all(self) -> tuple[Table, ...]:
        """Every table, in the order in which they were added."""
        return tuple(self._tables.values())


def state_members(
    module: str, variables: Sequence[Variable], drawn: Collection[Variable], tables: Tables
) -> tuple[StateMember, ...]:
    """The members of the state struct in order. `reset` draws those of `drawn`; others may need a table."""
    members, offset, names = [], HEADER_BYTES, Names(("signature", "steps", "reserved"))
    for variable in variables:
        offset = _round_up(offset, variable.initial.itemsize)
        field = StateField(variable.name, variable.type.dtype, variable.type.shape, offset, variable.kind)
        offset += variable.initial.nbytes
        name = names.unique(variable.name)
        statements, value = _initial(module, name, variable, variable in drawn, tables)
        c_type = C_TYPES[field.dtype]
        members.append(StateMember(name, field, c_type, variable.initial.size, statements, value))
    return tuple(members)


def _initial(
    module: str, name: str, variable: Variable, drawn: bool, tables: Tables
) -> tuple[tuple[str, ...], str]:
    """Statements and value for element i: the same for all, drawn, or from a table."""
    initial = np.ascontiguousarray(variable.initial).reshape(-1)
    words = initial.view(f"u{initial.itemsize}")
    if np.all(words == words[0]):
        return (), literal(initial[0], initial.dtype.name)
    if not drawn:
        return (), f"{tables.add(f'initial_{name}', variable.name, initial)}[i]"
    own_names = Names()
    printer = ScalarPrinter(module, {s.index("i"): "i"}, lambda: own_names.unique("t"))
    (value,) = printer.print([drawn_element(variable)])
    return tuple(printer.lines), value


def drawn_element(variable: Variable) -> s.Scalar:
    """The initial value of element i, as it was drawn."""
    assert variable.draw is not None, f"{variable.name} was not drawn"
    return initial_value(variable.draw, s.cast(s.index("i"), "uint32"))


def state_bytes(fields: Sequence[StateField]) -> int:
    """Size of the struct, 0 without members."""
    if not fields:
        return 0
    last = fields[-1]
    size = int(np.prod(last.shape)) * np.dtype(last.dtype).itemsize
    return _round_up(last.offset_bytes + size, 16)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
