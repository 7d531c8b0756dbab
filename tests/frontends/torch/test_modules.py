"""What a module of PyTorch is once it is imported: names, shapes, state, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed import nn
from teeny_embed.autograd.training import training
from teeny_embed.graph.lower import Evaluator

pytestmark = pytest.mark.full


@pytest.fixture(scope="session")
def odd() -> Any:
    """The module of odd nets, which needs torch."""
    return pytest.importorskip("support.torch_odd")


def test_other_shapes_are_exported_anew(odd: Any) -> None:
    module = odd.torch.nn.Sequential(odd.torch.nn.Conv2d(1, 2, 3), odd.torch.nn.Flatten())
    net = te.from_torch(module, odd.torch.ones(1, 1, 5, 5))
    x = np.arange(3 * 36, dtype=np.float32).reshape(3, 1, 6, 6) / 64
    expected = module(odd.torch.from_numpy(x)).detach().numpy()
    assert np.abs(net(x).numpy() - expected).max() <= 1e-5 * np.abs(expected).max()  # sums have another order


def test_it_is_a_module_among_others(odd: Any) -> None:
    torch_net = te.from_torch(odd.torch.nn.Linear(4, 3), odd.torch.ones(2, 4))
    net = nn.Sequential(front=torch_net, relu=nn.ReLU())
    assert [name for name, _ in net.named_variables()] == ["front.weight", "front.bias"]
    program = te.Program("two", infer=te.trace(net, te.input("x", (2, 4))))
    program.load({"front.weight": np.ones((3, 4)), "front.bias": np.zeros(3)})
    learned = te.to_state_dict(program, {"front.bias": np.arange(3)})
    assert {name: value.tolist() for name, value in learned.items()} == {
        "weight": [[1.0] * 4] * 3,
        "bias": [0.0, 1.0, 2.0],
    }


def test_tensors_in_a_tuple_and_results_in_a_dict(odd: Any) -> None:
    ones = odd.torch.ones(2)
    net = te.from_torch(odd.Several(), ((ones, ones), 3))
    graph = te.trace(net, *net.inputs)
    assert [name for name, _ in graph.outputs] == ["sum", "first"]
    outputs, _ = Evaluator(graph)({node.node.name: np.full(2, 2.0, "f4") for node in net.inputs})
    assert outputs["sum"].tolist() == [8.0, 8.0]


def test_a_buffer_that_changes_is_state(odd: Any) -> None:
    net = te.from_torch(odd.Stateful(), odd.torch.ones(2))
    graph = te.trace(net, *net.inputs)
    assert [(v.name, v.kind) for v, _ in graph.assigns] == [("total", "state")]
    assert [net(np.ones(2, "f4")).numpy().tolist() for _ in range(2)] == [[2.0, 2.0], [4.0, 4.0]]


def test_dropout_draws_anew_in_each_layer_and_each_step(odd: Any) -> None:
    net = te.from_torch(odd.Dropping(), odd.torch.ones(1000))
    x = np.ones(1000, np.float32)
    assert all((y.numpy() == 1.0).all() for y in net(x))
    with training():
        masks = [y.numpy() for _ in range(2) for y in net(x)]
    assert all(set(np.unique(m)) == {0.0, np.float32(1 / 0.75)} for m in masks)
    assert all(abs((m == 0).mean() - 0.25) < 0.06 for m in masks)  # 4.4 standard deviations
    assert len({m.tobytes() for m in masks}) == 4
