"""Functions of PyTorch that the tests import, one operator or a few each. Needs torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor
ROWS, IMAGE, LINE = (2, 3, 4), (2, 4, 7, 6), (2, 3, 9)
PLACES = torch.tensor([3, 0, 3])
TOKENS = torch.tensor([[1, 3], [0, 1]])
FILTER = torch.linspace(-1, 1, 4 * 2 * 3 * 3).reshape(4, 2, 3, 3)
MASK = torch.tensor([True, False, True, True])
BIAS = torch.tensor([0.0, -1.0, -2.0, -0.5])

FUNCTIONS: dict[str, tuple[tuple[int, ...], Callable[[Tensor], Any]]] = {
    # One element
    "arithmetic": (ROWS, lambda x: torch.add(x, x * 2, alpha=3) - torch.rsub(x, 1.5) / (x + 9) + 2 / (x + 9)),
    "functions": (ROWS, lambda x: (x.abs() + 0.5).log() + x.exp().sqrt() + x.sin() * x.cos() + x.erf()),
    "rounding": (ROWS, lambda x: x.floor() + 2 * x.ceil() + 3 * x.round() + 4 * x.sign()),
    "powers": (ROWS, lambda x: x**2 + x**3 + (x * x + 1) ** -0.5 + (x * x + 1) ** 1.5 + 2.0**x),
    "reciprocals": (ROWS, lambda x: (x + 9).reciprocal() + (x * x + 1).rsqrt()),
    "comparisons": (ROWS, lambda x: torch.where((x > 0) & (x < 1) | (x == 2), x, -x) + (x >= 1)),
    "logic": (ROWS, lambda x: x * (~(x > 0)).logical_and(x != 1) + x.logical_not().logical_or(x < 1) * x * 2),
    "clamp": (ROWS, lambda x: x.clamp(-0.5, 0.7) + x.clamp(min=0) + x.clamp(max=0.3)),
    "extremes": (ROWS, lambda x: torch.maximum(x, x.mean()) + torch.minimum(x, x * x)),
    "masks": (ROWS, lambda x: x.masked_fill(MASK, -2.0) + torch.tril(x)),
    "integers": (ROWS, lambda x: x * torch.arange(4) / 2 + (x > 0).sum(-1, keepdim=True) + x.int()),
    "relus": (ROWS, lambda x: F.relu(x) + F.relu6(x * 5) + F.leaky_relu(x, 0.2) + F.prelu(x, BIAS[1:])),
    "elus": (ROWS, lambda x: F.elu(x * 50, 0.7) + F.selu(x) + F.celu(x * 50, 1.3)),
    "sigmoids": (ROWS, lambda x: F.silu(x) + F.logsigmoid(x) + F.hardsigmoid(x) + F.hardswish(x)),
    "softplus": (ROWS, lambda x: F.softplus(x * 60) + F.softplus(x, 2.0) + F.mish(x)),
    "gelus": (ROWS, lambda x: F.gelu(x) + F.gelu(x, approximate="tanh")),
    "shrinks": (ROWS, lambda x: F.hardshrink(x) + F.softshrink(x) + F.tanhshrink(x) + F.softsign(x)),
    "glu": (ROWS, lambda x: F.glu(x)),
    # Axes
    "sums": (ROWS, lambda x: (x.sum(1), x.mean((0, 2)), x.sum(), x.mean(-1, keepdim=True))),
    "apart": (ROWS, lambda x: (x.sum((0, 2), keepdim=True), x.mean((0, 2)))),
    "largest": (ROWS, lambda x: (x.amax(1), x.amin((1, 2)), x.max(2, keepdim=True)[0], x.min())),
    "places": (ROWS, lambda x: (x.argmax(1), x.argmin(), x.max(1)[1], x.argmax(keepdim=True))),
    "variances": (ROWS, lambda x: (x.var(1), x.std((1, 2), correction=0), x.norm(), F.normalize(x, dim=1))),
    "softmax": (ROWS, lambda x: F.softmax(x, 1) + F.log_softmax(x, -1)),
    "layer_norm": (ROWS, lambda x: F.layer_norm(x, (3, 4), eps=1e-3) + F.rms_norm(x, (4,), eps=1e-3)),
    "group_norm": (IMAGE, lambda x: F.group_norm(x, 2, torch.arange(4.0), torch.ones(4))),
    "instance_norm": (IMAGE, lambda x: F.instance_norm(x)),
    "response_norm": (IMAGE, lambda x: F.local_response_norm(x, 3)),
    # Movement
    "shapes": (ROWS, lambda x: x.reshape(6, 4).t().unsqueeze(1).squeeze().view(2, 2, 6).transpose(0, 2)),
    "parts": (ROWS, lambda x: x[:, 1:, ::2] + x[1, 0, 1] + x.select(2, -1)[:, :2, None]),
    "splits": (ROWS, lambda x: (torch.cat([*x.split([1, 2], 1), x], 1), torch.stack(x.unbind(1), 2))),
    "chunks": (ROWS, lambda x: torch.cat([p * (i + 1) for i, p in enumerate(x.chunk(2, 2))], 2)),
    "repeats": (ROWS, lambda x: x.repeat(2, 1, 3) * x.mean(2, keepdim=True).expand(-1, -1, 12).tile(2, 1, 1)),
    "flips": (ROWS, lambda x: x.flip(1, 2) + x.roll((1, -1), (2, 1)) + x.roll(5)),
    "pads": (IMAGE, lambda x: F.pad(x, (1, 2, 0, -1), value=0.5)),
    "mirrors": (IMAGE, lambda x: (F.pad(x, (1, 2, 3, 0), "reflect"), F.pad(x, (1, 2, 1, 0), "replicate"))),
    "pixels": (IMAGE, lambda x: (F.pixel_shuffle(x, 2), F.interpolate(x, scale_factor=(2, 3)))),
    "stretch": (LINE, lambda x: F.interpolate(x, size=18)),
    "lookups": (ROWS, lambda x: (x[:, :, [2, 0]], x.index_select(2, PLACES), F.embedding(TOKENS, x.mT[0]))),
    "gathers": (ROWS, lambda x: x.gather(1, torch.tensor([[[0, 2, 1, 1]], [[1, 1, 0, 2]]]))),
    "made": (ROWS, lambda x: x * torch.tensor([[2.0], [0.5], [1]]) + torch.full_like(x, 3) - torch.arange(4)),
    # Contractions
    "convolution": (IMAGE, lambda x: F.conv2d(x, FILTER, BIAS, (2, 1), (1, 0), (1, 2), 2)),
    "transposed": (IMAGE, lambda x: F.conv_transpose2d(x, FILTER, BIAS, (2, 3), (1, 0), (1, 2), 2)),
    "one_dim": (LINE, lambda x: F.conv1d(x, torch.linspace(-1, 1, 30).reshape(2, 3, 5), stride=2, padding=2)),
    "three_dims": ((1, 1, 4, 4, 4), lambda x: F.max_pool3d(F.conv3d(x, torch.ones(2, 1, 2, 2, 2)), 2, 1)),
    "products": (ROWS, lambda x: (x @ x.mT, x[0, 0] @ x.mT, x @ x[0, 0], x.bmm(x.mT), x[0, 0] @ x[0, 1])),
    "additions": (ROWS, lambda x: torch.addmm(x[0, :, :3], x[0], x[1].T, beta=2, alpha=3) + x[0].mm(x[1].T)),
    "einsum": (ROWS, lambda x: torch.einsum("bij,bkj->ik", x, x)),
    "attention": ((2, 2, 3, 4), lambda x: F.scaled_dot_product_attention(x, x * 2, x + 1, is_causal=True)),
    "masked_attention": ((2, 2, 4, 3), lambda x: F.scaled_dot_product_attention(x, x, x, MASK.expand(4, 4))),
    # Windows
    "max_pools": (IMAGE, lambda x: (F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, (2, 3), dilation=(2, 1)))),
    "ceilings": (IMAGE, lambda x: (F.max_pool2d(x, 2, 3, 1, ceil_mode=True), F.avg_pool2d(x, 3, 2, 1, True))),
    "avg_pools": (IMAGE, lambda x: F.avg_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1, False, False)),
    "cubes": ((1, 2, 4, 4, 4), lambda x: F.adaptive_avg_pool3d(x, 2) + F.adaptive_max_pool3d(x, 2)),
    "divisors": (IMAGE, lambda x: F.avg_pool2d(x, 2, divisor_override=3)),
    "adaptive": (IMAGE, lambda x: (F.adaptive_avg_pool2d(x, (7, 3)), F.adaptive_max_pool2d(x, (1, 2)))),
    "line_pools": (LINE, lambda x: (F.max_pool1d(x, 2), F.avg_pool1d(x, 3, 2), F.adaptive_avg_pool1d(x, 3))),
    "one_sample": ((3, 6, 6), lambda x: F.avg_pool2d(F.max_pool2d(x, 2), 3)),
}  # fmt: skip


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def made(name: str) -> tuple[nn.Module, Tensor]:
    """The function as a module, and an operand."""
    shape, function = FUNCTIONS[name]
    torch.manual_seed(len(name))
    return Called(function), torch.randn(shape)


def values_and_gradient(
    module: nn.Module, x: Tensor, weights: list[Tensor]
) -> tuple[list[Tensor], Tensor | None]:
    """The results, and the gradient of the sum of their products with `weights`; None if there is none."""
    x = x.clone().requires_grad_()
    found = module(x)
    results = list(found) if isinstance(found, tuple) else [found]
    total = sum((r * w).sum() for r, w in zip(results, weights, strict=True) if r.requires_grad)
    if isinstance(total, int):
        return results, None
    total.backward()
    return [r.detach() for r in results], x.grad
