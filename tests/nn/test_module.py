"""Modules: names, initial values, state, and what differs between training and evaluation."""

from __future__ import annotations

import numpy as np
import pytest

from teeny_embed import nn
from teeny_embed.autograd.training import train_step, training
from teeny_embed.errors import DataError, GraphError
from teeny_embed.graph.lower import Evaluator, evaluate_graph
from teeny_embed.graph.node import Graph, Variable
from teeny_embed.graph.tensor import Tensor, constant, input, trace


class Block(nn.Module):
    """A residual block with a list of layers."""

    def __init__(self) -> None:
        self.inner = nn.Linear(3, 3)
        self.layers = [nn.Linear(3, 3, bias=False), nn.ReLU()]

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        for layer in self.layers:
            y = layer(y)
        return x + y


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), head=nn.Linear(3, 2))


def op_names(graph: Graph) -> list[str]:
    return [n.name for n in graph.nodes() if n.inputs]


def test_positional_children_are_named_by_kind_and_position() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.MaxPool2d(2), nn.Linear(4, 3))
    names = [name for name, _ in net.named_variables()]
    assert names[:3] == ["conv0.weight", "conv0.bias", "batch_norm1.weight"] and names[-1] == "linear3.bias"


def test_keyword_children_and_lists_are_named_as_the_user_did() -> None:
    net = nn.Sequential(nn.Linear(3, 3), block=Block())
    net.initialize()
    assert list(net.state_dict()) == [
        "linear0.weight", "linear0.bias", "block.inner.weight", "block.inner.bias", "block.layers0.weight",
    ]  # fmt: skip
    assert op_names(trace(net, input("x", (1, 3)))) == [
        "linear0/conv", "linear0/add", "block/inner/conv", "block/inner/add", "block/layers0/conv",
        "block/layers1/relu", "block/add",
    ]  # fmt: skip


def test_a_module_used_twice_shares_its_weights() -> None:
    layer = nn.Linear(3, 3)
    net = nn.Sequential(layer, nn.ReLU(), layer)
    assert [v.name for v in net.initialize().parameters()] == ["linear0.weight", "linear0.bias"]


def test_initial_values_depend_on_the_seed_only() -> None:
    first, again, other = (small().initialize(seed).state_dict() for seed in (3, 3, 4))
    assert all(np.array_equal(first[k], again[k]) for k in first)
    assert not any(np.array_equal(first[k], other[k]) for k in first)


def test_initial_values_are_uniform_within_the_fan_in_bound() -> None:
    weight = nn.Sequential(nn.Linear(100, 50)).initialize(1).state_dict()["linear0.weight"]
    assert np.abs(weight).max() <= 0.1 and np.abs(weight).max() > 0.099
    assert abs(weight.mean()) < 2e-3 and abs(weight.std() - 0.1 / np.sqrt(3)) < 1e-3


def test_first_call_draws_with_seed_0_and_keeps_its_values() -> None:
    net = small()
    net(constant(np.ones((1, 4), np.float32)))
    before = net.state_dict()
    net(constant(np.ones((1, 4), np.float32)))
    expected = small().initialize(0).state_dict()
    assert all(np.array_equal(before[k], expected[k]) for k in before)
    assert all(np.array_equal(before[k], net.state_dict()[k]) for k in before)


def test_a_part_used_on_its_own_keeps_its_values_in_the_whole() -> None:
    part = nn.Sequential(nn.Linear(4, 3)).initialize(7)
    weight = part.state_dict()["linear0.weight"]
    whole = nn.Sequential(part, nn.Linear(3, 2))
    assert np.array_equal(whole.state_dict()["sequential0.linear0.weight"], weight)
    assert whole.parameters()[0].name == "sequential0.linear0.weight"


def test_draws_are_recorded_so_that_a_device_can_repeat_them() -> None:
    draws = [p.draw for p in small().initialize(5).parameters()]
    assert [(d.seed, d.stream) for d in draws if d] == [(5, 0), (5, 1), (5, 2), (5, 3)]


def test_load_sets_current_and_initial_values() -> None:
    values = small().initialize(9).state_dict()
    net = small().load(values)
    assert all(np.array_equal(v.initial, values[v.name]) and v.draw is None for v in net.parameters())


def test_load_names_what_does_not_fit() -> None:
    values = small().state_dict()
    del values["head.bias"]
    with pytest.raises(DataError, match=r"lack 'head\.bias'"):
        small().load(values)
    with pytest.raises(DataError, match="has no 'extra'"):
        small().load({**small().state_dict(), "extra": np.zeros(1)})


# ---- Training and evaluation ---------------------------------------------------------------------------


def classifier(*layers: nn.Module) -> tuple[nn.Sequential, Graph]:
    net = nn.Sequential(*layers)
    inputs = input("x", (2, 4)), input("label", (2,), "int32")
    return net, train_step(net, nn.cross_entropy, nn.SGD(), *inputs)


