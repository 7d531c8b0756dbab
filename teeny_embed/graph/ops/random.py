"""Counter-based random numbers: Threefry-2x32 with 20 rounds, equal on every machine.

Key = (seed, stream), counter = (call, block). Element i (row-major) takes word i & 1 of block i >> 1.
"""

from __future__ import annotations

import numpy as np

from teeny_embed.errors import DTypeError
from teeny_embed.graph import functions
from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import row_major
from teeny_embed.graph.op import NOT_DIFFERENTIABLE, Attribute, Op, Sample, integers, register
from teeny_embed.graph.ops.movement import out_dims
from teeny_embed.graph.step import Form, Operand
from teeny_embed.graph.types import TensorType


def _uniform_type(call: TensorType, shape: tuple[int, ...], seed: int, stream: int) -> TensorType:
    if call.dtype != "uint32" or call.shape:
        raise DTypeError(f"the call counter is {call}, expected uint32[]")
    return TensorType(shape)


def _uniform_form(call: TensorType, shape: tuple[int, ...], seed: int, stream: int) -> Form:
    dims = out_dims(TensorType(shape))
    element = s.const(0, "uint32")
    for d, stride in zip(dims, row_major(shape), strict=True):
        step = s.cast(s.index(d), "uint32") * stride
        element = step if element is s.const(0, "uint32") else element + step
    value = functions.uniform_at((seed, stream), s.var("call", "uint32"), element)
    return Form(dims, value, {"call": Operand(0, ())})


register(
    Op(
        "random_uniform",
        "uniform in [0, 1) from a counter",
        _uniform_type,
        NOT_DIFFERENTIABLE,
        form=_uniform_form,
        attributes={
            "shape": Attribute("extents", required=True, check=integers),
            "seed": Attribute("first key word", required=True, check=int),
            "stream": Attribute("second key word", required=True, check=int),
        },
        samples=lambda rng: [Sample((np.array(7, np.uint32),), {"shape": (3, 5), "seed": 1, "stream": 2})],
    )
)
