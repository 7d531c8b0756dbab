"""A graph is a function: called on tensors it computes, records, trains and assigns as what was traced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import teeny_embed as te
from support.runs import assert_equal_bits
from teeny_embed import nn
from teeny_embed.graph.lower import Evaluator, evaluate_graph
from teeny_embed.graph.node import Variable
from teeny_embed.graph.tensor import Tensor


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).initialize(2)


def image() -> Tensor:
    return te.input("image", (2, 4))


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape, dtype=np.float32)


def test_a_graph_called_on_tensors_gives_the_bits_of_the_net() -> None:
    model, x = net(), te.constant(random(2, 4))
    assert np.array_equal(te.trace(model, image())(x).numpy(), model(x).numpy())


def test_a_net_a_function_and_a_graph_are_traced_alike() -> None:
    model = net()
    graph = te.trace(model, image())
    feed = {"image": random(2, 4)}
    expected, _ = evaluate_graph(graph, feed)
    for function in (lambda x: model(x), graph):
        found, _ = evaluate_graph(te.trace(function, image()), feed)
        assert_equal_bits(found, expected, "traced again")
    assert [n.name for n in te.trace(graph, image()).nodes() if n.inputs] == [
        n.name for n in graph.nodes() if n.inputs
    ]


def test_names_follow_the_scope_of_the_call() -> None:
    graph = te.trace(lambda x: x * x, image())
    with te.name_scope("twice"):
        again = te.trace(graph, image())
    assert [n.name for n in again.nodes() if n.inputs] == ["twice/multiply"]


def test_outputs_keep_their_names() -> None:
    both = te.trace(lambda x: {"a": x + 1, "b": x * 2}, image())
    values = both(te.constant(random(2, 4)))
    assert list(values) == ["a", "b"]
    assert [n for n, _ in te.trace(both, image()).outputs] == ["a", "b"]
    named = te.trace(lambda x: x + 1, image(), names=("sum",))
    assert [n for n, _ in te.trace(named, image()).outputs] == ["sum"]


def test_parameters_of_a_graph_stay_trainable(tmp_path: Path) -> None:
    x, y = image(), te.input("y", (2, 2))
    models = net(), net()
    direct = te.train_step(models[0], nn.mse, nn.SGD(momentum=0.5), x, y)
    through_a_graph = te.train_step(te.trace(models[1], x), nn.mse, nn.SGD(momentum=0.5), x, y)
    feed = {"image": random(2, 4), "y": random(2, 2), "learning_rate": 0.1}
    expected, found = (evaluate_graph(g, feed) for g in (direct, through_a_graph))
    assert_equal_bits(found[0], expected[0], "the loss")
    assert_equal_bits(*({v.name: a for v, a in run[1].items()} for run in (found, expected)), "the updates")
    te.verify(te.build(te.Program("net", train_step=through_a_graph), out=tmp_path), steps=3)


def test_a_graph_in_a_sequence_of_layers() -> None:
    backbone = te.trace(net(), image())
    head = nn.Linear(2, 2)
    step = te.train_step(
        lambda x: head(backbone(x)), nn.mse, nn.SGD(), image(), te.input("y", (2, 2)))  # fmt: skip
    assert len(step.assigns) == 6


def counting(counter: Variable) -> te.Tensor:
    def function(x: Tensor) -> dict[str, Tensor]:
        before = te.read(counter)
        te.assign(counter, before + 1)
        return {"before": before, "sum": x.sum() + te.read(counter)}

    return te.trace(function, te.input("x", (2,)))


def test_assignments_are_replayed_in_order() -> None:
    counter = Variable("counter", np.float32(0), "state")
    graph = counting(counter)

    def twice(x: Tensor) -> dict[str, Tensor]:
        first, second = graph(x), graph(x)
        return {"first": first["before"], "second": second["before"], "sum": second["sum"]}

    outputs, assigned = evaluate_graph(te.trace(twice, te.input("x", (2,))), {"x": [1, 2]})
    assert [float(v) for v in outputs.values()] == [0, 1, 5]
    assert {v.name: float(a) for v, a in assigned.items()} == {"counter": 2}


def test_outside_tracing_assignments_happen_at_once() -> None:
    counter = Variable("counter", np.float32(0), "state")
    graph, x = counting(counter), te.constant(np.float32([1, 2]))
    for expected in range(3):
        outputs = graph(x)
        assert [float(v) for v in outputs.values()] == [expected, expected + 4]
    assert counter.value == 3


def test_a_training_step_called_on_arrays_trains() -> None:
    model = net()
    step = te.train_step(model, nn.mse, nn.SGD(), image(), te.input("y", (2, 2)))
    x, y = random(2, 4), random(2, 2)
    losses = [float(step(x, y, 0.1)) for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[4] < losses[0]
    before = model.state_dict()
    assert np.isnan(float(step(np.full((2, 4), np.nan, np.float32), y, 0.1)))
    assert_equal_bits(model.state_dict(), before, "parameters after a loss that is not finite")


def test_checks_hold_in_the_new_graph() -> None:
    step = te.train_step(net(), nn.cross_entropy, nn.SGD(), image(), te.input("label", (2,), "int32"))
    inputs = te.input("a", (2, 4)), te.input("b", (2,), "int32"), te.input("rate", ())
    again = te.trace(step, *inputs)
    assert sorted((c.kind, c.node.name, c.bound) for c in again.checks) == [
        ("finite", "loss/mean", 0), ("range", "b", 2), ("rate", "rate", 0),
    ]  # fmt: skip
    with pytest.raises(te.GraphError, match="'learning_rate' is a rate") as caught:
        te.trace(lambda x, label, rate: step(x, label, rate * 0.5), *inputs)
    assert caught.value.where and caught.value.where.startswith("test_inline.py")


def test_changes_of_the_graph_stay_listed() -> None:
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    x, y = te.input("x", (1, 2, 2, 1)), te.input("y", (1, 1))
    step = te.train_step(model, nn.mse, nn.SGD(), x, y)
    assert step.changes and te.trace(step, x, y, te.input("rate", ())).changes == step.changes


def test_wrong_inputs_are_refused() -> None:
    graph = te.trace(net(), image())
    with pytest.raises(te.GraphError, match="1 inputs, 2 are given") as caught:
        graph(te.constant(random(2, 4)), 1.0)
    assert caught.value.hint == "they are image"
    with pytest.raises(te.ShapeError, match=r"'image' is float32\[2,4\], not float32\[3,4\]"):
        graph(te.constant(random(3, 4)))
    with pytest.raises(te.ShapeError, match="not int32"):
        graph(np.ones((2, 4), np.int32))


def test_evaluators_run_graphs_of_graphs() -> None:
    graph = te.trace(net(), image())
    for _ in range(3):
        graph = te.trace(graph, image())
    outputs, _ = Evaluator(graph)({"image": random(2, 4)})
    assert np.array_equal(outputs["output"], net()(te.constant(random(2, 4))).numpy())
