"""The test firmware's rendered parts: main.c, board.h and link.ld for one model on one board."""

from __future__ import annotations

import json
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from teeny_embed.emit_c.interface import Argument, EntryPoint, Interface
from teeny_embed.emit_c.literals import C_TYPES
from teeny_embed.emit_c.template import fill
from teeny_embed.errors import ToolError
from teeny_embed.target import Board

PROTOCOL_VERSION = 1
"""Of the commands in protocol.c."""

_COMMON_SOURCES = ("startup.c", "runtime.c", "text.c", "stack.c", "protocol.c")


def identity(interface: Interface) -> str:
    """What the firmware says it is: the model's name and a hash of interface and protocol, 16 hex digits."""
    text = json.dumps([PROTOCOL_VERSION, asdict(interface)], sort_keys=True)
    return f"{interface.name} {sha256(text.encode()).hexdigest()[:16]}"


def first_marks(interface: Interface) -> dict[str, int]:
    """The first segment id of each entry point in a measuring build.

    Node i of an entry point is segment `first + i`, what follows its last node is segment
    `first + node count`, and segment 0 is everything outside of entry points.
    """
    marks, following = {}, 1
    for entry in interface.entry_points:
        marks[entry.name] = following
        following += len(entry.node_names) + 1
    return marks


def sources(board: Board, channel: str, measure: bool) -> tuple[str, ...]:
    """Names of the firmware's C files for a channel, "semihosting" or "uart". Raises ToolError."""
    channels = {"semihosting": ("semihosting.c",), "uart": ("uart.c", f"uart_{board.uart.driver}.c")}
    if channel not in channels:
        raise ToolError(f"there is no channel {channel!r}", hint="known are " + ", ".join(channels))
    return (*_COMMON_SOURCES, *channels[channel], *(("mark.c",) if measure else ()))


def render(interface: Interface, board: Board, out_directory: Path) -> None:
    """Writes main.c, board.h and link.ld."""
    marks = first_marks(interface)
    values = {
        "name": interface.name,
        "identity": identity(interface),
        "state_bytes": interface.state_bytes,
        "entries": [_entry(entry, marks[entry.name]) for entry in interface.entry_points],
        "board": board,
        "mark_count": 1 + sum(len(entry.node_names) + 1 for entry in interface.entry_points),
    }
    out_directory.mkdir(parents=True, exist_ok=True)
    for name in ("main.c", "board.h", "link.ld"):
        text = fill(f"firmware/{name}.j2", **values)
        (out_directory / name).write_text(text, encoding="utf-8")


def _entry(entry: EntryPoint, first_mark: int) -> dict[str, Any]:
    members = {argument: f"argument{index}" for index, argument in enumerate(entry.passed)}
    calls = [f"io.{entry.name}.{name}" + ("[0]" if a.by_value else "") for a, name in members.items()]

    def block(argument: Argument) -> str:
        if argument.offset_bytes is None:
            place = f"io.{entry.name}.{members[argument]}"
            return f"{place}, sizeof {place}"
        return f"&arena.bytes[{argument.offset_bytes}], {argument.count}u * sizeof({_c_type(argument)})"

    return {
        "name": entry.name,
        "first_mark": first_mark,
        "blocks": [f"{_c_type(argument)} {name}[{argument.count}]" for argument, name in members.items()],
        "call_arguments": ", ".join(["&context", *calls]),
        "inputs": [block(argument) for argument in entry.arguments if argument.direction == "in"],
        "outputs": [block(argument) for argument in entry.arguments if argument.direction == "out"],
    }


def _c_type(argument: Argument) -> str:
    if argument.dtype not in C_TYPES:
        raise ToolError(f"an argument of dtype {argument.dtype} cannot be passed to C", where=argument.name)
    return C_TYPES[argument.dtype]
