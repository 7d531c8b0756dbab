"""C identifiers from layer paths."""

from __future__ import annotations

import re

from teeny_embed.graph.step import Buffer, Schedule

_KEYWORDS = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "alignas",
        "alignof",
        "bool",
        "catch",
        "class",
        "constexpr",
        "delete",
        "explicit",
        "export",
        "false",
        "friend",
        "mutable",
        "namespace",
        "new",
        "operator",
        "private",
        "protected",
        "public",
        "template",
        "this",
        "throw",
        "true",
        "try",
        "typename",
        "using",
        "virtual",
        "asm",
        "ctx",
        "i",
    ]
)


def identifier(text: str) -> str:
    """`text` with everything that C does not allow in a name replaced by underscores."""
    name = re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_") or "x"
    if name[0].isdigit() or name in _KEYWORDS or name == "NULL" or name.upper().startswith("TE_"):
        name = f"x_{name}"
    return name


class Names:
    """Hands out names that are unique within one C scope."""

    def __init__(self, taken: tuple[str, ...] = ()) -> None:
        self._taken = set(taken)

    def unique(self, text: str) -> str:
        """An identifier made of `text`, numbered if it is taken."""
        base = identifier(text)
        name, number = base, 2
        while name in self._taken:
            name, number = f"{base}_{number}", number + 1
        self._taken.add(name)
        return name


def argument_names(schedule: Schedule) -> dict[Buffer, str]:
    """What an entry point calls its arguments."""
    names = Names()
    return {buffer: names.unique(buffer.name) for buffer in (*schedule.inputs, *schedule.outputs)}


def layer_name(path: str) -> str:
    """The layer of a node path: "conv0/add.grad" gives "conv0_grad", "mean" gives "mean"."""
    forward, mark, _ = path.partition(".grad")
    scope = forward.rpartition("/")[0] or forward
    return scope + ("_grad" if mark else "")
