"""The registry of converters: how each ATen operator becomes operators of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from teeny_embed.graph.tensor import Tensor

Convert = Callable[..., "Tensor | Sequence[Tensor | None]"]
"""convert(first argument, **others by torch's names); it has a parameter for each argument that it knows.

A result that nothing can use is None. A converter with the parameter `uniform` is given a function that
draws float32 numbers in [0, 1) of a shape.
"""

Converter = TypeVar("Converter", bound=Convert)

CONVERTERS: dict[str, Convert] = {}


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Registers a function as the converter of ATen operators, of all their overloads."""

    def add(convert: Converter) -> Converter:
        for name in names:
            assert name not in CONVERTERS, f"operator {name} has two converters"
            CONVERTERS[name] = convert
        return convert

    return add


def as_tuple(value: Any, rank: int) -> tuple[int, ...]:
    """One entry per spatial dim: torch lets one number stand for all."""
    entries = tuple(value) if isinstance(value, Sequence) else (value,)
    return entries * rank if len(entries) == 1 else entries


def axes_of(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Axes, ascending; none given means all."""
    given = (dims,) if isinstance(dims, int) else tuple(dims or ())
    return tuple(sorted(d % rank for d in given)) or tuple(range(rank))
