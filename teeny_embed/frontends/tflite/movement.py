"""Movement: which element goes where."""

from __future__ import annotations

from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.graph.tensor import Tensor

ANY = "float32 int8 int16 uint8 int32 int64 bool"


@converter("RESHAPE SQUEEZE EXPAND_DIMS", ANY)
def reshape(op: Operation) -> Tensor:
    """The file states the shape of every result."""
    return op.input(0).reshape(op.output_info().shape)
