"""What layers and optimisers refuse when they are made."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

from teeny_embed.errors import AttributeValueError


def positive(**extents: Any) -> None:
    """Raises AttributeValueError for an extent that is no integer >= 1."""
    for name, value in extents.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise AttributeValueError(f"{name} = {value!r}", hint=f"{name}: an integer of at least 1")


def within(low: float, high: float, **numbers: Any) -> None:
    """Raises AttributeValueError for a number that is not in [low, high)."""
    for name, value in numbers.items():
        if not isinstance(value, int | float) or not low <= value < high:
            raise AttributeValueError(f"{name} = {value!r}", hint=f"{name}: a number in [{low:g}, {high:g})")


def per_dim(name: str, value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """One entry per spatial dim, each at least 1. Raises AttributeValueError."""
    entries = tuple(value) if isinstance(value, Sequence) else (value,) * rank
    if len(entries) != rank:
        hint = f"{name}: one number, or one per spatial dim: {rank}"
        raise AttributeValueError(f"{name} = {value!r} has {len(entries)} entries", hint=hint)
    for entry in entries:
        positive(**{name: entry})
    return entries
