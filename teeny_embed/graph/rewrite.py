"""Graph to graph: what every rewriting pass is made of, and the expansion of composite operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from teeny_embed.graph.node import Graph, Node, on_behalf_of, rebuild, topological
from teeny_embed.graph.tensor import Tensor

Visit = Callable[[Node, tuple[Node, ...]], Node]


def transform(graph: Graph, visit: Visit) -> Graph:
    """A graph in which `visit(node, new inputs)` stands for each node, operands first."""
    return replace_nodes(graph, transform_nodes(graph.roots, visit))


def transform_nodes(roots: tuple[Node, ...], visit: Visit) -> dict[Node, Node]:
    """What stands for each node below `roots`."""
    done: dict[Node, Node] = {}
    for node in topological(roots):
        done[node] = visit(node, tuple(done[i] for i in node.inputs))
    return done


def replace_nodes(graph: Graph, new: dict[Node, Node]) -> Graph:
    """`graph` with its roots replaced."""
    return replace(
        graph,
        outputs=tuple((name, new[n]) for name, n in graph.outputs),
        assigns=tuple((v, new[n]) for v, n in graph.assigns),
        checks=tuple(replace(c, node=new[c.node]) for c in graph.checks),
    )


def expand_composites(graph: Graph) -> Graph:
    """Composite operators written out in other operators, to the last."""
    return transform(graph, expand)


def expand(node: Node, inputs: tuple[Node, ...]) -> Node:
    """One node over new inputs, written out if it is composite."""
    if node.op.composite is None:
        return rebuild(node, inputs)
    with on_behalf_of(node):
        written_out = node.op.composite(*map(Tensor, inputs), **node.attributes).node
        done: dict[Node, Node] = {i: i for i in inputs}
        for inner in topological((written_out,), stop=inputs):
            done[inner] = expand(inner, tuple(done[i] for i in inner.inputs))
    return done[written_out]
