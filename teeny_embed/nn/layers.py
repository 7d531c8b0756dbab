"""Layers with parameters. Images are NHWC, filters OHWI.

Initial weights and biases are uniform in +-1 / sqrt(fan in), as torch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod, sqrt
from numbers import Integral

from teeny_embed.errors import AttributeValueError, ShapeError
from teeny_embed.graph.node import locating
from teeny_embed.graph.tensor import Tensor, call, read
from teeny_embed.nn.checks import per_dim, positive, within
from teeny_embed.nn.module import Module, filled, uniform

Extents = int | Sequence[int]
Pairs = tuple[tuple[int, int], ...]
Padding = int | str | Sequence[int | tuple[int, int]]
"""One number for all spatial dims, one per dim, (before, after) per dim, or "same"."""


def pairs(padding: Padding, extents: Sequence[int], spans: Sequence[int], stride: Sequence[int]) -> Pairs:
    """(before, after) per spatial dim. "same" gives ceil(extent / stride) positions, the odd one after."""
    if padding == "same":
        totals = [max(-(-e // t) * t - t + s - e, 0) for e, s, t in zip(extents, spans, stride, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    hint = 'padding: a number, one per spatial dim, (before, after) per spatial dim, or "same"'
    if isinstance(padding, str):
        raise AttributeValueError(f"padding = {padding!r}", hint=hint)
    entries = tuple(padding) if isinstance(padding, Sequence) else (padding,) * len(extents)
    if len(entries) != len(extents):
        raise AttributeValueError(f"padding = {padding!r} for {len(extents)} spatial dims", hint=hint)
    found = [tuple(p) if isinstance(p, tuple | list) else (p, p) for p in entries]
    if any(len(pair) != 2 or not all(isinstance(e, Integral) for e in pair) for pair in found):
        raise AttributeValueError(f"padding = {padding!r}", hint=hint)
    return tuple((int(before), int(after)) for before, after in found)


class Linear(Module):
    """y = x w^T + b. x [N, inputs], weight [outputs, inputs], bias [outputs]."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        with locating(type(self).__name__):
            positive(inputs=inputs, outputs=outputs)
        bound = 1.0 / sqrt(inputs)
        self.weight = uniform(outputs, inputs, bound=bound)
        self.bias = uniform(outputs, bound=bound) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        if x.rank != 2:
            raise ShapeError(f"input {x.type} is not [N, inputs]", hint="nn.Flatten() in front makes it so")
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
        with locating(type(self).__name__):
            positive(inputs=inputs, outputs=outputs, groups=groups)
            if inputs % groups or outputs % groups:
                hint = "groups: divides inputs and outputs"
                raise ShapeError(f"{inputs} inputs and {outputs} outputs for {groups} groups", hint=hint)
            extents = per_dim("kernel", kernel, self.rank)
            self.stride = per_dim("stride", stride, self.rank)
            self.dilation = per_dim("dilation", dilation, self.rank)
        bound = 1.0 / sqrt(prod(extents) * inputs // groups)
        self.weight = uniform(outputs, *extents, inputs // groups, bound=bound)
        self.bias = uniform(outputs, bound=bound) if bias else None
        self.padding, self.groups = padding, groups

    def forward(self, x: Tensor) -> Tensor:
        if x.rank != self.rank + 2:
            hint = "images are NHWC: add the batch with .reshape((1, *x.shape)), or in te.input"
            raise ShapeError(f"input {x.type} is not [N, {self.rank} spatial dims, channels]", hint=hint)
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
        with locating(type(self).__name__):
            positive(count=count, size=size)
        self.weight = uniform(count, size, bound=sqrt(3.0))

    def forward(self, x: Tensor) -> Tensor:
        return call("take", read(self.weight), x)


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + epsilon) weight + bias, over the last axes, whose extents are `shape`."""

    kind = "layer_norm"

    def __init__(self, shape: Extents, epsilon: float = 1e-5) -> None:
        extents = tuple(shape) if isinstance(shape, Sequence) else (shape,)
        with locating(type(self).__name__):
            for extent in extents:
                positive(shape=extent)
            within(0, inf, epsilon=epsilon)
        self.weight, self.bias = filled(*extents, value=1.0), filled(*extents, value=0.0)
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        shape = self.weight.value.shape
        if x.shape[-len(shape) :] != shape:
            hint = "LayerNorm takes the last extents of its input"
            raise ShapeError(f"input {x.type} does not end with the extents {list(shape)}", hint=hint)
        axes = tuple(range(-len(shape), 0))
        centred = x - x.mean(axes, keepdims=True)
        variance = (centred * centred).mean(axes, keepdims=True)
        scale = 1.0 / call("sqrt", variance + self.epsilon)  # one division per sample, not per element
        return centred * scale * read(self.weight) + read(self.bias)
