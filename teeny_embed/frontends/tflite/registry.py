"""The registry of converters: how each TensorFlow Lite operator becomes operators of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from teeny_embed.graph.tensor import Tensor

if TYPE_CHECKING:
    from teeny_embed.frontends.tflite.operation import Operation

Convert = Callable[["Operation"], "Tensor | Sequence[Tensor]"]


@dataclass(frozen=True)
class Converter:
    """`convert` makes the results of an operator of a name; `dtypes` are those of its activations."""

    name: str
    dtypes: tuple[str, ...]
    convert: Convert
    note: str = ""


CONVERTERS: dict[str, Converter] = {}


def converter(names: str, dtypes: str, note: str = "") -> Callable[[Convert], Convert]:
    """Registers a function as the converter of the operators `names`, for activations of `dtypes`."""

    def add(convert: Convert) -> Convert:
        for name in names.split():
            assert name not in CONVERTERS, f"operator {name} has two converters"
            CONVERTERS[name] = Converter(name, tuple(dtypes.split()), convert, note)
        return convert

    return add
