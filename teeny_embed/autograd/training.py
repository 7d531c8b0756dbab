"""A training step: net, loss, gradients and updates traced into one graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from teeny_embed.autograd.reverse import grad
from teeny_embed.errors import GraphError
from teeny_embed.graph.canonicalize import simplify_forward
from teeny_embed.graph.deferred import DeferredGraph
from teeny_embed.graph.node import VARIABLE, Graph, Variable, name_scope, topological
from teeny_embed.graph.tensor import Tensor, check, input, trace

Loss = Callable[[Tensor, Tensor], Tensor]
"""loss(prediction, target) -> rank 0."""
Optimizer = Callable[[Sequence[Variable], Sequence[Tensor], Tensor], None]
"""optimizer(parameters, gradients, learning rate) assigns to the parameters and to its own state."""
Clip = Callable[[Sequence[Tensor]], Sequence[Tensor]]
"""clip(gradients) -> gradients."""

_training: ContextVar[bool] = ContextVar("training", default=False)


def is_training() -> bool:
    """Whether layers that differ (dropout, batch normalisation) shall behave as in training."""
    return _training.get()


@contextmanager
def training() -> Iterator[None]:
    """What is traced inside is traced in training mode."""
    token = _training.set(True)
    try:
        yield
    finally:
        _training.reset(token)


def train_step(
    net: Callable[..., Tensor], loss: Loss, optimizer: Optimizer, *inputs: Tensor, clip: Clip | None = None
) -> Graph | DeferredGraph:
    """One step on one batch: `loss(net(*inputs[:-1]), inputs[-1])` and the update of what it depends on.

    The graph has a further input "learning_rate" (float32, rank 0: finite and not negative) and the output
    "loss" (float32, rank 0: before the update). A loss that is not finite updates nothing. With inputs that
    have unbound dims the step is traced when they are bound.
    """

    def step(*values: Tensor) -> dict[str, Tensor]:
        *data, target, rate = values
        check("rate", rate)
        with training():
            prediction = net(*data)
            with name_scope("loss"):
                value = loss(prediction, target)
        value = simplify_forward(value)
        check("finite", value)
        parameters = trainable(value)
        gradients: Sequence[Tensor] = grad(value, parameters)
        optimizer(parameters, clip(gradients) if clip else gradients, rate)
        return {"loss": value}

    return trace(step, *inputs, input("learning_rate", ()))


def trainable(value: Tensor) -> list[Variable]:
    """The trainable parameters that `value` depends on, in order of first use."""
    read = [n.attributes["variable"] for n in topological((value.node,)) if n.op is VARIABLE]
    found = [v for v in dict.fromkeys(read) if v.kind == "parameter" and v.trainable]
    if not found:
        raise GraphError("train_step: the loss depends on no trainable parameter")
    return found
