"""Layers without parameters: activations, pools, shape, dropout. Images are NHWC."""

from __future__ import annotations

from typing import ClassVar

from teeny_embed.autograd.training import is_training
from teeny_embed.errors import ShapeError
from teeny_embed.graph.node import locating
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, call
from teeny_embed.nn.checks import per_dim, within
from teeny_embed.nn.layers import Extents, Padding, pairs
from teeny_embed.nn.module import Module, RandomModule


class _Function(Module):
    """One operator of one operand."""

    op: ClassVar[str]

    def forward(self, x: Tensor) -> Tensor:
        return call(self.op, x)


class ReLU(_Function):
    """max(x, 0); NaN stays NaN."""

    op = "relu"


class ReLU6(_Function):
    """min(max(x, 0), 6); NaN stays NaN."""

    op = "relu6"


class Tanh(_Function):
    """Hyperbolic tangent."""

    op = "tanh"


class Sigmoid(_Function):
    """1 / (1 + e^-x)."""

    op = "sigmoid"


class Softmax(Module):
    """e^(x - max) / sum, along an axis."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return call("softmax", x, axis=self.axis)


class _Pool(Module):
    """x [N, spatial..., C]. The stride is the kernel if not given."""

    op: ClassVar[str]
    rank: ClassVar[int]

    def __init__(self, kernel: Extents, stride: Extents | None = None, padding: Padding = 0) -> None:
        with locating(type(self).__name__):
            self.kernel = per_dim("kernel", kernel, self.rank)
            self.stride = self.kernel if stride is None else per_dim("stride", stride, self.rank)
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        if x.rank != self.rank + 2:
            hint = "pools take images in NHWC"
            raise ShapeError(f"input {x.type} is not [N, {self.rank} spatial dims, channels]", hint=hint)
        padding = pairs(self.padding, x.shape[1:-1], self.kernel, self.stride)
        return call(self.op, x, kernel=self.kernel, stride=self.stride, padding=padding)


class MaxPool1d(_Pool):
    """Largest element of each window; padding is never the largest. x [N, W, C]."""

    kind, op, rank = "max_pool", "max_pool", 1


class MaxPool2d(_Pool):
    """Largest element of each window; padding is never the largest. x [N, H, W, C]."""

    kind, op, rank = "max_pool", "max_pool", 2


class AvgPool1d(_Pool):
    """Mean of each window, padding counted as zeros. x [N, W, C]."""

    kind, op, rank = "avg_pool", "avg_pool", 1


class AvgPool2d(_Pool):
    """Mean of each window, padding counted as zeros. x [N, H, W, C]."""

    kind, op, rank = "avg_pool", "avg_pool", 2


class GlobalAvgPool(Module):
    """Mean over all positions. x [N, spatial..., C], y [N, C]."""

    kind = "global_avg_pool"

    def forward(self, x: Tensor) -> Tensor:
        return call("avg_pool", x, kernel=x.shape[1:-1]).reshape((x.shape[0], x.shape[-1]))


class Flatten(Module):
    """[N, ...] to [N, elements], row-major: channels of an image come last."""

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape((x.shape[0], -1))


class Dropout(RandomModule):
    """In training, 0 with probability `rate`, else x / (1 - rate); otherwise x.

    The mask comes from a counter, so backward computes it again instead of keeping it.
    """

    def __init__(self, rate: float = 0.5) -> None:
        with locating(type(self).__name__):
            within(0, 1, rate=rate)
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not is_training() or self.rate == 0.0:
            return x
        return where(self.uniform(x.shape) < self.rate, 0.0, x * (1.0 / (1.0 - self.rate)))
