"""x[key]: NumPy's basic indexing with integers, slices and an ellipsis, as the operator slice."""

from __future__ import annotations

from operator import index
from typing import Any

from teeny_embed.errors import ShapeError
from teeny_embed.graph.node import locating
from teeny_embed.graph.tensor import Tensor, call


def slice_by_key(x: Tensor, key: Any) -> Tensor:
    """The part of `x` that `key` means; integers remove their axis. Raises ShapeError."""
    with locating(f"indexing {x.type}"):
        parts = [_slice(k, extent) for k, extent in zip(_keys(x, key), x.shape, strict=True)]
    starts, stops, steps, keep = zip(*parts, strict=True) if parts else ((), (), (), ())
    sliced = call("slice", x, starts=starts, stops=stops, steps=steps)
    if all(keep):
        return sliced
    return sliced.reshape(tuple(e for e, kept in zip(sliced.shape, keep, strict=True) if kept))


def _keys(x: Tensor, key: Any) -> list[Any]:
    """One entry per axis."""
    keys = list(key) if isinstance(key, tuple) else [key]
    dots = [at for at, k in enumerate(keys) if k is Ellipsis]  # not ==: a key may be an array
    missing = x.rank - len(keys) + len(dots)
    if missing < 0 or len(dots) > 1:
        raise ShapeError(f"{len(keys)} entries for {x.rank} axes", hint="give at most one per axis")
    at = dots[0] if dots else len(keys)
    return [*keys[:at], *[slice(None)] * missing, *keys[at + 1 :]]


def _slice(key: Any, extent: int) -> tuple[int, int, int, bool]:
    """(start, stop, step, whether the axis stays)."""
    try:
        if not isinstance(key, slice):
            position = index(key)
        else:
            start, stop, step = key.indices(extent)
    except (TypeError, ValueError):
        hint = "integers, slices and ... are; for positions in a tensor use te.take"
        raise ShapeError(f"{key!r} is no index", hint=hint) from None
    if isinstance(key, slice):
        if step < 1 or start >= stop:
            raise ShapeError(
                f"{key.start}:{key.stop}:{key.step} selects nothing of {extent}, or runs backwards",
                hint="steps are positive, and at least one element must be left",
            )
        return start, stop, step, True
    if not -extent <= position < extent:
        hint = "positions run from 0 upwards, or from -1 backwards"
        raise ShapeError(f"position {position} of {extent}", hint=hint)
    position %= extent
    return position, position + 1, 1, False
