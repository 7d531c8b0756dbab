"""Gradients and three training steps of whole nets against torch's numbers (shared/vectors/train)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from teeny_embed import nn
from teeny_embed.autograd.reverse import grad
from teeny_embed.autograd.training import train_step, training
from teeny_embed.graph.lower import Evaluator
from teeny_embed.graph.node import Graph
from teeny_embed.graph.tensor import input, trace

Array = npt.NDArray[Any]
OPTIMIZERS: dict[str, tuple[Callable[[], nn.Optimizer], float]] = {
    "sgd": (nn.SGD, 0.05),
    "momentum": (lambda: nn.SGD(momentum=0.9, weight_decay=1e-4), 0.05),
    "adam": (nn.Adam, 1e-3),
}


@dataclass(frozen=True)
class Net:
    """A net of the vectors. `behind_flatten` names the weight that multiplies a flattened `image` of CHW."""

    make: Callable[[], nn.Module]
    optimizers: tuple[str, ...]
    behind_flatten: str | None = None
    image: tuple[int, ...] = ()
    tolerance: float = 1e-5

    def ours(self, name: str, value: Array) -> Array:
        """From torch's layout (NCHW, OIHW) to NHWC and OHWI."""
        if name == self.behind_flatten:
            channels_first = value.reshape(-1, *self.image)
            return channels_first.transpose(0, 2, 3, 1).reshape(value.shape)
        return value.transpose(0, 2, 3, 1) if value.ndim == 4 else value

    def values(self, vectors: Mapping[str, Array], group: str) -> dict[str, Array]:
        """All tensors of a group such as "init", by the net's own names."""
        names = [k.removeprefix(group + "/") for k in vectors if k.startswith(group + "/")]
        ours = [n for n in names if not n.endswith("num_batches_tracked")]
        return {n: self.ours(n, vectors[f"{group}/{n}"]) for n in ours}


def mlp() -> nn.Module:
    return nn.Sequential(fc1=nn.Linear(64, 32), relu=nn.ReLU(), fc2=nn.Linear(32, 10))


def lenet5() -> nn.Module:
    return nn.Sequential(
        c1=nn.Conv2d(1, 6, 5, padding=2), relu1=nn.ReLU(), pool1=nn.MaxPool2d(2),
        c2=nn.Conv2d(6, 16, 5), relu2=nn.ReLU(), pool2=nn.MaxPool2d(2), flatten=nn.Flatten(),
        f1=nn.Linear(400, 120), relu3=nn.ReLU(), f2=nn.Linear(120, 84), relu4=nn.ReLU(), f3=nn.Linear(84, 10),
    )  # fmt: skip


def bn_dwconv() -> nn.Module:
    return nn.Sequential(
        c1=nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False), bn=nn.BatchNorm2d(4), relu1=nn.ReLU6(),
        dw=nn.Conv2d(4, 4, 3, padding=1, groups=4), pw=nn.Conv2d(4, 8, 1), relu2=nn.ReLU(),
        pool=nn.GlobalAvgPool(), f=nn.Linear(8, 10),
    )  # fmt: skip


NETS = {
    "mlp_digits": Net(mlp, ("sgd", "momentum", "adam")),
    "mlp_digits_bs1": Net(mlp, ("sgd",)),
    "lenet5_mnist": Net(lenet5, ("sgd",), "f1.weight", (16, 5, 5)),
    "bn_dwconv_mnist": Net(bn_dwconv, ("sgd", "momentum"), tolerance=3e-5),
}


def loaded(shared: Path, name: str) -> tuple[nn.Module, Mapping[str, Array]]:
    """The net with its initial values, and the vectors."""
    with np.load(shared / "vectors" / "train" / f"{name}.npz") as file:
        vectors = dict(file)
    return NETS[name].make().load(NETS[name].values(vectors, "init")), vectors


def feed(net: Net, vectors: Mapping[str, Array], step: int, **more: Any) -> dict[str, Any]:
    return {"x": net.ours("", vectors[f"x{step}"]), "label": vectors[f"y{step}"], **more}


def traced(module: nn.Module, net: Net, vectors: Mapping[str, Array], optimizer: nn.Optimizer) -> Graph:
    """Batches of 1 take a label of rank 0."""
    x, label = net.ours("", vectors["x0"]), vectors["y0"]
    label_shape = label.shape if len(label) > 1 else ()
    inputs = input("x", x.shape), input("label", label_shape, "int32")
    return train_step(module, nn.cross_entropy, optimizer, *inputs)


def assert_near(ours: Mapping[str, Array], theirs: Mapping[str, Array], tolerance: float) -> None:
    """Per tensor: largest difference within tolerance of the largest magnitude."""
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        error, scale = np.abs(ours[name] - expected).max(), np.abs(expected).max()
        assert error <= tolerance * scale, f"{name}: off by {error}, largest value {scale}"


@pytest.mark.parametrize("name", NETS)
def test_first_gradient_equals_torchs(name: str, shared: Path) -> None:
    module, vectors = loaded(shared, name)
    net = NETS[name]
    x = input("x", net.ours("", vectors["x0"]).shape)
    label = input("label", vectors["y0"].shape, "int32")

    def gradients(x: Any, label: Any) -> dict[str, Any]:
        with training():
            loss = nn.cross_entropy(module(x), label)
        found = grad(loss, module.parameters())
        return {p.name: g for p, g in zip(module.parameters(), found, strict=True)}

    outputs, _ = Evaluator(trace(gradients, x, label))(feed(net, vectors, 0))
    assert_near(outputs, net.values(vectors, "grad0"), net.tolerance)


@pytest.mark.parametrize("name, optimizer", [(name, o) for name, net in NETS.items() for o in net.optimizers])
def test_three_steps_equal_torchs(name: str, optimizer: str, shared: Path) -> None:
    module, vectors = loaded(shared, name)
    make, rate = OPTIMIZERS[optimizer]
    net = NETS[name]
    run = Evaluator(traced(module, net, vectors, make()))
    for step, expected in enumerate(vectors[f"loss/{optimizer}"]):
        outputs, assigned = run(feed(net, vectors, step, learning_rate=rate))
        assert abs(outputs["loss"] - expected) <= 1e-5 * expected
        for variable, value in assigned.items():
            variable.set(value)
    assert_near(module.state_dict(), net.values(vectors, f"after3/{optimizer}"), net.tolerance)
