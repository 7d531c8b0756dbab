"""Softmax and what is computed with it. exp of the shifted logits is shared between value and gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from teeny_embed.errors import DTypeError, ShapeError
from teeny_embed.graph.op import Attribute, Op, Sample, register
from teeny_embed.graph.ops.elementwise import float_type
from teeny_embed.graph.ops.movement import is_index
from teeny_embed.graph.ops.reduction import normalized
from teeny_embed.graph.tensor import Tensor, call
from teeny_embed.graph.types import FLOAT, TensorType, expect


def _softmax_type(x: TensorType, axis: int) -> TensorType:
    normalized((axis,), x.rank)
    return float_type(x)


def _shifted(x: Tensor, axis: int) -> Tensor:
    return x - call("max", x, axes=(axis,), keepdims=True)


def _softmax(x: Tensor, axis: int) -> Tensor:
    e = call("exp", _shifted(x, axis))
    return e / _along(e, axis)


def _log_softmax(x: Tensor, axis: int) -> Tensor:
    shifted = _shifted(x, axis)
    return shifted - call("log", _along(call("exp", shifted), axis))


def _along(x: Tensor, axis: int) -> Tensor:
    return call("sum", x, axes=(axis,), keepdims=True, order="reduce")


_AXIS = {"axis": Attribute("axis", default=-1, check=int)}


def _samples(rng: np.random.Generator) -> list[Sample]:
    return [Sample((rng.standard_normal((3, 5), dtype=np.float32),))]


register(
    Op(
        "softmax",
        "e^(x - max) / sum",
        _softmax_type,
        lambda g, ans, x, axis: (ans * (g - _along(g * ans, axis)),),
        composite=_softmax,
        attributes=_AXIS,
        samples=_samples,
    )
)
register(
    Op(
        "log_softmax",
        "x - max - log(sum of e^(x - max))",
        _softmax_type,
        lambda g, ans, x, axis: (g - call("exp", ans) * _along(g, axis),),
        composite=_log_softmax,
        attributes=_AXIS,
        samples=_samples,
    )
)


def _cross_entropy_type(logits: TensorType, label: TensorType) -> TensorType:
    expect(FLOAT, logits)
    if label.dtype != "int32":
        raise DTypeError(f"label is {label.dtype}, expected int32", hint='te.input("label", (N,), "int32")')
    if logits.shape[:-1] != label.shape:
        shape = ", ".join(map(str, logits.shape[:-1]))
        raise ShapeError(
            f"label {label} must have the shape of logits {logits} without the classes",
            hint=f"one class number per sample: shape ({shape},)",
        )
    return logits.with_shape(label.shape)


def _cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    shifted = _shifted(logits, -1)
    total = _along(call("exp", shifted), -1)
    return call("log", total).reshape(label.shape) - call("pick", shifted, label)


def _cross_entropy_vjp(g: Tensor, ans: Tensor, logits: Tensor, label: Tensor) -> tuple[Any, None]:
    hit = is_index(label, logits.shape[-1]).astype("float32")
    return (_softmax(logits, -1) - hit) * g.reshape((*g.shape, 1)), None


register(
    Op(
        "cross_entropy",
        "-log softmax(logits)[label], per sample",
        _cross_entropy_type,
        _cross_entropy_vjp,
        composite=_cross_entropy,
        index_bounds=lambda logits, label: {1: logits.shape[-1]},
        samples=lambda rng: [
            Sample((rng.standard_normal((3, 5), dtype=np.float32), np.array([4, 0, 2], "i4")))
        ],
    )
)
