"""Layers with parameters. Images are NHWC, filters OHWI.

Initial weights and biases are uniform in +-1 / sqrt(fan in), as torch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt

from teeny_embed.errors import ShapeError
from teeny_embed.graph.tensor import Tensor, call, read
from teeny_embed.nn.module import Module, filled, uniform

Extents = int | Sequence[int]
Pairs = tuple[tuple[int, int], ...]
Padding = int | str | Sequence[int | tuple[int, int]]
"""One number for all spatial dims, one per dim, (before, after) per dim, or "same"."""


def per_dim(value: Extents, rank: int) -> tuple[int, ...]:
    """One entry per spatial dim."""
    entries = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(entries) != rank:
        raise ShapeError(f"{entries} has {len(entries)} entries, expected {rank}: one per spatial dim")
    return entries


def pairs(padding: Padding, extents: Sequence[int], spans: Sequence[int], stride: Sequence[int]) -> Pairs:
    """(before, after) per spatial dim. "same" gives ceil(extent / stride) positions, the odd one after."""
    if padding == "same":
        totals = [max(-(-e // t) * t - t + s - e, 0) for e, s, t in zip(extents, spans, stride, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    if isinstance(padding, str):
        raise ShapeError(f'padding {padding!r} is no padding: a number, one per dim, pairs, or "same"')
    entries = (padding,) * len(extents) if isinstance(padding, int) else tuple(padding)
    if len(entries) != len(extents):
        raise ShapeError(f"padding {entries} for {len(extents)} spatial dims: give one entry per dim")
    return tuple((p, p) if isinstance(p, int) else p for p in entries)


class Linear(Module):
    """y = x w^T + b. x [N, inputs], weight [outputs, inputs], bias [outputs]."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        bound = 1.0 / sqrt(inputs)
        self.weight = uniform(outputs, inputs, bound=bound)
        self.bias = uniform(outputs, bound=bound) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = call("conv", x, read(self.weight))
        return y + read(self.bias) if self.bias else y


class _Conv(Module):
    """x [N, spatial..., inputs], weight [outputs, kernel..., inputs / groups], bias [outputs]."""

    kind = "conv"
    rank: int

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: Extents,
        stride: Extents = 1,
        padding: Padding = 0,
        dilation: Extents = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        if inputs % groups or outputs % groups:
            raise ShapeError(f"{inputs} inputs and {outputs} outputs do not split into {groups} groups")
        extents = per_dim(kernel, self.rank)
        bound = 1.0 / sqrt(prod(extents) * inputs // groups)
        self.weight = uniform(outputs, *extents, inputs // groups, bound=bound)
        self.bias = uniform(outputs, bound=bound) if bias else None
        self.stride, self.dilation = per_dim(stride, self.rank), per_dim(dilation, self.rank)
        self.padding, self.groups = padding, groups

    def forward(self, x: Tensor) -> Tensor:
        if x.rank != self.rank + 2:
            raise ShapeError(f"input {x.type} is not [N, {self.rank} spatial dims, channels]")
        kernel = self.weight.value.shape[1:-1]
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilation, kernel, strict=True)]
        padding = pairs(self.padding, x.shape[1:-1], spans, self.stride)
        y = call(
            "conv", x, read(self.weight),
            stride=self.stride, padding=padding, dilation=self.dilation, groups=self.groups,
        )  # fmt: skip
        return y + read(self.bias) if self.bias else y


class Conv1d(_Conv):
    """Convolution along one axis. x [N, W, inputs], weight [outputs, kernel, inputs / groups]."""

    rank = 1


class Conv2d(_Conv):
    """Convolution; depthwise if groups = inputs.

    x [N, H, W, inputs], weight [outputs, kernel height, kernel width, inputs / groups].
    """

    rank = 2


class Embedding(Module):
    """Rows of a table. x int32 [...], weight [count, size], y [..., size]. Initial variance 1, as torch's.

    An x that is an input is refused at run time unless 0 <= x < count.
    """

    def __init__(self, count: int, size: int) -> None:
        self.weight = uniform(count, size, bound=sqrt(3.0))

    def forward(self, x: Tensor) -> Tensor:
        return call("take", read(self.weight), x)


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + epsilon) weight + bias, over the last axes, whose extents are `shape`."""

    kind = "layer_norm"

    def __init__(self, shape: Extents, epsilon: float = 1e-5) -> None:
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        self.weight, self.bias = filled(*extents, value=1.0), filled(*extents, value=0.0)
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        axes = tuple(range(-self.weight.value.ndim, 0))
        centred = x - x.mean(axes, keepdims=True)
        variance = (centred * centred).mean(axes, keepdims=True)
        scale = 1.0 / call("sqrt", variance + self.epsilon)  # one division per sample, not per element
        return centred * scale * read(self.weight) + read(self.bias)
