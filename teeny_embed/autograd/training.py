"""A training step: net, loss, gradients and updates traced into one graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from teeny_embed.autograd.reverse import grad
from teeny_embed.errors import GraphError, ShapeError
from teeny_embed.graph.canonicalize import simplify_forward
from teeny_embed.graph.deferred import DeferredGraph
from teeny_embed.graph.node import VARIABLE, Graph, Variable, locating, name_scope, topological, user_line
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
            if prediction is None:
                hint = "return a Tensor: has forward a return?"
                raise GraphError("train_step: the net returned None", user_line(), hint)
            with name_scope("loss"):
                value = loss(prediction, target)
        with locating("train_step"):
            _check_loss(value)
        value = simplify_forward(value)
        check("finite", value)
        with locating("train_step"):
            parameters = trainable(value)
        gradients: Sequence[Tensor] = grad(value, parameters)
        optimizer(parameters, clip(gradients) if clip else gradients, rate)
        return {"loss": value}

    with locating("train_step"):
        _check_arguments(net, loss, optimizer, clip, inputs)
    return trace(step, *inputs, input("learning_rate", ()))


def _check_arguments(net: Any, loss: Any, optimizer: Any, clip: Any, inputs: Sequence[Any]) -> None:
    for name, value in (("net", net), ("loss", loss), ("optimizer", optimizer), ("clip", clip or callable)):
        if not callable(value) or isinstance(value, type):
            made = f"a class: make one, {value.__name__}()" if isinstance(value, type) else f"{value!r}"
            hint = "train_step(net, nn.cross_entropy, nn.SGD(), image, label)"
            raise GraphError(f"the {name} is {made}", hint=hint)
    if len(inputs) < 2:
        hint = "give the inputs of the net, then the target"
        raise GraphError(f"{len(inputs)} inputs are too few", hint=hint)


def _check_loss(value: Any) -> None:
    if not isinstance(value, Tensor) or value.shape != () or value.dtype != "float32":
        found = value.type if isinstance(value, Tensor) else repr(value)
        raise ShapeError(f"the loss is {found}, expected float32[]", hint="take the mean: loss(...).mean()")


def trainable(value: Tensor) -> list[Variable]:
    """The trainable parameters that `value` depends on, in order of first use."""
    read = [n.attributes["variable"] for n in topological((value.node,)) if n.op is VARIABLE]
    found = [v for v in dict.fromkeys(read) if v.kind == "parameter" and v.trainable]
    if not found:
        hint = "they are frozen, or the net has none"
        raise GraphError("the loss depends on no trainable parameter", hint=hint)
    return found
