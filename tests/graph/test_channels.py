"""Channels that nothing needs: which leave a net of integers, and that no bit changes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from support.quantized import clamped, number, quantized_conv
from teeny_embed.graph.canonicalize import canonicalize
from teeny_embed.graph.lower import evaluate_graph
from teeny_embed.graph.node import Graph
from teeny_embed.graph.tensor import Tensor, call, constant, input, trace

Net = Callable[[Tensor, np.random.Generator], Tensor]
NONE = 12
"""Channels of the first convolution, of which the last 5 have no weights."""


def first(x: Tensor, rng: np.random.Generator) -> Tensor:
    return quantized_conv(x, (NONE, 3, 3, 2), rng, padding=((1, 1), (1, 1)), empty=slice(7, NONE))


def pointwise(x: Tensor, rng: np.random.Generator) -> Tensor:
    return quantized_conv(x, (4, 1, 1, x.shape[-1]), rng, input_zero_point=5)


def depthwise(x: Tensor, rng: np.random.Generator, **where: object) -> Tensor:
    return quantized_conv(x, (NONE, 3, 3, 1), rng, input_zero_point=5, groups=NONE, **where)


def mean_then_linear(x: Tensor, rng: np.random.Generator) -> Tensor:
    total = call("sum_pool", first(x, rng), kernel=(6, 6))
    return quantized_conv(clamped(total / number(36)).reshape((1, NONE)), (3, NONE), rng)


def residual(x: Tensor, rng: np.random.Generator) -> Tensor:
    """The sum has known channels only where both of its operands do."""
    y = first(x, rng)
    other = quantized_conv(x, (NONE, 1, 1, 2), rng, empty=slice(4, NONE))
    return pointwise(clamped(y.astype("int32") + other.astype("int32")), rng)


def unread(x: Tensor, rng: np.random.Generator) -> Tensor:
    """Filters whose weights for some channels are 0."""
    weights = rng.integers(-127, 128, (4, 1, 1, NONE)).astype(np.int8)
    weights[..., 2:10] = 0
    y = quantized_conv(x, (NONE, 3, 3, 2), rng)
    return call("conv", y, constant(weights, "int8"), zero_points=(1, 0), accumulator="int32")


NETS: dict[str, tuple[Net, list[int]]] = {
    "pointwise": (lambda x, rng: pointwise(first(x, rng), rng), [8, 4]),
    "depthwise between": (lambda x, rng: pointwise(depthwise(first(x, rng), rng), rng), [8, 8, 4]),
    "border of other values": (
        lambda x, rng: pointwise(depthwise(first(x, rng), rng, padding=((1, 1), (1, 1))), rng),
        [12, 12, 4],
    ),
    "mean": (mean_then_linear, [8, 3]),
    "residual": (residual, [8, 8, 4]),
    "unread": (unread, [4, 4]),
    "output": (first, [12]),
}


def widths(graph: Graph) -> list[int]:
    """Filters of each convolution."""
    return [node.type.shape[-1] for node in graph.nodes() if node.op.name == "conv"]


@pytest.mark.parametrize("name", NETS)
def test_channels_that_nothing_needs_are_left_out(name: str) -> None:
    net, expected = NETS[name]
    rng = np.random.default_rng(1)
    graph = trace(lambda x: net(x, rng), input("x", (1, 6, 6, 2), "int8"))
    slim = canonicalize(graph)
    assert widths(slim) == expected and not slim.changes
    for _ in range(3):
        x = rng.integers(-128, 128, (1, 6, 6, 2)).astype(np.int8)
        (found, _), (wanted, _) = (evaluate_graph(each, {"x": x}) for each in (slim, graph))
        assert np.array_equal(found["output"], wanted["output"])


def test_what_dropped_channels_add_is_a_part_of_the_bias() -> None:
    rng = np.random.default_rng(1)
    graph = trace(lambda x: pointwise(first(x, rng), rng), input("x", (1, 6, 6, 2), "int8"))
    names = [[node.op.name for node in g.nodes() if node.inputs] for g in (graph, canonicalize(graph))]
    assert names[0] == names[1]


def test_an_activation_of_known_channels_alone_keeps_some() -> None:
    rng = np.random.default_rng(1)

    def net(x: Tensor) -> Tensor:
        return pointwise(quantized_conv(x, (NONE, 3, 3, 2), rng, empty=slice(NONE)), rng)

    assert widths(canonicalize(trace(net, input("x", (1, 6, 6, 2), "int8")))) == [4, 4]
