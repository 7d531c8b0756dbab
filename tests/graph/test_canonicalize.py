"""The reference graph: what is folded, merged and left out, and that each change of bits is listed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import teeny_embed as te
from support.data import Array
from teeny_embed import nn
from teeny_embed.graph.canonicalize import canonicalize, freeze
from teeny_embed.graph.lower import evaluate_graph
from teeny_embed.graph.node import Graph, Variable
from teeny_embed.graph.tensor import Tensor, call, constant, input, read, trace


def random(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)


def op_names(graph: Graph) -> list[str]:
    """Operators that compute, in order."""
    return [node.op.name for node in graph.nodes() if node.inputs]


def traced(function: Callable[[Tensor], object], shape: tuple[int, ...] = (2, 3)) -> Graph:
    return trace(function, input("x", shape))


def value(graph: Graph, x: Array) -> Array:
    outputs, _ = evaluate_graph(graph, {"x": x})
    return outputs["output"]


# ---- Constants, common subexpressions, pruning ----------------------------------------------------------


def test_operators_on_constants_become_constants_without_a_change_of_bits() -> None:
    graph = traced(lambda x: x * (call("exp", constant(random(3))) + 1.0))
    folded = canonicalize(graph)
    assert op_names(folded) == ["multiply"] and not folded.changes
    assert np.array_equal(value(folded, random(2, 3)), value(graph, random(2, 3)))


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float64", "bool"])
def test_folded_constants_keep_their_dtype(dtype: str) -> None:
    graph = traced(lambda x: call("where", constant(True), constant(np.ones(3), dtype), constant(0, dtype)))
    assert canonicalize(graph).outputs[0][1].type.dtype == dtype


def test_a_mask_of_infinities_is_a_choice_by_tables_that_c_can_state(tmp_path: Path) -> None:
    mask = np.float32([[0, -np.inf, 0.5], [np.inf, 0, 0]])
    graph = traced(lambda x: x + constant(mask))
    assert op_names(canonicalize(graph)) == ["where", "where", "add"]
    x = random(2, 3)
    np.testing.assert_array_equal(value(canonicalize(graph), x), x + mask)
    te.verify(te.build(te.Program("masked", infer=graph), out=tmp_path), on="host", steps=1)


def test_large_constants_are_left_to_be_computed() -> None:
    graph = traced(lambda x: x.sum() + call("exp", constant(np.ones(1 << 17, np.float32))).sum())
    assert "exp" in op_names(canonicalize(graph))


def test_common_subexpressions_are_computed_once() -> None:
    graph = traced(lambda x: call("exp", x * 2.0) + call("exp", x * 2.0) * call("exp", x * 3.0))
    assert op_names(graph).count("exp") == 3
    assert op_names(canonicalize(graph)).count("exp") == 2


def test_operators_with_other_attributes_are_not_common() -> None:
    graph = traced(lambda x: x.sum(axis=0, keepdims=True) + x.sum(axis=1, keepdims=True))
    assert op_names(canonicalize(graph)).count("sum") == 2


def test_versions_of_a_variable_are_not_common() -> None:
    counter = Variable("counter", np.float32(0), "state")

    def step(x: Tensor) -> Tensor:
        before = read(counter) * 2.0
        te.assign(counter, read(counter) + 1)
        return before + read(counter) * 2.0

    assert op_names(canonicalize(traced(step))).count("multiply") == 2


def test_what_no_output_needs_is_left_out() -> None:
    def function(x: Tensor) -> Tensor:
        call("exp", x)
        return x + 1.0

    assert op_names(canonicalize(traced(function))) == ["add"]


def test_identities_are_dropped() -> None:
    def function(x: Tensor) -> Tensor:
        same = call("expand", (1.0 * x / 1.0).reshape(2, 3), shape=(2, 3))
        return call("cast", same, dtype="float32").reshape(6).reshape(3, 2) + 0.5

    assert op_names(canonicalize(traced(function))) == ["reshape", "add"]


# ---- ReLU behind max pool -------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [nn.ReLU, nn.ReLU6])
def test_relu_moves_behind_a_max_pool_and_changes_zeros_at_most(activation: type[nn.Module]) -> None:
    net = nn.Sequential(activation(), nn.MaxPool2d(2, padding=1))
    graph = traced(net, (1, 5, 5, 2))
    moved = canonicalize(graph)
    assert op_names(moved) == ["max_pool", activation().op] and len(moved.changes) == 1
    assert "moved behind max_pool1/max_pool" in moved.changes[0]
    x = 4 * random(1, 5, 5, 2)
    x[0, 0, 0, 0] = np.nan
    np.testing.assert_array_equal(value(moved, x), value(graph, x))


def test_a_training_step_moves_it_before_it_is_differentiated() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    x, y = input("x", (1, 6, 6, 1)), input("y", (1, 8))
    graph = te.train_step(net, nn.mse, nn.SGD(), x, y)
    assert graph.changes == ("relu1/relu moved behind max_pool2/max_pool",)
    assert canonicalize(graph).changes == graph.changes


# ---- Affine chains --------------------------------------------------------------------------------------


def normalised(*layers: nn.Module) -> nn.Sequential:
    """A net with statistics that are not those it starts with."""
    net = nn.Sequential(*layers).initialize(1)
    for name, variable in net.named_variables():
        if name.startswith("batch_norm"):
            drawn = np.abs(random(*variable.value.shape)) + 0.5
            variable.start_from(drawn if name.endswith(("var", "weight")) else drawn - 1)
    return net


NETS = {
    "conv": (lambda: normalised(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), (2, 6, 6, 3)),
    "without_bias": (lambda: normalised(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)), (2, 6, 6, 3)),
    "depthwise": (lambda: normalised(nn.Conv2d(3, 3, 3, groups=3), nn.BatchNorm2d(3)), (1, 5, 5, 3)),
    "grouped": (lambda: normalised(nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6)), (1, 5, 5, 4)),
    "conv1d": (lambda: normalised(nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.Tanh()), (2, 8, 2)),
    "linear": (lambda: normalised(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.ReLU()), (3, 5)),
    "one_channel": (lambda: normalised(nn.Conv2d(2, 1, 3), nn.BatchNorm2d(1)), (1, 4, 4, 2)),
}


@pytest.mark.parametrize("name", NETS)
def test_batch_norm_of_a_frozen_net_is_folded_into_the_convolution(name: str) -> None:
    make, shape = NETS[name]
    graph = freeze(traced(make(), shape), ())
    folded = canonicalize(graph)
    names = op_names(folded)
    assert "multiply" not in names and "divide" not in names and "subtract" not in names
    assert names.count("conv") == names.count("add") == 1
    assert folded.changes and all("folded into" in change for change in folded.changes)
    expected = value(graph, random(*shape))
    error = np.abs(value(folded, random(*shape)) - expected).max()
    assert error <= 1e-6 * np.abs(expected).max()


def test_constants_on_either_side_and_of_any_kind_are_folded() -> None:
    weight, c = constant(random(4, 3)), constant(random(4))
    graph = traced(lambda x: 2.0 * (c + (call("conv", x, weight) / 0.5 - c) * c) - 1.0)
    folded = canonicalize(graph)
    assert op_names(folded) == ["conv", "add"]
    np.testing.assert_allclose(value(folded, random(2, 3)), value(graph, random(2, 3)), rtol=1e-5, atol=1e-5)


def test_a_convolution_that_is_needed_elsewhere_is_not_computed_twice() -> None:
    weight = constant(random(4, 3))

    def skip(x: Tensor) -> Tensor:
        y = call("conv", x, weight) + 1.0
        return call("exp", y) + y * 2.0

    folded = canonicalize(traced(skip))
    assert op_names(folded).count("conv") == 1 and "multiply" in op_names(folded) and not folded.changes


@pytest.mark.parametrize(
    "behind",
    [
        lambda y: 1.0 / y,  # the convolution below the fraction
        lambda y: 1.0 - y,
        lambda y: y * constant(random(2, 4)),  # another factor for each sample
        lambda y: y * constant(random(2, 1)),
        lambda y: y / 0.0,  # would not be finite
        lambda y: y * y,
    ],
)
def test_what_is_no_chain_of_finite_constants_per_channel_stays(behind: Callable[[Tensor], Tensor]) -> None:
    weight = constant(random(4, 3))
    graph = traced(lambda x: behind(call("conv", x, weight)))
    assert op_names(canonicalize(graph)) == op_names(graph) and not canonicalize(graph).changes


def test_trained_parameters_are_not_folded() -> None:
    net = normalised(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2))
    x, y = input("x", (2, 4, 4, 1)), input("y", (2, 2))
    program = te.Program("net", infer=trace(net, x), train_step=te.train_step(net, nn.mse, nn.SGD(), x, y))
    assert "multiply" in op_names(program.entry_points["infer"]) and not program.changes


def test_every_change_is_in_the_manifest_and_c_gives_the_bits_of_the_reference_graph(tmp_path: Path) -> None:
    net = normalised(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
    build = te.build(te.Program("net", infer=trace(net, input("x", (1, 6, 6, 1)))), out=tmp_path)
    listed = json.loads((tmp_path / "manifest.json").read_text())["canonicalizations"]
    assert build.program.changes == tuple(listed)
    assert listed == [
        "relu2/relu moved behind max_pool3/max_pool",
        "batch_norm1/subtract folded into conv0/conv",
        "batch_norm1/multiply folded into conv0/conv",
        "batch_norm1/add folded into conv0/conv",
    ]
    te.verify(build, steps=5)
