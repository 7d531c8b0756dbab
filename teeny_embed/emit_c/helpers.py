"""Helper functions that expressions and kernels may call; a module gets those that it uses."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from teeny_embed.emit_c.literals import C_TYPES, INTEGERS, literal
from teeny_embed.emit_c.template import fill


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """What stands behind a module's prefix in the names of helpers, and of their types."""
    return tuple(name for head in _texts("m") for name in (head, f"{head}_t"))


def helpers(module: str, body: str) -> list[str]:
    """The helpers that `body` calls, directly or through another."""
    texts = _texts(module)
    called = re.compile(rf"\b{module}_(\w+?)(?:_t)?\b")
    used = set(called.findall(body))
    for head in reversed(texts):
        if head in used:
            used |= set(called.findall(texts[head]))
    return [text for head, text in texts.items() if head in used]


def _texts(module: str) -> dict[str, str]:
    """By name; those that others call come first."""
    text = fill("c/helpers.c.j2", m=module, conversions=_conversions(), integers=_integers())
    blocks = (block.strip().partition("\n") for block in text.split("----\n"))
    return {head: text for head, _, text in blocks}


@lru_cache(maxsize=1)
def spellings() -> dict[str, list[tuple[str, str]]]:
    """(preprocessor condition, body) of named functions for instruction sets that have a shorter one."""
    found: dict[str, list[tuple[str, str]]] = {}
    for block in fill("c/spellings.c.j2").split("----\n"):
        name, condition, body = block.strip().split("\n", 2)
        found.setdefault(name, []).append((condition, body))
    return found


def _conversions() -> list[dict[str, str]]:
    """Floats to integers: the bounds as the float sees them, and as the integer."""
    return [
        {
            "name": f"{to}_from_{source}",
            "to": C_TYPES[to],
            "source": C_TYPES[source],
            "zero": literal(0, to),
            "low": literal(float(np.iinfo(to).min), source),
            "lowest": literal(np.iinfo(to).min, to),
            "high": literal(float(np.iinfo(to).max), source),
            "highest": literal(np.iinfo(to).max, to),
        }
        for to in INTEGERS
        for source in ("float32", "float64")
    ]


def _integers() -> list[dict[str, str]]:
    """`overflows`: when a / b has no value of its type in C; the wrapped quotient is a."""
    lowest = {dtype: literal(np.iinfo(dtype).min, dtype) for dtype in INTEGERS}
    return [
        {
            "name": dtype,
            "type": C_TYPES[dtype],
            "overflows": "0" if dtype.startswith("u") else f"(a == {lowest[dtype]}) && (b == -1)",
        }
        for dtype in INTEGERS
    ]
