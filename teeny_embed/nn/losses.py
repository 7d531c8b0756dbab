"""Losses, after torch's formulas (torch.nn, version 2). Each is the mean over all samples (and elements),
float32 of rank 0."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log, pi, prod

import numpy as np

from teeny_embed.errors import AttributeValueError, ShapeError
from teeny_embed.graph.node import locating, user_line
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.ops.movement import is_index
from teeny_embed.graph.tensor import Tensor, as_tensor, binary, call
from teeny_embed.nn.checks import within

Weights = Sequence[float] | None


def cross_entropy(
    logits: Tensor,
    label: Tensor,
    *,
    weight: Weights = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """-log softmax(logits)[label], nats. Logits [N, ..., classes], label int32 [N, ...], or rank 0 if N = 1.

    A label that is an input is refused at run time unless 0 <= label < classes; with `ignore_index` none is,
    and samples of that label (or of none of the classes) do not count. `weight` has a factor for each class,
    by which the mean is weighted, too. `label_smoothing` in [0, 1) is what all classes share of a label.
    """
    if label.shape == () and prod(logits.shape[:-1]) == 1:
        label = label.reshape(logits.shape[:-1])
    with locating("cross_entropy"):
        within(0, 1, label_smoothing=label_smoothing)
    if weight is None and ignore_index is None and not label_smoothing:
        return call("cross_entropy", logits, label).mean()
    return _of_classes(call("log_softmax", logits), label, weight, ignore_index, label_smoothing)


def nll(
    log_probability: Tensor, label: Tensor, *, weight: Weights = None, ignore_index: int | None = None
) -> Tensor:
    """-log_probability[label], nats; shapes, `weight` and `ignore_index` as for `cross_entropy`."""
    if weight is None and ignore_index is None:
        return -call("pick", log_probability, label).mean()
    return _of_classes(log_probability, label, weight, ignore_index, 0.0)


def _of_classes(
    log_probability: Tensor, label: Tensor, weight: Weights, ignore_index: int | None, smoothing: float
) -> Tensor:
    classes = log_probability.shape[-1]
    factors = as_tensor(np.ones(classes, np.float32) if weight is None else np.asarray(weight, np.float32))
    if factors.shape != (classes,):
        raise ShapeError(
            f"weight {factors.type} for {classes} classes", user_line(), "one number for each class"
        )
    hit = is_index(label, classes).astype("float32")
    if ignore_index is not None:
        hit = where((label == ignore_index).reshape((*label.shape, 1)), 0.0, hit)
    count = hit * factors
    loss = -(count * log_probability).sum()
    if smoothing:
        counts = hit.sum(-1, keepdims=True)  # 0 for a sample that does not
        loss = loss * (1.0 - smoothing) - (counts * factors * log_probability).sum() * (smoothing / classes)
    return loss / count.sum()


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


def smooth_l1(prediction: Tensor, target: Tensor, beta: float = 1.0) -> Tensor:
    """Mean of error^2 / (2 beta) where |error| < beta, else |error| - beta / 2."""
    return huber(prediction, target, beta) * (1.0 / beta)


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
    return (_softplus(logits) - logits * target).mean()


def _softplus(x: Tensor) -> Tensor:
    """ln(1 + e^x), without overflow for any finite x."""
    positive = x > 0.0
    minus_size = where(positive, -x, x)  # not -|x|: at 0 the gradient needs the slope 1
    return where(positive, x, 0.0) + call("log", 1.0 + call("exp", minus_size))


def _at_least_0(x: Tensor) -> Tensor:
    return call("relu", x)


# ---- Distributions ------------------------------------------------------------------------------------


def kl_div(log_prediction: Tensor, target: Tensor, log_target: bool = False) -> Tensor:
    """Mean over all elements of target (ln target - log_prediction), nats, 0 where the target is 0.

    The target is a probability, or with `log_target` its logarithm.
    """
    _check_target(log_prediction, target)
    if log_target:
        return (call("exp", target) * (target - log_prediction)).mean()
    log = call("log", where(target > 0.0, target, 1.0))
    return (target * (log - log_prediction)).mean()


def poisson_nll(
    prediction: Tensor, target: Tensor, log_input: bool = True, full: bool = False, epsilon: float = 1e-8
) -> Tensor:
    """Mean of rate - target ln rate, target a count; the prediction is ln rate, without `log_input` the rate.

    `full` adds Stirling's approximation of ln target! where the target is above 1.
    """
    _check_target(prediction, target)
    if log_input:
        loss = call("exp", prediction) - target * prediction
    else:
        loss = prediction - target * call("log", prediction + epsilon)
    if full:
        large = where(target > 1.0, target, 1.0)
        stirling = target * call("log", large) - target + 0.5 * call("log", large * (2.0 * pi))
        loss = loss + where(target > 1.0, stirling, 0.0)
    return loss.mean()


def gaussian_nll(
    prediction: Tensor, target: Tensor, variance: Tensor, full: bool = False, epsilon: float = 1e-6
) -> Tensor:
    """Mean of (ln v + error^2 / v) / 2, v the variance or epsilon if that is larger.

    `full` adds ln(2 pi) / 2.
    """
    error = _difference(prediction, target)
    v = binary("maximum", variance, epsilon)
    loss = (0.5 * (call("log", v) + error * error / v)).mean()
    return loss + 0.5 * log(2.0 * pi) if full else loss


# ---- Margins ------------------------------------------------------------------------------------------
# Signs are 1 or -1, float32.


def soft_margin(prediction: Tensor, sign: Tensor) -> Tensor:
    """Mean of ln(1 + e^(-sign prediction))."""
    _check_target(prediction, sign)
    return _softplus(-(sign * prediction)).mean()


def multilabel_soft_margin(logits: Tensor, target: Tensor, weight: Weights = None) -> Tensor:
    """Binary cross entropy of classes, target 0 or 1 [N, classes]; `weight` has a factor for each class."""
    _check_target(logits, target)
    loss = _softplus(logits) - logits * target
    return (loss if weight is None else loss * np.asarray(weight, np.float32)).mean()


def hinge_embedding(distance: Tensor, sign: Tensor, margin: float = 1.0) -> Tensor:
    """Mean of the distance where the sign is 1, else max(0, margin - distance)."""
    _check_target(distance, sign)
    return where(sign > 0.0, distance, _at_least_0(margin - distance)).mean()


def margin_ranking(first: Tensor, second: Tensor, sign: Tensor, margin: float = 0.0) -> Tensor:
    """Mean of max(0, margin - sign (first - second)): the first is to be larger where the sign is 1."""
    _check_target(first, sign)
    return _at_least_0(margin - sign * _difference(first, second)).mean()


def multi_margin(
    scores: Tensor, label: Tensor, power: int = 1, margin: float = 1.0, weight: Weights = None
) -> Tensor:
    """Mean over samples and classes i other than label of max(0, margin - scores[label] + scores[i])^power.

    Scores [N, classes], label int32 [N]; power is 1 or 2; `weight` has a factor for each label.
    """
    if power not in (1, 2):
        raise AttributeValueError(f"power = {power!r}", user_line(), "power: 1 or 2")
    excess = _at_least_0(margin - call("pick", scores, label).reshape((-1, 1)) + scores)
    loss = where(is_index(label, scores.shape[-1]), 0.0, excess if power == 1 else excess * excess)
    if weight is not None:
        loss = loss * call("take", as_tensor(np.asarray(weight, np.float32)), label).reshape((-1, 1))
    return loss.mean()


def multilabel_margin(scores: Tensor, labels: Tensor) -> Tensor:
    """Sum over labels j and other classes i of max(0, 1 - scores[j] + scores[i]) / classes, mean of samples.

    Scores [N, classes], labels int32 [N, classes]: those before the first negative one count.
    """
    count, classes = scores.shape
    negatives = (labels < 0).astype("float32") @ np.triu(np.ones((classes, classes), np.float32))
    hit = where(
        (negatives < 0.5).reshape((count, classes, 1)), is_index(labels, classes).astype("float32"), 0.0
    )
    of_label = (hit * scores.reshape((count, 1, classes))).sum(-1, keepdims=True)
    excess = _at_least_0(1.0 - of_label + scores.reshape((count, 1, classes)))
    others = 1.0 - call("max", hit, axes=(1,), keepdims=True)
    return (hit.sum(-1, keepdims=True) * others * excess).sum() * (1.0 / (count * classes))


def cosine_embedding(first: Tensor, second: Tensor, sign: Tensor, margin: float = 0.0) -> Tensor:
    """Mean of 1 - c where the sign is 1, else max(0, c - margin), c the cosine of rows. [N, D], sign [N]."""
    _check_target(first, second)
    product, *squares = (
        call("sum", a * b, axes=(-1,), order="reduce")
        for a, b in ((first, second), (first, first), (second, second))
    )
    cosine = product / call("sqrt", (squares[0] + 1e-12) * (squares[1] + 1e-12))
    return where(sign > 0.0, 1.0 - cosine, _at_least_0(cosine - margin)).mean()


def triplet_margin(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0) -> Tensor:
    """Mean of max(0, |anchor - positive| - |anchor - negative| + margin), Euclidean over the last axis.

    1e-6 is added to each difference, as torch does: the distance then has a gradient where it is 0.
    """

    def distance(other: Tensor) -> Tensor:
        error = _difference(anchor, other) + 1e-6
        return call("sqrt", call("sum", error * error, axes=(-1,), order="reduce"))

    return _at_least_0(distance(positive) - distance(negative) + margin).mean()
