"""Nets of PyTorch with something odd in each. Needs torch."""

from __future__ import annotations

import torch
from torch import nn

Tensor = torch.Tensor


class _Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - torch.median(x)


class Unsupported(nn.Module):
    """Two operators that are not supported, in two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = _Inner()

    def forward(self, x: Tensor) -> Tensor:
        return torch.cumprod(self.inner(x), dim=1)


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Stateful(nn.Module):
    """Adds up its inputs in a buffer, in evaluation as well."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x)
        return self.total * 2.0


class Several(nn.Module):
    """Arguments of several kinds, and a dict of results."""

    def forward(self, pair: tuple[Tensor, Tensor], factor: int) -> dict[str, Tensor]:
        return {"sum": pair[0] + pair[1] * factor, "first": pair[0]}


class Dropping(nn.Module):
    """Two layers of dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1000))
        self.drop = nn.Dropout(0.25)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * self.weight
        return self.drop(y), self.drop(y)
