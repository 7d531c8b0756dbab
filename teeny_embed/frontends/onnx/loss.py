"""Losses over classes. Scores are [N, classes, ...], labels [N, ...]."""

from __future__ import annotations

from teeny_embed.frontends.onnx.model import Operation
from teeny_embed.frontends.onnx.registry import converter
from teeny_embed.graph.layout import channels_first, channels_last
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.ops.movement import is_index
from teeny_embed.graph.tensor import Tensor, call


@converter("NegativeLogLikelihoodLoss")
def negative_log_likelihood(op: Operation) -> Tensor:
    return _loss(op, channels_last(op[0]))


@converter("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(op: Operation) -> list[Tensor]:
    """The loss, and the logarithms of the probabilities."""
    log_probability = call("log_softmax", channels_last(op[0]), axis=-1)
    return [_loss(op, log_probability), channels_first(log_probability)]


def _loss(op: Operation, log_probability: Tensor) -> Tensor:
    label, weight = op[1], op.get(2)
    hit = is_index(label, log_probability.shape[-1]).astype("float32")
    if (ignored := op.attribute("ignore_index")) is not None:
        hit = where((label == ignored).reshape((*label.shape, 1)), 0.0, hit)
    count = hit if weight is None else hit * weight
    each = -call("sum", count * log_probability, axes=(-1,))
    reduction = op.attribute("reduction", "mean")
    if reduction == "none":
        return each
    return each.sum() if reduction == "sum" else each.sum() / count.sum()
