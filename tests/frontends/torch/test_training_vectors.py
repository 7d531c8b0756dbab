"""Nets of the shared training vectors, written in torch: gradients and three steps equal torch's numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import teeny_embed as te
from teeny_embed import nn
from teeny_embed.autograd.training import training
from teeny_embed.graph.lower import Evaluator

pytestmark = pytest.mark.full

OPTIMIZERS: dict[str, tuple[Callable[[], nn.Optimizer], float]] = {
    "sgd": (nn.SGD, 0.05),
    "momentum": (lambda: nn.SGD(momentum=0.9, weight_decay=1e-4), 0.05),
    "adam": (nn.Adam, 1e-3),
}
TOLERANCE = {"bn_dwconv_mnist": 3e-5}
"""Of the largest magnitude of a tensor: sums have another order, which batch normalisation makes more of."""
RUNS = [
    ("mlp_digits", "sgd"), ("mlp_digits", "momentum"), ("mlp_digits", "adam"), ("mlp_digits_bs1", "sgd"),
    ("lenet5_mnist", "sgd"), ("bn_dwconv_mnist", "sgd"), ("bn_dwconv_mnist", "momentum"),
    ("lstm_basicmotions", "sgd"), ("lstm_basicmotions", "adam"),
]  # fmt: skip


class Vectors:
    """The vectors of a net, and the net with its initial values."""

    def __init__(self, shared: Path, name: str) -> None:
        nets = pytest.importorskip("support.torch_nets")
        with np.load(shared / "vectors" / "train" / f"{name}.npz") as file:
            self.arrays = dict(file)
        module = nets.VECTORS[name]()
        module.load_state_dict({n: nets.torch.from_numpy(v) for n, v in self.group("init").items()})
        self.tolerance = TOLERANCE.get(name, 1e-5)
        self.net = te.from_torch(module, nets.torch.from_numpy(self.arrays["x0"]))
        self.label = te.input("label", self.arrays["y0"].shape, "int32")

    def group(self, name: str) -> dict[str, npt.NDArray[Any]]:
        names = [key.removeprefix(f"{name}/") for key in self.arrays if key.startswith(f"{name}/")]
        return {each: self.arrays[f"{name}/{each}"] for each in names}

    def feed(self, step: int, **more: Any) -> dict[str, Any]:
        return {"x": self.arrays[f"x{step}"], "label": self.arrays[f"y{step}"], **more}

    def assert_near(self, ours: dict[str, Any], group: str) -> None:
        """Every tensor of the group but counters: within the tolerance of the largest magnitude."""
        theirs = {n: v for n, v in self.group(group).items() if not n.endswith("num_batches_tracked")}
        assert theirs
        for name, expected in theirs.items():
            error, scale = np.abs(np.asarray(ours[name]) - expected).max(), np.abs(expected).max()
            assert error <= self.tolerance * scale, f"{name}: off by {error}, largest value {scale}"


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _ in RUNS))
def test_first_gradient_equals_torchs(name: str, shared: Path) -> None:
    vectors = Vectors(shared, name)
    parameters = vectors.net.parameters()

    def gradients(x: Any, label: Any) -> dict[str, Any]:
        with training():
            loss = nn.cross_entropy(vectors.net(x), label)
        return {p.name: g for p, g in zip(parameters, te.grad(loss, parameters), strict=True)}

    outputs, _ = Evaluator(te.trace(gradients, *vectors.net.inputs, vectors.label))(vectors.feed(0))
    vectors.assert_near(outputs, "grad0")


@pytest.mark.parametrize(("name", "optimizer"), RUNS)
def test_three_steps_equal_torchs(name: str, optimizer: str, shared: Path) -> None:
    vectors = Vectors(shared, name)
    make, rate = OPTIMIZERS[optimizer]
    run = Evaluator(te.train_step(vectors.net, nn.cross_entropy, make(), *vectors.net.inputs, vectors.label))
    for step, expected in enumerate(vectors.arrays[f"loss/{optimizer}"]):
        outputs, assigned = run(vectors.feed(step, learning_rate=rate))
        assert abs(outputs["loss"] - expected) <= 1e-5 * expected
        for variable, value in assigned.items():
            variable.set(value)
    vectors.assert_near(te.to_state_dict(vectors.net), f"after3/{optimizer}")
