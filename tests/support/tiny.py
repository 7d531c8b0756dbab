"""The model of the golden files. They state its line numbers: change nothing here without need."""

from __future__ import annotations

from teeny_embed import nn
from teeny_embed.api import Program
from teeny_embed.autograd.training import train_step
from teeny_embed.graph.tensor import input, trace


def tiny() -> Program:
    """A convolution, a pool and a layer for two classes, on images of 4x4 pixels."""
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2)
    )
    image, label = input("image", (1, 4, 4, 1)), input("label", (), "int32")
    step = train_step(net, nn.cross_entropy, nn.SGD(momentum=0.9), image, label)
    return Program("tiny", infer=trace(net, image), train_step=step)
