"""The nets that the tests train: one of each kind that breaks something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from support.data import Digits
from teeny_embed import nn
from teeny_embed.api import Program
from teeny_embed.autograd.training import Clip, Loss, train_step
from teeny_embed.graph.node import Graph
from teeny_embed.graph.tensor import Tensor, call, input, read, trace
from teeny_embed.nn.module import filled

Feed = dict[str, Any]

OPTIMIZERS: dict[str, tuple[Callable[[], nn.Optimizer], float]] = {
    "sgd": (nn.SGD, 0.05),
    "momentum": (lambda: nn.SGD(momentum=0.9), 0.02),
    "adam": (nn.Adam, 1e-3),
}
"""How each is made, and its learning rate."""


# ---- Tasks: placeholders for a batch, and what is fed to them -----------------------------------------


def classify(*shape: int) -> tuple[Callable[[int], tuple[Tensor, ...]], Callable[..., Feed]]:
    """Images of `shape` and their labels; the label of a batch of one has rank 0."""
    size = 8 if len(shape) == 1 else shape[0]

    def inputs(batch: int) -> tuple[Tensor, ...]:
        return input("image", (batch, *shape)), input("label", () if batch == 1 else (batch,), "int32")

    def feed(digits: Digits, rows: slice) -> Feed:
        labels = digits.labels[rows]
        images = digits.images[size][rows].reshape(-1, *shape)
        return {"image": images, "label": labels[0] if len(labels) == 1 else labels}

    return inputs, feed


def reconstruct(*shape: int) -> tuple[Callable[[int], tuple[Tensor, ...]], Callable[..., Feed]]:
    """Images of 8x8 pixels, and the same as the target."""

    def inputs(batch: int) -> tuple[Tensor, ...]:
        return input("image", (batch, *shape)), input("target", (batch, *shape))

    def feed(digits: Digits, rows: slice) -> Feed:
        images = digits.images[8][rows].reshape(-1, *shape)
        return {"image": images, "target": images}

    return inputs, feed


def continue_sequence() -> tuple[Callable[[int], tuple[Tensor, ...]], Callable[..., Feed]]:
    """A label, and the label of the digit behind it."""

    def inputs(batch: int) -> tuple[Tensor, ...]:
        return input("digit", (batch,), "int32"), input("following", (batch,), "int32")

    def feed(digits: Digits, rows: slice) -> Feed:
        return {"digit": digits.labels[rows], "following": digits.labels[rows.start + 1 : rows.stop + 1]}

    return inputs, feed


# ---- Nets ---------------------------------------------------------------------------------------------


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def lenet5() -> nn.Module:
    """LeCun, Bottou, Bengio and Haffner, 1998, with max pools and ReLU: 61,706 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def normalized() -> nn.Module:
    """Statistics of the batch, a depthwise convolution and random numbers."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.ReLU6(), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(4 * 6 * 6, 10),
    )  # fmt: skip


def strided() -> nn.Module:
    """A convolution with a stride and a mean pool."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(36, 10)
    )


class Autoencoder(nn.Module):
    """The decoder is the transposed encoder: two uses of one matrix, and two gradients."""

    def __init__(self) -> None:
        self.encoder = nn.Linear(64, 16)
        self.bias = filled(64, value=0.0)

    def forward(self, x: Tensor) -> Tensor:
        return call("sigmoid", self.encoder(x)) @ read(self.encoder.weight) + read(self.bias)


class NextDigit(nn.Module):
    """The table that digits are looked up in also gives the logits."""

    def __init__(self) -> None:
        self.embedding = nn.Embedding(10, 8)
        self.hidden = nn.Linear(8, 8)

    def forward(self, digit: Tensor) -> Tensor:
        hidden = call("relu", self.hidden(self.embedding(digit)))
        return hidden @ read(self.embedding.weight).transpose(1, 0)


@dataclass(frozen=True)
class Net:
    """How a net is made, what goes in, and what it learns."""

    make: Callable[[], nn.Module]
    task: tuple[Callable[[int], tuple[Tensor, ...]], Callable[..., Feed]]
    loss: Loss = nn.cross_entropy
    clip: Clip | None = None


NETS = {
    "mlp": Net(mlp, classify(64)),
    "lenet5": Net(lenet5, classify(28, 28, 1)),
    "normalized": Net(normalized, classify(12, 12, 1)),
    "autoencoder": Net(Autoencoder, reconstruct(64), nn.mse),
    "next_digit": Net(NextDigit, continue_sequence()),
    "clipped": Net(strided, classify(12, 12, 1), clip=nn.clip_by_norm(0.55)),
}


# ---- Cases --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A net, an optimizer and a batch size: one training program."""

    net: str
    optimizer: str
    batch: int

    def __str__(self) -> str:
        return f"{self.net}-{self.optimizer}-{self.batch}"

    def graphs(self) -> dict[str, Graph]:
        """Inference and training as traced; weights are those of seed 0."""
        net = NETS[self.net]
        module, inputs = net.make(), net.task[0](self.batch)
        optimizer = OPTIMIZERS[self.optimizer][0]()
        step = train_step(module, net.loss, optimizer, *inputs, clip=net.clip)
        return {"infer": trace(module, *inputs[:-1]), "train_step": step}

    def program(self, name: str = "net") -> Program:
        """What is built."""
        return Program(name, **self.graphs())

    def feed(self, digits: Digits, step: int) -> Feed:
        """Inputs of training step number `step`."""
        rows = slice(step * self.batch, (step + 1) * self.batch)
        rate = np.float32(OPTIMIZERS[self.optimizer][1])
        return {**NETS[self.net].task[1](digits, rows), "learning_rate": rate}


ALL_CASES = [Case(net, optimizer, batch) for net in NETS for optimizer in OPTIMIZERS for batch in (1, 8)]

# Every net with every optimizer, at alternating batch sizes.
CASES = [
    Case(net, optimizer, (1, 8)[(i + j) % 2])
    for i, net in enumerate(NETS)
    for j, optimizer in enumerate(OPTIMIZERS)
]
