"""Nets of PyTorch: what they compute, what a training step learns, and back to torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import teeny_embed as te
from support.tools import need
from teeny_embed import nn
from teeny_embed.graph.lower import Evaluator

pytestmark = pytest.mark.full
NETS = ("residual", "signal", "recurrent", "encoder", "tied")
STEPS, RATE, MOMENTUM = 10, 0.05, 0.9


@pytest.fixture(scope="session")
def nets() -> Any:
    """The module of nets, which needs torch."""
    return pytest.importorskip("support.torch_nets")


def numbers(tensor: Any) -> npt.NDArray[Any]:
    """In the dtypes of the graph: integers are int32."""
    array: npt.NDArray[Any] = tensor.detach().numpy()
    return array.astype(np.int32) if array.dtype == np.int64 else array


def assert_near(name: str, ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    """The largest difference within tolerance of the largest magnitude: sums have another order."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.shape == theirs.shape, name
    error, scale = np.abs(ours - theirs).max(), np.abs(theirs).max()
    assert error <= tolerance * scale, f"{name}: off by {error}, largest value {scale}"


@pytest.mark.parametrize("name", NETS)
def test_a_net_computes_what_torch_does_and_c_the_same_bits(name: str, nets: Any, tmp_path: Path) -> None:
    module, x, label = nets.made(name)
    net = te.from_torch(module, x)
    target = te.input("label", tuple(label.shape), "int32")
    step = te.train_step(net, nn.cross_entropy, nn.Adam(), *net.inputs, target)
    program = te.Program(name, infer=te.trace(net, *net.inputs), train_step=step)
    outputs, _ = Evaluator(program.entry_points["infer"])({net.inputs[0].node.name: numbers(x)})
    assert_near("output", outputs["output"], module.eval()(x).detach())
    assert te.verify(te.build(program, out=tmp_path), on="host").ok


@pytest.mark.parametrize("name", NETS)
def test_ten_steps_learn_what_torch_does_and_go_back(name: str, nets: Any) -> None:
    module, x, label = nets.made(name)
    net = te.from_torch(module, x)
    target = te.input("label", tuple(label.shape), "int32")
    step = te.train_step(net, nn.cross_entropy, nn.SGD(momentum=MOMENTUM), *net.inputs, target)
    run = Evaluator(step)
    feed = {net.inputs[0].node.name: numbers(x), "label": numbers(label), "learning_rate": RATE}
    losses = []
    for _ in range(STEPS):
        outputs, assigned = run(feed)
        losses.append(float(outputs["loss"]))
        for variable, value in assigned.items():
            variable.set(value)
    learned = te.to_state_dict(net)
    assert_near("losses", losses, nets.trained(module, x, label, STEPS, RATE, MOMENTUM))
    for key, theirs in module.state_dict().items():
        if not key.endswith("num_batches_tracked"):
            assert_near(key, learned[key], theirs, nets.CASES[name].tolerance)
    module.load_state_dict(learned)


def test_a_board_learns_a_net_of_torch(nets: Any, tmp_path: Path) -> None:
    need("arm-none-eabi-gcc", "qemu-system-arm")
    module, x, label = nets.made("residual")
    net = te.from_torch(module, x)
    target = te.input("label", tuple(label.shape), "int32")
    step = te.train_step(net, nn.cross_entropy, nn.SGD(), *net.inputs, target)
    program = te.Program("residual", infer=te.trace(net, *net.inputs), train_step=step)
    build = te.build(program, target="cortex-m4f", out=tmp_path)
    assert te.verify(build, on="qemu", steps=3).ok
    images, labels = numbers(x), numbers(label)
    report = te.fit(build, images, labels, on="qemu", lr=RATE, epochs=2)
    module.load_state_dict(te.to_state_dict(build, report.state))
    learned = module.state_dict()["head.weight"].numpy()
    assert learned.tobytes() == report.state["head.weight"].tobytes()


def test_channels_first_costs_no_memory(nets: Any, tmp_path: Path) -> None:
    """LeNet-5 trains in the arena that it needs in our own layout: no transpose, no gradient is stored."""
    net = te.from_torch(nets.Lenet5(), nets.torch.zeros(1, 1, 28, 28))
    own = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip
    label = te.input("label", (1,), "int32")
    inputs = {net: net.inputs[0], own: te.input("x", (1, 28, 28, 1))}
    arenas = []
    for module, x in inputs.items():
        step = te.train_step(module, nn.cross_entropy, nn.SGD(), x, label)
        build = te.build(te.Program("lenet", train_step=step), target="cortex-m4f", out=tmp_path)
        arenas.append(build.interface.arena_bytes)
    assert arenas[0] == arenas[1]