def test_train_step_has_rate_loss_and_checks() -> None:
    _, graph = classifier(nn.Linear(4, 3))
    assert [n for n, _ in graph.inputs] == ["x", "label", "learning_rate"]
    assert [(n, node.type.shape) for n, node in graph.outputs] == [("loss", ())]
    assert [(c.kind, c.node.name, c.bound) for c in graph.checks] == [
        ("rate", "learning_rate", 0), ("finite", "loss/mean", 0), ("range", "label", 3),
    ]  # fmt: skip


def test_embedding_checks_its_input_in_inference() -> None:
    net = nn.Sequential(nn.Embedding(11, 4), nn.Flatten(), nn.Linear(12, 2))
    graph = trace(net, input("token", (1, 3), "int32"))
    assert [(c.kind, c.node.name, c.bound) for c in graph.checks] == [("range", "token", 11)]


def test_frozen_parameters_are_not_assigned_and_cost_no_gradient() -> None:
    net, graph = classifier(nn.Linear(4, 3).freeze(), nn.ReLU(), nn.Linear(3, 3))
    assert [v.name for v, _ in graph.assigns] == ["linear2.weight", "linear2.bias"]
    assert [n.op.name for n in graph.nodes()].count("conv_weight_grad") == 1
    with pytest.raises(GraphError, match="no trainable parameter"):
        classifier(net.freeze())


def test_batch_norm_uses_batch_statistics_in_training_only() -> None:
    net = nn.Sequential(nn.BatchNorm1d(2))
    x = constant(np.float32([[1, 10], [3, 30], [5, 20]]))
    untouched = net(x).numpy()
    np.testing.assert_allclose(untouched, x.numpy() / np.sqrt(np.float32(1 + 1e-5)), rtol=1e-6)
    with training():
        normalised = net(x).numpy()
    np.testing.assert_allclose(normalised.mean(0), 0, atol=1e-6)
    state = net.state_dict()
    np.testing.assert_allclose(state["batch_norm0.running_mean"], [0.3, 2.0], rtol=1e-6)
    np.testing.assert_allclose(state["batch_norm0.running_var"], [0.9 + 0.4, 0.9 + 10], rtol=1e-6)


def test_batch_norm_statistics_are_state_and_not_trained() -> None:
    net, graph = classifier(nn.Linear(4, 3), nn.BatchNorm1d(3))
    state = [v.name for _, v in net.named_variables() if v.kind == "state"]
    assert state == ["batch_norm1.running_mean", "batch_norm1.running_var"]
    assert [v.name for v, _ in graph.assigns][:2] == state


def test_dropout_is_the_identity_in_evaluation() -> None:
    graph = trace(nn.Sequential(nn.Dropout(0.5)), input("x", (2, 3)))
    assert not op_names(graph) and not graph.assigns


def test_dropout_drops_other_elements_at_each_step_and_scales_the_rest() -> None:
    net = nn.Sequential(nn.Dropout(0.25), nn.Dropout(0.25)).initialize(1)
    x = input("x", (50, 40))

    def both(x: Tensor) -> dict[str, Tensor]:
        with training():
            return {"y": net(x)}

    run = Evaluator(trace(both, x))
    seen = []
    for step in range(2):
        outputs, assigned = run({"x": np.ones((50, 40))})
        ((calls, value),) = assigned.items()
        assert calls.name == "random.calls" and value == step + 1
        calls.set(value)
        seen.append(outputs["y"])
    assert set(np.unique(seen[0])) == {np.float32(0), np.float32(1 / 0.75) * np.float32(1 / 0.75)}
    assert abs((seen[0] > 0).mean() - 0.75**2) < 0.03
    assert 0.3 < (seen[0] == seen[1]).mean() < 0.7


def test_one_counter_serves_all_dropouts_and_their_streams_differ_from_the_parameters() -> None:
    net, graph = classifier(nn.Linear(4, 3), nn.Dropout(), nn.Linear(3, 3), nn.Dropout())
    assert [v.name for v, _ in graph.assigns].count("random.calls") == 1
    streams = [n.attributes["stream"] for n in graph.nodes() if n.op.name == "random_uniform"]
    assert sorted(streams) == [4, 5] and len(net.parameters()) == 4


def test_a_function_of_modules_trains_as_a_module_does() -> None:
    first, second = nn.Linear(4, 3), nn.Linear(3, 2)

    def net(x: Tensor) -> Tensor:
        return second(first(x))

    graph = train_step(net, nn.mse, nn.SGD(), input("x", (2, 4)), input("y", (2, 2)))
    feed = {"x": np.ones((2, 4)), "y": np.zeros((2, 2)), "learning_rate": 0.1}
    losses = []
    for _ in range(3):
        outputs, assigned = evaluate_graph(graph, feed)
        losses.append(float(outputs["loss"]))
        for variable, value in assigned.items():
            assert isinstance(variable, Variable)
            variable.set(value)
    assert losses[0] > losses[1] > losses[2]
