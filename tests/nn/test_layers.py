"""Layers and losses against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from teeny_embed import nn
from teeny_embed.autograd.reverse import grad
from teeny_embed.autograd.training import training
from teeny_embed.errors import AttributeValueError, ShapeError, TeenyError
from teeny_embed.graph.tensor import Tensor, constant

Array = npt.NDArray[Any]


def random(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)


def convolved(x: Array, w: Array, stride: int, pad: tuple[int, int], dilation: int, groups: int) -> Array:
    """NHWC by OHWI, position by position."""
    x = np.pad(x.astype(np.float64), ((0, 0), pad, pad, (0, 0)))
    span = dilation * (w.shape[1] - 1) + 1
    rows, columns = (range(0, e - span + 1, stride) for e in x.shape[1:3])
    out = np.empty((len(x), len(rows), len(columns), len(w)))
    width, per_group = w.shape[3], len(w) // groups
    for o in range(len(w)):
        group = o // per_group
        channels = slice(group * width, (group + 1) * width)
        for i, r in enumerate(rows):
            for j, c in enumerate(columns):
                window = x[:, r : r + span : dilation, c : c + span : dilation, channels]
                out[:, i, j, o] = (window * w[o]).sum((1, 2, 3))
    return out


@pytest.mark.parametrize(
    "padding, stride, dilation, groups, pad",
    [(0, 1, 1, 1, (0, 0)), (1, 2, 1, 1, (1, 1)), ("same", 2, 1, 1, (0, 1)), ("same", 1, 2, 2, (2, 2)),
     ((2, 2), 1, 1, 4, (2, 2)), (((1, 0), (1, 0)), 1, 1, 1, (1, 0))],
)  # fmt: skip
def test_conv2d(padding: Any, stride: int, dilation: int, groups: int, pad: tuple[int, int]) -> None:
    layer = nn.Conv2d(4, 8, 3, stride, padding, dilation, groups)
    y = layer(constant(random(2, 6, 6, 4))).numpy()
    values = layer.state_dict()
    expected = convolved(random(2, 6, 6, 4), values["weight"], stride, pad, dilation, groups) + values["bias"]
    np.testing.assert_allclose(y, expected, atol=1e-5)


def test_same_padding_keeps_the_extents_at_stride_1() -> None:
    assert nn.Conv1d(3, 5, 4, padding="same")(constant(random(2, 9, 3))).shape == (2, 9, 5)


def test_pools() -> None:
    x = random(2, 4, 6, 3)
    tiles = x.reshape(2, 2, 2, 3, 2, 3)
    np.testing.assert_array_equal(nn.MaxPool2d(2)(constant(x)).numpy(), tiles.max((2, 4)))
    np.testing.assert_allclose(nn.AvgPool2d(2)(constant(x)).numpy(), tiles.mean((2, 4)), atol=1e-6)
    np.testing.assert_allclose(nn.GlobalAvgPool()(constant(x)).numpy(), x.mean((1, 2)), atol=1e-6)
    assert nn.MaxPool1d(3, stride=2, padding=1)(constant(random(1, 7, 2))).shape == (1, 4, 2)


def test_layer_norm() -> None:
    x = random(3, 5, 8)
    y = nn.LayerNorm(8)(constant(x)).numpy()
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, expected, atol=1e-5)


def test_embedding_takes_rows() -> None:
    layer = nn.Embedding(5, 3)
    index = np.array([[4, 0]], np.int32)
    np.testing.assert_array_equal(layer(constant(index)).numpy(), layer.state_dict()["weight"][index])


@pytest.mark.parametrize(
    "layer, formula",
    [(nn.ReLU(), lambda x: np.maximum(x, 0)), (nn.ReLU6(), lambda x: np.clip(x, 0, 6)), (nn.Tanh(), np.tanh),
     (nn.Sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
     (nn.Softmax(), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
     (nn.Flatten(), lambda x: x.reshape(3, 8))],
)  # fmt: skip
def test_layers_without_parameters(layer: nn.Module, formula: Callable[[Array], Array]) -> None:
    x = random(3, 2, 4) * 4
    np.testing.assert_allclose(layer(constant(x)).numpy(), formula(x), atol=1e-6)


def test_wrong_ranks_and_groups_are_refused_in_words() -> None:
    with pytest.raises(ShapeError, match="2 spatial dims"):
        nn.Conv2d(3, 4, 3)(constant(random(2, 3)))
    with pytest.raises(ShapeError, match="3 groups"):
        nn.Conv2d(4, 4, 3, groups=3)
    with pytest.raises(TeenyError, match="3 entries"):
        nn.Conv2d(4, 4, (3, 3, 3))
    with pytest.raises(ShapeError, match="one element per channel"), training():
        nn.BatchNorm1d(3)(constant(random(1, 3)))
    with pytest.raises(TeenyError, match="rate"):
        nn.Dropout(1.0)


# ---- Losses -------------------------------------------------------------------------------------------

Z = np.float32([-200, -3, 0, 0.5, 200])
T = np.float32([0, 1, 1, 0, 1])
SIGMOID = 1 / (1 + np.exp(-Z.astype(np.float64)))


@pytest.mark.parametrize(
    "loss, formula",
    [(nn.mse, lambda p, t: (p - t) ** 2), (nn.l1, lambda p, t: abs(p - t)),
     (nn.huber, lambda p, t: np.where(abs(p - t) < 1, (p - t) ** 2 / 2, abs(p - t) - 0.5))],
)  # fmt: skip
def test_regression_losses(loss: Callable[..., Tensor], formula: Callable[..., Array]) -> None:
    p, t = random(3, 4), random(2, 3, 4)[0]
    assert float(loss(constant(p), constant(t))) == pytest.approx(formula(p, t).mean(), rel=1e-6)


def test_bce_with_logits_and_its_gradient_are_finite_and_right() -> None:
    z = constant(Z)
    loss = nn.bce_with_logits(z, constant(T))
    expected = np.logaddexp(0, Z.astype(np.float64)) - Z * T
    assert float(loss) == pytest.approx(expected.mean(), rel=1e-6)
    np.testing.assert_allclose(grad(loss, [z])[0].numpy(), (SIGMOID - T) / 5, atol=1e-7)


def test_bce_of_probabilities() -> None:
    p = np.float32([0.1, 0.7, 0.99])
    t = np.float32([0, 1, 1])
    expected = -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean()
    assert float(nn.bce(constant(p), constant(t))) == pytest.approx(expected, rel=1e-6)
    certain = constant(np.float32([0, 1]))
    loss = nn.bce(certain, constant(np.float32([1, 0])))
    assert np.isfinite(float(loss)) and np.isfinite(grad(loss, [certain])[0].numpy()).all()


def test_cross_entropy_of_one_sample_takes_a_label_of_rank_0() -> None:
    logits = random(1, 4)
    loss = nn.cross_entropy(constant(logits), constant(2, "int32"))
    assert float(loss) == pytest.approx(np.log(np.exp(logits).sum()) - logits[0, 2], rel=1e-6)


@pytest.mark.parametrize("padding", [1.5, ((1, 1, 1), (1, 1)), (1, 1.0)])
def test_padding_is_whole_numbers_in_pairs(padding: object) -> None:
    with pytest.raises(AttributeValueError, match="padding"):
        nn.Conv2d(1, 2, 3, padding=padding)(constant(np.zeros((1, 5, 5, 1), "f4")))  # type: ignore[arg-type]
