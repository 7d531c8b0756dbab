"""What tracing collects beside the nodes themselves: versions of variables, checks, and changes of bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace

from teeny_embed.graph.node import INPUT, Check, Graph, Node, Variable


class Recording:
    """Assignments in program order, as the current version of each variable; checks; changes."""

    def __init__(self) -> None:
        self.versions: dict[Variable, Node] = {}
        self.checks: list[Check] = []
        self.changes: list[str] = []

    def assign(self, variable: Variable, version: Node) -> None:
        """The next version, last in order."""
        self.versions.pop(variable, None)
        self.versions[variable] = version

    def assigns(self) -> tuple[tuple[Variable, Node], ...]:
        """Variables that got a new version."""
        return tuple(
            (v, node) for v, node in self.versions.items() if node.attributes.get("variable") is not v
        )

    def nodes(self) -> tuple[Node, ...]:
        """What later versions and checks are made of."""
        return (*self.versions.values(), *(c.node for c in self.checks))

    def replace(self, new: Mapping[Node, Node]) -> None:
        """Puts `new` nodes in the place of recorded ones."""
        self.versions = {variable: new[node] for variable, node in self.versions.items()}
        self.checks = [replace(c, node=new[c.node]) for c in self.checks]


_recording: ContextVar[Recording | None] = ContextVar("recording", default=None)


def current_recording() -> Recording | None:
    """The recording under way, or None."""
    return _recording.get()


@contextmanager
def recording() -> Iterator[Recording]:
    """Collects assignments and checks made inside."""
    fresh = Recording()
    token = _recording.set(fresh)
    try:
        yield fresh
    finally:
        _recording.reset(token)


def index_checks(graph: Graph) -> list[Check]:
    """A range check for each input whose values index something, directly or through views and casts."""
    bounds: dict[Node, int] = {}
    for node in graph.nodes():
        types = [i.type for i in node.inputs]
        indexed = node.op.index_bounds(*types, **node.attributes) if node.op.index_bounds else {}
        for position, bound in indexed.items():
            source = node.inputs[position]
            while source.op.view is not None or source.op.name == "cast":
                source = source.inputs[0]
            if source.op is INPUT:
                bounds[source] = min(bound, bounds.get(source, bound))
    return [Check("range", source, bound) for source, bound in bounds.items()]
