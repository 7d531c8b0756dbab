"""Layers, losses and optimisers."""

from teeny_embed.nn.batch_norm import BatchNorm1d, BatchNorm2d
from teeny_embed.nn.layers import Conv1d, Conv2d, Embedding, LayerNorm, Linear
from teeny_embed.nn.losses import bce, bce_with_logits, cross_entropy, huber, l1, mse
from teeny_embed.nn.module import Module, RandomModule, Sequential
from teeny_embed.nn.optimizers import SGD, Adam, AdamW, Optimizer, RMSprop, clip_by_norm, clip_by_value
from teeny_embed.nn.stateless import (
    AvgPool1d,
    AvgPool2d,
    Dropout,
    Flatten,
    GlobalAvgPool,
    MaxPool1d,
    MaxPool2d,
    ReLU,
    ReLU6,
    Sigmoid,
    Softmax,
    Tanh,
)

__all__ = [
    "SGD", "Adam", "AdamW", "AvgPool1d", "AvgPool2d", "BatchNorm1d", "BatchNorm2d", "Conv1d", "Conv2d",
    "Dropout", "Embedding", "Flatten", "GlobalAvgPool", "LayerNorm", "Linear", "MaxPool1d", "MaxPool2d",
    "Module", "Optimizer", "RMSprop", "RandomModule", "ReLU", "ReLU6", "Sequential", "Sigmoid", "Softmax",
    "Tanh", "bce", "bce_with_logits", "clip_by_norm", "clip_by_value", "cross_entropy", "huber", "l1", "mse",
]  # fmt: skip
