"""Batch normalisation (Ioffe and Szegedy, 2015), with torch's conventions."""

from __future__ import annotations

from math import inf

from teeny_embed.autograd.training import is_training
from teeny_embed.errors import ShapeError
from teeny_embed.graph.node import Variable, locating
from teeny_embed.graph.tensor import Tensor, assign, call, read
from teeny_embed.nn.checks import positive, within
from teeny_embed.nn.module import Module, filled


class _BatchNorm(Module):
    """Normalises each channel: (x - mean) / sqrt(variance + epsilon) weight + bias. x [N, spatial..., C].

    In training mean and (biased) variance are those of the batch, and the running statistics move towards
    them by `momentum`, there with the unbiased variance. Otherwise the running statistics are used.
    """

    kind = "batch_norm"
    ranks: tuple[int, ...]

    def __init__(self, channels: int, epsilon: float = 1e-5, momentum: float = 0.1) -> None:
        with locating(type(self).__name__):
            positive(channels=channels)
            within(0, inf, epsilon=epsilon, momentum=momentum)
        self.weight, self.bias = filled(channels, value=1.0), filled(channels, value=0.0)
        self.running_mean = filled(channels, value=0.0, kind="state")
        self.running_var = filled(channels, value=1.0, kind="state")
        self.epsilon, self.momentum = epsilon, momentum

    def forward(self, x: Tensor) -> Tensor:
        if x.rank not in self.ranks:
            expected = " or ".join(map(str, self.ranks))
            hint = "BatchNorm1d takes [N, C] or [N, W, C], BatchNorm2d [N, H, W, C]"
            raise ShapeError(f"input {x.type} has rank {x.rank}, expected {expected}", hint=hint)
        if x.shape[-1:] != self.weight.value.shape:
            hint = "channels come last"
            raise ShapeError(f"input {x.type} has not {self.weight.value.size} channels", hint=hint)
        if is_training():
            return self._by_batch(x)
        return self._scaled(x - read(self.running_mean), read(self.running_var))

    def _by_batch(self, x: Tensor) -> Tensor:
        axes = tuple(range(x.rank - 1))
        count = x.type.count // x.shape[-1]
        if count == 1:
            hint = "train with a batch of 2 or more"
            raise ShapeError("one element per channel has no variance (unbiased it is 0 / 0)", hint=hint)
        mean = x.mean(axes)
        centred = x - mean
        variance = (centred * centred).mean(axes)
        self._move(self.running_mean, mean)
        self._move(self.running_var, variance * (count / (count - 1)))
        return self._scaled(centred, variance)

    def _scaled(self, centred: Tensor, variance: Tensor) -> Tensor:
        scale = read(self.weight) / call("sqrt", variance + self.epsilon)
        return centred * scale + read(self.bias)

    def _move(self, running: Variable, batch: Tensor) -> None:
        assign(running, read(running) * (1.0 - self.momentum) + batch * self.momentum)


class BatchNorm1d(_BatchNorm):
    """Per channel, over samples (and positions). x [N, C] or [N, W, C]; weight, bias, statistics [C]."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Per channel, over samples and positions. x [N, H, W, C]; weight, bias, statistics [C]."""

    ranks = (4,)
