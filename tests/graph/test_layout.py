"""Transposes moved behind what lies between them: the same values, and none left inside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from teeny_embed.graph.layout import sink_transposes
from teeny_embed.graph.lower import Evaluator
from teeny_embed.graph.node import Graph
from teeny_embed.graph.ops.movement import concat
from teeny_embed.graph.tensor import Tensor, call, constant, input, operator, trace

X = np.random.default_rng(2).standard_normal((2, 3, 4, 5), dtype=np.float32)
CHANNELS = constant(np.array([0.5, -1.0, 2.0], np.float32))


def turned(x: Tensor) -> Tensor:
    """[N, H, W, C] as [N, C, H, W]."""
    return x.transpose(0, 3, 1, 2)


def kinds(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes()]


MOVED: dict[str, Callable[[Tensor], Tensor]] = {
    "unary": lambda x: call("exp", x),
    "number": lambda x: x * 2.0 + 1.0,
    "per_channel": lambda x: x * CHANNELS.reshape((1, 3, 1, 1)) + CHANNELS.reshape((3, 1, 1)),
    "both": lambda x: x + call("relu", x),
    "where": lambda x: operator("where")(x > 0.0, x, 0.0),
    "reduce_kept": lambda x: x - x.mean((2, 3), keepdims=True),
    "reduce_batch": lambda x: x - x.sum((0, 2, 3)).reshape((1, 3, 1, 1)),
    "softmax": lambda x: call("softmax", x, axis=1),
    "slice": lambda x: x[:, 1:, ::2, 1:4],
    "pad": lambda x: call("pad", x, starts=(0, 1, 0, 2), shape=(2, 5, 4, 8), value=1.0),
    "concat": lambda x: concat(x, call("exp", x), axis=1),
    "unit_axes": lambda x: call("exp", x.reshape((2, 1, 3, 4, 5))).reshape((2, 3, 4, 1, 5)),
}


@pytest.mark.parametrize("name", MOVED)
def test_a_transpose_moves_behind(name: str) -> None:
    graph = trace(lambda x: MOVED[name](turned(x)), input("x", (2, 4, 5, 3)))
    assert isinstance(graph, Graph)
    found = sink_transposes(graph)
    order = kinds(found)
    assert order.count("transpose") == 1 and order[-1] == "transpose"
    feed = {"x": np.ascontiguousarray(X.transpose(0, 2, 3, 1))}
    expected = Evaluator(graph)(feed)[0]["output"]
    assert Evaluator(found)(feed)[0]["output"].tobytes() == expected.tobytes()


def test_a_chain_of_channels_first_keeps_those_of_its_ends() -> None:
    def convolved(x: Tensor) -> Tensor:
        last = x.transpose(0, 2, 3, 1)
        filters = constant(np.ones((3, 3, 3, 3), np.float32))
        return turned(call("conv", last, filters, padding=((1, 1), (1, 1))))

    def net(x: Tensor) -> Tensor:
        first = call("relu", convolved(x) * CHANNELS.reshape((1, 3, 1, 1)))
        return convolved(first) + first

    graph = trace(net, input("x", X.shape))
    assert isinstance(graph, Graph)
    found = sink_transposes(graph)
    assert (kinds(graph).count("transpose"), kinds(found).count("transpose")) == (4, 2)
    expected = Evaluator(graph)({"x": X})[0]["output"]
    assert Evaluator(found)({"x": X})[0]["output"].tobytes() == expected.tobytes()


@pytest.mark.parametrize("axes", [(1, 3), (0, 1)])
def test_a_sum_whose_order_would_change_stays(axes: tuple[int, int]) -> None:
    graph = trace(lambda x: turned(x).sum(axes), input("x", (2, 4, 5, 3)))
    assert isinstance(graph, Graph)
    assert kinds(sink_transposes(graph)) == kinds(graph)


def test_moving_an_axis_of_one_element_is_a_reshape() -> None:
    graph = trace(turned, input("x", (2, 4, 5, 1)))
    assert isinstance(graph, Graph)
    assert kinds(sink_transposes(graph)) == ["input", "reshape"]
