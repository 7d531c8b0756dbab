"""Activations, pools, shape, dropout: layers without parameters, but PReLU's. Images are NHWC."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from teeny_embed.autograd.training import is_training
from teeny_embed.errors import AttributeValueError, ShapeError
from teeny_embed.graph.node import Variable, locating, user_line
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, call, read
from teeny_embed.nn.checks import per_dim, positive, within
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


class SiLU(_Function):
    """x sigmoid(x), also called swish."""

    op = "silu"


class Mish(_Function):
    """x tanh(ln(1 + e^x))."""

    op = "mish"


class Softplus(_Function):
    """ln(1 + e^x)."""

    op = "softplus"


class LogSigmoid(_Function):
    """ln sigmoid(x)."""

    op = "log_sigmoid"


class Softsign(_Function):
    """x / (1 + |x|)."""

    op = "softsign"


class Tanhshrink(_Function):
    """x - tanh(x)."""

    op = "tanh_shrink"


class Hardswish(_Function):
    """x max(0, min(1, x / 6 + 1/2))."""

    op = "hard_swish"


class GELU(Module):
    """x times the share of a normal distribution below x; `approximate` "tanh" approximates it."""

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            hint = 'approximate: "none" or "tanh"'
            raise AttributeValueError(f"GELU: approximate = {approximate!r}", user_line(), hint)
        self.op = "gelu" if approximate == "none" else "gelu_tanh"

    def forward(self, x: Tensor) -> Tensor:
        return call(self.op, x)


class _Numbers(Module):
    """One operator of one operand with attributes that are numbers."""

    op: ClassVar[str]

    def __init__(self, **numbers: float) -> None:
        self.numbers = numbers

    def forward(self, x: Tensor) -> Tensor:
        return call(self.op, x, **self.numbers)


class LeakyReLU(_Numbers):
    """x, or slope x where x < 0."""

    op = "leaky_relu"

    def __init__(self, slope: float = 0.01) -> None:
        super().__init__(slope=slope)


class Threshold(_Numbers):
    """x where x > threshold, else value."""

    op = "threshold"

    def __init__(self, threshold: float, value: float) -> None:
        super().__init__(threshold=threshold, value=value)


class Hardtanh(_Numbers):
    """x clipped to [low, high]."""

    op = "clip"

    def __init__(self, low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(low=low, high=high)


class Hardsigmoid(_Numbers):
    """max(0, min(1, alpha x + beta))."""

    op = "hard_sigmoid"

    def __init__(self, alpha: float = 1 / 6, beta: float = 0.5) -> None:
        super().__init__(alpha=alpha, beta=beta)


class Hardshrink(_Numbers):
    """x, or 0 where |x| <= size."""

    op = "hard_shrink"

    def __init__(self, size: float = 0.5) -> None:
        super().__init__(size=size)


class Softshrink(_Numbers):
    """x moved by size towards 0, and 0 where |x| <= size."""

    op = "soft_shrink"

    def __init__(self, size: float = 0.5) -> None:
        super().__init__(size=size)


class ELU(_Numbers):
    """x, or alpha (e^x - 1) where x < 0."""

    op = "elu"

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha=alpha)


class CELU(_Numbers):
    """x, or alpha (e^(x / alpha) - 1) where x < 0."""

    op = "celu"

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha=alpha)


class SELU(_Function):
    """gamma x, or gamma alpha (e^x - 1) where x < 0 (Klambauer et al., 2017)."""

    op = "selu"


class PReLU(Module):
    """x, or slope x where x < 0; the slopes are trained, one for all channels or one for each."""

    def __init__(self, channels: int = 1, slope: float = 0.25) -> None:
        with locating(type(self).__name__):
            positive(channels=channels)
        self.weight = Variable("", np.full(channels, slope, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        return call("prelu", x, read(self.weight))


class GLU(Module):
    """The first half along an axis times the sigmoid of the second."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        axis = self.axis % x.rank if -x.rank <= self.axis < x.rank else self.axis
        if axis >= x.rank or axis < 0 or x.shape[axis] % 2:
            raise ShapeError(f"{x.type} has no two halves along axis {self.axis}", hint="an even extent")
        half = x.shape[axis] // 2
        before = (slice(None),) * axis
        return x[(*before, slice(0, half))] * call("sigmoid", x[(*before, slice(half, None))])


class LogSoftmax(Module):
    """x - max - ln(sum of e^(x - max)), along an axis."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        return call("log_softmax", x, axis=self.axis)


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
