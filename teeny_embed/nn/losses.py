"""Losses. Each is the mean over all samples (and elements), float32 of rank 0."""

from __future__ import annotations

from math import inf, prod

from teeny_embed.errors import ShapeError
from teeny_embed.graph.node import locating, user_line
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, as_tensor, binary, call
from teeny_embed.nn.checks import within


def cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """-log softmax(logits)[label], nats. Logits [N, ..., classes], label int32 [N, ...], or rank 0 if N = 1.

    A label that is an input is refused at run time unless 0 <= label < classes.
    """
    if label.shape == () and prod(logits.shape[:-1]) == 1:
        label = label.reshape(logits.shape[:-1])
    return call("cross_entropy", logits, label).mean()


def _check_target(prediction: Tensor, target: Tensor) -> None:
    """Broadcasting would be a mistake here: [N, 1] with [N] compares every sample with every other."""
    given = as_tensor(target).type
    if given != prediction.type:
        hint = "give the target the shape and dtype of what the net computes"
        raise ShapeError(f"target {given} for a prediction {prediction.type}", user_line(), hint)


def _difference(prediction: Tensor, target: Tensor) -> Tensor:
    _check_target(prediction, target)
    return prediction - target


def mse(prediction: Tensor, target: Tensor) -> Tensor:
    """Mean of (prediction - target)^2."""
    error = _difference(prediction, target)
    return (error * error).mean()


def l1(prediction: Tensor, target: Tensor) -> Tensor:
    """Mean of |prediction - target|."""
    return call("abs", _difference(prediction, target)).mean()


def huber(prediction: Tensor, target: Tensor, delta: float = 1.0) -> Tensor:
    """Mean of error^2 / 2 where |error| < delta, else delta (|error| - delta / 2)."""
    with locating("huber"):
        within(0, inf, delta=delta)
    error = _difference(prediction, target)
    size = call("abs", error)
    return where(size < delta, error * error * 0.5, (size - 0.5 * delta) * delta).mean()


def bce(probability: Tensor, target: Tensor) -> Tensor:
    """Binary cross entropy, nats. Probabilities are clipped to [1e-7, 1 - 2^-23], without gradient beyond."""
    _check_target(probability, target)
    p = binary("minimum", binary("maximum", probability, 1e-7), 1 - 2.0**-23)
    return (-(target * call("log", p) + (1.0 - target) * call("log", 1.0 - p))).mean()


def bce_with_logits(logits: Tensor, target: Tensor) -> Tensor:
    """Binary cross entropy of sigmoid(logits), nats; without overflow for any finite logit."""
    _check_target(logits, target)
    positive = logits > 0.0
    minus_size = where(positive, -logits, logits)  # not -|x|: at 0 the gradient needs the slope 1
    softplus = where(positive, logits, 0.0) + call("log", 1.0 + call("exp", minus_size))
    return (softplus - logits * target).mean()
