"""Batch, instance, layer, group and RMS normalisation, LRN, norms."""

from __future__ import annotations

import numpy as np

from teeny_embed.frontends.onnx.model import Operation
from teeny_embed.frontends.onnx.registry import axis_of, converter
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, call


def _over_axis_1(value: Tensor, x: Tensor) -> Tensor:
    """One number per channel, against x [N, C, ...]."""
    return value.reshape((1, -1, *(1,) * (x.rank - 2)))


def _normalized(x: Tensor, axes: tuple[int, ...], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(variance + epsilon), the mean, and 1 / sqrt(...)."""
    mean = call("mean", x, axes=axes, keepdims=True)
    centred = x - mean
    inverse = 1.0 / call("sqrt", call("mean", centred * centred, axes=axes, keepdims=True) + epsilon)
    return centred * inverse, mean, inverse


@converter("BatchNormalization")
def batch(op: Operation) -> Tensor:
    """By the running statistics."""
    op.refuse(training_mode=0, spatial=1)
    x, scale, bias, mean, variance = (op[i] for i in range(5))
    factor = scale / call("sqrt", variance + op.attribute("epsilon", 1e-5))
    return (x - _over_axis_1(mean, x)) * _over_axis_1(factor, x) + _over_axis_1(bias, x)


@converter("InstanceNormalization")
def instance(op: Operation) -> Tensor:
    x = op[0]
    y, _, _ = _normalized(x, tuple(range(2, x.rank)), op.attribute("epsilon", 1e-5))
    return y * _over_axis_1(op[1], x) + _over_axis_1(op[2], x)


@converter("LayerNormalization", "com.microsoft.LayerNormalization")
def layer(op: Operation) -> tuple[Tensor, ...]:
    x = op[0]
    axis = axis_of(op, op.attribute("axis", -1), x.rank)
    y, mean, inverse = _normalized(x, tuple(range(axis, x.rank)), op.attribute("epsilon", 1e-5))
    y = y * op[1]
    return (y + op[2] if op.has(2) else y), mean, inverse


@converter("RMSNormalization")
def rms(op: Operation) -> Tensor:
    x = op[0]
    axes = tuple(range(axis_of(op, op.attribute("axis", -1), x.rank), x.rank))
    mean = call("mean", x * x, axes=axes, keepdims=True)
    return x / call("sqrt", mean + op.attribute("epsilon", 1e-5)) * op[1]


@converter("GroupNormalization")
def group(op: Operation) -> Tensor:
    """Scale and bias per channel (version 21), or per group."""
    x, groups = op[0], op.attribute("num_groups")
    parts = x.reshape((x.shape[0], groups, -1))
    y, _, _ = _normalized(parts, (2,), op.attribute("epsilon", 1e-5))
    y = y.reshape(x.shape)
    factors = []
    for value in (op[1], op[2]):
        if value.shape != (x.shape[1],):
            wide = call("expand", value.reshape((groups, 1)), shape=(groups, x.shape[1] // groups))
            value = wide.reshape((x.shape[1],))
        factors.append(_over_axis_1(value, x))
    return y * factors[0] + factors[1]


@converter("LRN")
def local_response(op: Operation) -> Tensor:
    x, size = op[0], op.attribute("size")
    last = x.transpose(0, *range(2, x.rank), 1)
    rows = (last * last).reshape((-1, x.shape[1], 1))
    padding = (((size - 1) // 2, size - 1 - (size - 1) // 2),)
    total = call("sum_pool", rows, kernel=(size,), stride=(1,), padding=padding).reshape(last.shape)
    scale = total * (op.attribute("alpha", 1e-4) / size) + op.attribute("bias", 1.0)
    y = last / call("pow", scale, scale * 0.0 + op.attribute("beta", 0.75))
    return y.transpose(0, x.rank - 1, *range(1, x.rank - 1))


@converter("LpNormalization")
def lp(op: Operation) -> Tensor:
    x, p = op[0], op.attribute("p", 2)
    if p not in (1, 2):
        raise op.error(f"p={p} is not supported", "1 and 2 are")
    axes = (axis_of(op, op.attribute("axis", -1), x.rank),)
    size = call("sum", call("abs", x) if p == 1 else x * x, axes=axes, keepdims=True, order="reduce")
    return x / where(size == 0.0, 1.0, size if p == 1 else call("sqrt", size))  # nothing stays nothing


@converter("MeanVarianceNormalization")
def mean_variance(op: Operation) -> Tensor:
    axes = tuple(op.attribute("axes", (0, 2, 3)))
    x = op[0]
    centred = x - call("mean", x, axes=axes, keepdims=True)
    deviation = call("sqrt", call("mean", centred * centred, axes=axes, keepdims=True))
    return centred / (deviation + float(np.float32(1e-9)))
