"""The registry of converters: how each ONNX operator becomes operators of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from teeny_embed.frontends.onnx.model import Array, Operation
from teeny_embed.graph.tensor import Tensor

Convert = Callable[[Operation], "Tensor | Array | Sequence[Tensor | Array]"]
"""convert(operation): the results, in order; those that nothing can use are left out at the end.

An array is a result that is known, such as an empty one: a tensor of the graph has elements."""

CONVERTERS: dict[str, Convert] = {}


def converter(*names: str) -> Callable[[Convert], Convert]:
    """Registers a function as the converter of operators."""

    def add(convert: Convert) -> Convert:
        for name in names:
            assert name not in CONVERTERS, f"operator {name} has two converters"
            CONVERTERS[name] = convert
        return convert

    return add


def axis_of(op: Operation, axis: int, rank: int) -> int:
    """An axis, counted from the front. Raises DataError."""
    if not -rank <= axis < rank:
        raise op.error(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank
