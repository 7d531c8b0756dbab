"""Batch, instance, layer and group normalisation: (x - mean) / sqrt(variance + epsilon) weight + bias."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from teeny_embed.errors import ShapeError
from teeny_embed.frontends.torch.reduction import reduced
from teeny_embed.frontends.torch.registry import converter
from teeny_embed.graph.tensor import Tensor, call


def _over_axis_1(value: Tensor, x: Tensor) -> Tensor:
    """One number per channel, against x [N, C, ...]."""
    return value.reshape((1, -1, *(1,) * (x.rank - 2)))


def _scaled(
    centred: Tensor, variance: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """Of x minus its mean; variance, weight and bias are one number per channel."""
    root = call("sqrt", variance + eps)
    scale = 1.0 / root if weight is None else weight / root
    y = centred * _over_axis_1(scale, centred)
    return y if bias is None else y + _over_axis_1(bias, y)


@converter("aten._native_batch_norm_legit_no_training")
def batch_norm_eval(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor | None, ...]:
    """By the running statistics."""
    centred = x - _over_axis_1(running_mean, x)
    return _scaled(centred, running_var, weight, bias, eps), None, None


@converter("aten._native_batch_norm_legit_functional")
def batch_norm_train(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor | None, ...]:
    """By the batch's statistics; the last two results are the new running ones, of the unbiased variance."""
    y, mean, variance = _by_batch(x, weight, bias, eps)
    count = x.type.count // x.shape[1]
    if count == 1:
        hint = "train with a batch of 2 or more"
        raise ShapeError("one element per channel has no variance (unbiased it is 0 / 0)", hint=hint)
    unbiased = variance * (count / (count - 1))
    moved = (
        running * (1.0 - momentum) + batch * momentum
        for running, batch in ((running_mean, mean), (running_var, unbiased))
    )
    return y, None, None, *moved


@converter("aten._native_batch_norm_legit")
def batch_norm_without_statistics(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor | None, ...]:
    return _by_batch(x, weight, bias, eps)[0], None, None


def _by_batch(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and mean and biased variance per channel."""
    axes = (0, *range(2, x.rank))
    mean = call("mean", x, axes=axes)
    centred = x - _over_axis_1(mean, x)
    variance = call("mean", centred * centred, axes=axes)
    return _scaled(centred, variance, weight, bias, eps), mean, variance


@converter("aten.layer_norm")
def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """Over the last axes."""
    y = _standardized(x, tuple(range(x.rank - len(normalized_shape), x.rank)), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


@converter("aten.group_norm")
def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """x [N, C, ...]: over the channels of a group and all positions."""
    grouped = x.reshape((x.shape[0], num_groups, prod(x.shape[1:]) // num_groups))
    y = _standardized(grouped, (2,), eps).reshape(x.shape)
    y = y if weight is None else y * _over_axis_1(weight, x)
    return y if bias is None else y + _over_axis_1(bias, x)


def _standardized(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    """One division per sample, not per element."""
    centred = x - reduced("mean", x, axes, True)
    variance = reduced("mean", centred * centred, axes, True)
    return centred * (1.0 / call("sqrt", variance + eps))
