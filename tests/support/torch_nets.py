"""Nets of PyTorch that the tests import, with inputs and labels. Needs torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor
CLASSES = 3


class Residual(nn.Module):
    """A convolutional net with a skip connection, its normalisation and pools; functions beside modules."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.ReLU6(), nn.Conv2d(4, 4, 1))
        self.head = nn.Linear(4 * 4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        x = F.max_pool2d(x + self.body(x), 2)
        return self.head(torch.flatten(x, 1))


class Signal(nn.Module):
    """One spatial dim: convolutions, a transposed one, pools, an average over time."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv1d(2, 4, 5, stride=2, padding=2)
        self.norm = nn.GroupNorm(2, 4)
        self.up = nn.ConvTranspose1d(4, 4, 4, stride=2, padding=1)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool1d(F.gelu(self.norm(self.down(x))), 2)
        return self.head(F.leaky_relu(self.up(x)).mean(dim=2))


class Recurrent(nn.Module):
    """An LSTM in both directions, then a GRU; the last state decides."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(8, 5, num_layers=2, batch_first=True)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        sequence, _ = self.lstm(x)
        _, last = self.gru(sequence)
        return self.head(last[-1])


class Encoder(nn.Module):
    """Tokens, positions, a transformer's encoder of two layers, and the mean over the sequence."""

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.register_buffer("positions", torch.randn(5, 8) * 0.1)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
        x = self.encoder(self.table(tokens) + self.positions, mask=mask, is_causal=True)
        return self.head(x.mean(dim=1))


class Tied(nn.Module):
    """One matrix under two names, and a layer that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.frozen, self.decode = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.decode.weight = self.encode.weight
        self.frozen.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.frozen(torch.sigmoid(self.encode(x))))
        return torch.log_softmax(self.decode(hidden), dim=-1)[:, :CLASSES]


@dataclass(frozen=True)
class Case:
    """A net with a batch of inputs for it. `tolerance` is for what ten steps learn."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], Tensor]
    tolerance: float = 1e-5


CASES = {
    "residual": Case(Residual, lambda: torch.randn(4, 2, 8, 8), tolerance=1e-4),
    "signal": Case(Signal, lambda: torch.randn(4, 2, 16)),
    "recurrent": Case(Recurrent, lambda: torch.randn(4, 3, 3)),
    "encoder": Case(Encoder, lambda: torch.randint(0, 11, (4, 5)), tolerance=1e-4),
    "tied": Case(Tied, lambda: torch.randn(4, 4)),
}


def made(name: str) -> tuple[nn.Module, Any, Tensor]:
    """The net, a batch of inputs and their labels; from one seed."""
    torch.manual_seed(3)
    case = CASES[name]
    net, x = case.make(), case.inputs()
    return net, x, torch.randint(0, CLASSES, (len(x),))


def trained(
    net: nn.Module, x: Tensor, label: Tensor, steps: int, rate: float, momentum: float
) -> list[float]:
    """Trains `net` by torch: the loss before each step."""
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], rate, momentum)
    net.train()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), label)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# ---- Nets of the shared training vectors, under their names ---------------------------------------------


class Lenet5(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.f1, self.f2, self.f3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2).flatten(1)
        return self.f3(F.relu(self.f2(F.relu(self.f1(x)))))


class Depthwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.bn = nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(4)
        self.dw, self.pw = nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.Conv2d(4, 8, 1)
        self.f = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.pw(self.dw(F.relu6(self.bn(self.c1(x))))))
        return self.f(x.mean((2, 3)))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l, self.f = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.f(self.l(x)[0][:, -1])


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(x)))


VECTORS: dict[str, Callable[[], nn.Module]] = {
    "mlp_digits": Mlp, "mlp_digits_bs1": Mlp, "lenet5_mnist": Lenet5, "bn_dwconv_mnist": Depthwise,
    "lstm_basicmotions": Lstm,
}  # fmt: skip
