"""Operators that keep what they were given for the next call."""

from __future__ import annotations

import numpy as np

from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.graph.node import Variable, scoped
from teeny_embed.graph.ops.movement import concat
from teeny_embed.graph.tensor import Tensor, assign, read


@converter(
    "CIRCULAR_BUFFER", "int8", "only with cycles_max 1: a buffer that fills while the net waits is no step"
)
def circular_buffer(op: Operation) -> Tensor:
    """The last so many inputs, the latest at the end: [1, slots, ...] of inputs [1, 1, ...]."""
    x, output = op.input(0), op.output_info()
    if op.option("cycles_max") != 1:
        raise op.error(f"cycles_max is {op.option('cycles_max')}, only 1 is supported")
    if len(output.shape) != x.rank or x.shape[1] != 1 or 0 in output.shape:
        raise op.error(f"input {x.type}, result of shape {list(output.shape)}")
    empty = np.full(output.shape, output.zero_point, output.dtype)
    buffer = Variable(scoped("buffer"), empty, kind="state")
    op.context.variables[buffer.name] = buffer
    kept = read(buffer)
    shifted = concat(kept[:, 1:], x, axis=1) if output.shape[1] > 1 else x
    assign(buffer, shifted)
    return shifted
