"""Losses and their gradients: against formulas written out in NumPy, and against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from support.data import Array
from teeny_embed import nn
from teeny_embed.errors import AttributeValueError, ShapeError

RNG = np.random.default_rng(5)
N, C = 4, 5
X, Y, Z = (RNG.standard_normal((N, C)).astype(np.float32) for _ in range(3))
P, Q = (1 / (1 + np.exp(-v)) for v in (X, Y))
LABEL = np.array([1, 4, 0, 1], np.int32)
LABELS = np.array([[1, 3, -1, 0, 2], [-1, 0, 1, 2, 3], [4, 0, 2, 3, 1], [2, 2, -1, -1, -1]], np.int32)
SIGNS = np.where(Y > 0, 1, -1).astype(np.float32)
WEIGHT = [0.5, 1.0, 2.0, 0.0, 1.5]


def log_softmax(x: Array) -> Array:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def weighted(logp: Array, label: Array, weight: Array, smoothing: float = 0.0) -> float:
    """Over the samples whose label is a class."""
    rows = [(row, y) for row, y in zip(logp, label, strict=True) if 0 <= y < C]
    sums = [(1 - smoothing) * weight[y] * row[y] + smoothing / C * (weight * row).sum() for row, y in rows]
    return float(-np.sum(sums) / np.sum([weight[y] for _, y in rows]))


def multilabel_margin(x: Array, labels: Array) -> float:
    total = 0.0
    for row, ys in zip(x, labels, strict=True):
        own = [int(y) for y in ys[: next((i for i, y in enumerate(ys) if y < 0), C)]]
        total += sum(max(0, 1 - row[j] + row[i]) for j in own for i in range(C) if i not in own)
    return total / (C * len(x))


def row_norm(x: Array) -> Array:
    return np.sqrt((x * x).sum(-1))


COSINE = (X * Y).sum(-1) / (row_norm(X) * row_norm(Y))
IGNORED = np.array([1, -100, 0, 2], np.int32)
CASES: dict[str, tuple[Callable[..., Any], tuple[Array, ...], Any]] = {
    "nll": (nn.nll, (log_softmax(X), LABEL), weighted(log_softmax(X), LABEL, np.ones(C))),
    "nll, weights": (
        lambda x, y: nn.nll(x, y, weight=WEIGHT), (log_softmax(X), LABEL),
        weighted(log_softmax(X), LABEL, np.array(WEIGHT)),
    ),
    "cross entropy, weights": (
        lambda x, y: nn.cross_entropy(x, y, weight=WEIGHT), (X, LABEL),
        weighted(log_softmax(X), LABEL, np.array(WEIGHT)),
    ),
    "cross entropy, ignored": (
        lambda x, y: nn.cross_entropy(x, y, ignore_index=-100), (X, IGNORED),
        weighted(log_softmax(X), IGNORED, np.ones(C)),
    ),
    "cross entropy, a class ignored": (
        lambda x, y: nn.cross_entropy(x, y, ignore_index=1), (X, LABEL),
        weighted(log_softmax(X), np.where(LABEL == 1, -1, LABEL), np.ones(C)),
    ),
    "cross entropy, smoothed": (
        lambda x, y: nn.cross_entropy(x, y, weight=WEIGHT, ignore_index=-100, label_smoothing=0.2),
        (X, IGNORED),
        weighted(log_softmax(X), IGNORED, np.array(WEIGHT), 0.2),
    ),
    "smooth l1": (
        lambda x, y: nn.smooth_l1(x, y, 0.5), (X, Y),
        np.where(abs(X - Y) < 0.5, (X - Y) ** 2, abs(X - Y) - 0.25).mean(),
    ),
    "kl": (nn.kl_div, (log_softmax(X), Q), (Q * (np.log(Q) - log_softmax(X))).mean()),
    "kl, log target": (
        lambda x, y: nn.kl_div(x, y, log_target=True), (log_softmax(X), Y),
        (np.exp(Y) * (Y - log_softmax(X))).mean(),
    ),
    "poisson": (nn.poisson_nll, (X, Q), (np.exp(X) - Q * X).mean()),
    "poisson, rates, full": (
        lambda x, y: nn.poisson_nll(x, y, log_input=False, full=True), (P, 4 * Q),
        (P - 4 * Q * np.log(P)
         + np.where(4 * Q > 1, 4 * Q * np.log(4 * Q) - 4 * Q + np.log(2 * np.pi * 4 * Q) / 2, 0)).mean(),
    ),
    "gaussian, full": (
        lambda x, y, v: nn.gaussian_nll(x, y, v, full=True), (X, Y, P),
        (np.log(P) / 2 + (X - Y) ** 2 / P / 2 + np.log(2 * np.pi) / 2).mean(),
    ),
    "soft margin": (nn.soft_margin, (X, SIGNS), np.log1p(np.exp(-SIGNS * X)).mean()),
    "multilabel soft margin": (
        lambda x, y: nn.multilabel_soft_margin(x, y, WEIGHT), (X, (SIGNS + 1) / 2),
        (np.log1p(np.exp(-SIGNS * X)) * WEIGHT).mean(),
    ),
    "hinge embedding": (
        nn.hinge_embedding, (X, SIGNS), np.where(SIGNS > 0, X, np.maximum(0, 1 - X)).mean(),
    ),
    "margin ranking": (
        lambda a, b, y: nn.margin_ranking(a, b, y, 0.3), (X, Z, SIGNS),
        np.maximum(0, 0.3 - SIGNS * (X - Z)).mean(),
    ),
    "multi margin": (
        nn.multi_margin, (X, LABEL),
        np.mean([
            [max(0, 1 - r[y] + r[i]) * (i != y) for i in range(C)] for r, y in zip(X, LABEL, strict=True)
        ]),
    ),
    "multi margin, squares, weights": (
        lambda x, y: nn.multi_margin(x, y, 2, 0.5, WEIGHT), (X, LABEL),
        np.mean([
            [WEIGHT[y] * max(0, 0.5 - r[y] + r[i]) ** 2 * (i != y) for i in range(C)]
            for r, y in zip(X, LABEL, strict=True)
        ]),
    ),
    "multilabel margin": (nn.multilabel_margin, (X, LABELS), multilabel_margin(X, LABELS)),
    "cosine embedding": (
        lambda a, b, y: nn.cosine_embedding(a, b, y, 0.1), (X, Y, SIGNS[:, 0]),
        np.where(SIGNS[:, 0] > 0, 1 - COSINE, np.maximum(0, COSINE - 0.1)).mean(),
    ),
    "triplet margin": (
        nn.triplet_margin, (X, Y, Z),
        np.maximum(0, row_norm(X - Y + 1e-6) - row_norm(X - Z + 1e-6) + 1).mean(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_loss_is_its_formula(name: str) -> None:
    loss, arrays, expected = CASES[name]
    found = loss(*(te.constant(a.astype(a.dtype if a.dtype == np.int32 else np.float32)) for a in arrays))
    assert found.shape == () and float(found) == pytest.approx(float(expected), rel=2e-5)  # sums in float32


TORCH: dict[str, Callable[..., Any]] = {
    "nll": lambda f, x, y: f.nll_loss(x, y),
    "nll, weights": lambda f, x, y: f.nll_loss(x, y, weight(f)),
    "cross entropy, weights": lambda f, x, y: f.cross_entropy(x, y, weight(f)),
    "cross entropy, ignored": lambda f, x, y: f.cross_entropy(x, y),
    "cross entropy, a class ignored": lambda f, x, y: f.cross_entropy(x, y, ignore_index=1),
    "cross entropy, smoothed": lambda f, x, y: f.cross_entropy(x, y, weight(f), label_smoothing=0.2),
    "smooth l1": lambda f, x, y: f.smooth_l1_loss(x, y, beta=0.5),
    "kl": lambda f, x, y: f.kl_div(x, y),
    "kl, log target": lambda f, x, y: f.kl_div(x, y, log_target=True),
    "poisson": lambda f, x, y: f.poisson_nll_loss(x, y),
    "poisson, rates, full": lambda f, x, y: f.poisson_nll_loss(x, y, log_input=False, full=True),
    "gaussian, full": lambda f, x, y, v: f.gaussian_nll_loss(x, y, v, full=True),
    "soft margin": lambda f, x, y: f.soft_margin_loss(x, y),
    "multilabel soft margin": lambda f, x, y: f.multilabel_soft_margin_loss(x, y, weight(f)),
    "hinge embedding": lambda f, x, y: f.hinge_embedding_loss(x, y),
    "margin ranking": lambda f, a, b, y: f.margin_ranking_loss(a, b, y, 0.3),
    "multi margin": lambda f, x, y: f.multi_margin_loss(x, y),
    "multi margin, squares, weights": lambda f, x, y: f.multi_margin_loss(x, y, 2, 0.5, weight(f)),
    "multilabel margin": lambda f, x, y: f.multilabel_margin_loss(x, y),
    "cosine embedding": lambda f, a, b, y: f.cosine_embedding_loss(a, b, y, 0.1),
    "triplet margin": lambda f, a, b, c: f.triplet_margin_loss(a, b, c),
}


def weight(_: Any) -> Any:
    import torch

    return torch.tensor(WEIGHT)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:reduction")  # torch's advice about the mean of kl_div
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_torchs(name: str) -> None:
    import torch

    loss, arrays, _ = CASES[name]
    x = torch.tensor(arrays[0], dtype=torch.float32, requires_grad=True)
    rest = [torch.tensor(a.astype(np.int64 if a.dtype == np.int32 else np.float32)) for a in arrays[1:]]
    theirs = TORCH[name](torch.nn.functional, x, *rest)
    theirs.backward()
    others = [te.constant(a if a.dtype == np.int32 else a.astype(np.float32)) for a in arrays[1:]]
    given = te.constant(arrays[0].astype(np.float32))
    value = loss(given, *others)
    (gradient,) = te.grad(value, [given])
    assert float(value) == pytest.approx(theirs.item(), rel=1e-5)
    expected = x.grad.numpy()  # type: ignore[union-attr]
    assert abs(gradient.numpy() - expected).max() <= 1e-5 * abs(expected).max()


def test_labels_that_do_not_count_have_no_gradient() -> None:
    x = te.constant(X)
    loss = nn.cross_entropy(x, te.constant(IGNORED), ignore_index=-100, label_smoothing=0.1)
    (gradient,) = te.grad(loss, [x])
    assert (gradient.numpy()[1] == 0).all() and (gradient.numpy()[0] != 0).all()


def test_what_cannot_be_is_refused() -> None:
    x, label = te.constant(X), te.constant(LABEL)
    with pytest.raises(ShapeError, match="5 classes"):
        nn.nll(x, label, weight=[1.0, 2.0])
    with pytest.raises(AttributeValueError, match="power"):
        nn.multi_margin(x, label, 3)
    with pytest.raises(ShapeError, match="target"):
        nn.kl_div(x, te.constant(X[0]))
