"""`Program`: the entry points that make up one C module."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.emit_c.names import identifier
from teeny_embed.errors import DataError, DTypeError, GraphError
from teeny_embed.graph.canonicalize import canonicalize, freeze
from teeny_embed.graph.deferred import DeferredGraph, UnboundInput
from teeny_embed.graph.node import CONSTANT, Graph, Variable, expect_mapping, load, locating, print_graph
from teeny_embed.graph.node import verify as verify_graph
from teeny_embed.graph.types import TensorType

_STORING = {f"{verb}{what}" for verb in ("save", "load", "check") for what in ("", "_slot", "_parameters")}
RESERVED = frozenset({"init", "reset", "selftest", *_STORING})
"""Names that every module uses itself."""


class Program:
    """Entry points that share parameters, state and one arena: `Program("net", infer=..., train_step=...)`.

    Raises GraphError for names that C cannot use.
    """

    def __init__(self, name: str, **entry_points: Graph | DeferredGraph) -> None:
        with locating(f"program {name!r}"):
            _check_names(name, list(entry_points))
            _check_graphs(entry_points)
        self.name = name
        self._given = dict(entry_points)
        self._reference: dict[str, Graph] = {}
        if not self._unbound:
            self._canonicalize()

    def _canonicalize(self) -> None:
        """Parameters that no entry point assigns become constants, with the values that they have now."""
        traced = self._traced()
        assigned = {variable for graph in traced.values() for variable, _ in graph.assigns}
        with locating(f"program {self.name!r}"):
            _check_variables(assigned)
        self._reference = {
            entry: canonicalize(freeze(verify_graph(graph), assigned)) for entry, graph in traced.items()
        }

    @property
    def entry_points(self) -> Mapping[str, Graph]:
        """The reference graphs. Raises GraphError if a dim is not bound."""
        self._traced()
        return self._reference

    @property
    def changes(self) -> tuple[str, ...]:
        """What canonicalisation did that may have changed bits."""
        return tuple(change for graph in self.entry_points.values() for change in graph.changes)

    # ---- Dims

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of extents that `bind` gives a number."""
        return tuple(self._unbound)

    @property
    def _unbound(self) -> dict[str, UnboundInput]:
        deferred = [g for g in self._given.values() if isinstance(g, DeferredGraph)]
        return {dim: where for graph in deferred for dim, where in graph.unbound.items()}

    def bind(self, dims: Mapping[str, int]) -> Program:
        """The program with a number for each of its dims. Raises GraphError for a missing or unknown one."""
        if unknown := [dim for dim in dims if dim not in self.dims]:
            known = "its dims are " + ", ".join(self.dims) if self.dims else "all its shapes are fixed"
            raise GraphError(f"program {self.name} has no dim {unknown[0]!r}", hint=known)
        if not self.dims:
            return self
        graphs = {e: g.bind(dims) if isinstance(g, DeferredGraph) else g for e, g in self._given.items()}
        return Program(self.name, **graphs)

    def _traced(self) -> dict[str, Graph]:
        """The graphs as traced. Raises GraphError if a dim is not bound."""
        for each in self._unbound.values():
            each.bind({})  # says which dim is missing
        return {entry: g for entry, g in self._given.items() if isinstance(g, Graph)}

    def renamed(self, name: str) -> Program:
        """The same program with another name, the prefix of its C."""
        return Program(name, **self._given)

    def variables(self) -> list[Variable]:
        """Variables of all entry points, frozen ones too, in order of first use."""
        return list(dict.fromkeys(v for g in self._traced().values() for v in g.variables()))

    def load(self, values: Mapping[str, npt.ArrayLike]) -> None:
        """Sets variables by name, such as `FitReport.state`: what the next build starts from.

        Others keep their values; all do if one is refused. Raises DataError.
        """
        variables = {variable.name: variable for variable in self.variables()}
        with locating("load"):
            expect_mapping(values)
            if unknown := [name for name in values if name not in variables]:
                hint = "it has " + ", ".join(variables)
                raise DataError(f"{self.name} has no variable {unknown[0]!r}", hint=hint)
            load(variables, values)
        self._canonicalize()

    def text(self) -> str:
        """The reference graphs, printed."""
        return "\n".join(f"{n}:\n{print_graph(g)}" for n, g in self.entry_points.items())


def _check_names(name: str, entries: list[str]) -> None:
    if identifier(str(name)) != name or name != name.lower():
        hint = f"try {identifier(str(name).lower())!r}"
        raise GraphError("the name is no lower-case C identifier", hint=hint)
    if not entries:
        raise GraphError("it has no entry points", hint="te.Program(name, infer=te.trace(net, x))")
    if reserved := sorted(RESERVED & set(entries)):
        hint = "call it infer, train_step, evaluate or what it does"
        raise GraphError(f"entry point {reserved[0]!r} is a name that every module uses itself", hint=hint)


def _check_graphs(entry_points: Mapping[str, Any]) -> None:
    """Entry points are graphs, whose inputs C can pass."""
    for entry, graph in entry_points.items():
        if not isinstance(graph, Graph | DeferredGraph):
            hint = f"{entry}=te.trace(net, te.input(...))"
            raise GraphError(f"entry point {entry!r} is a {type(graph).__name__}, no graph", hint=hint)
        for name, node in graph.inputs if isinstance(graph, Graph) else ():
            if node.type == TensorType((), "float16"):
                hint = "C has no such type: give it the shape (1,)"
                raise DTypeError(f"input {name!r} of rank 0 is float16", node.where, hint)


def _check_variables(variables: Collection[Variable]) -> None:
    """What is kept on the device is told apart by name."""
    names = [variable.name for variable in variables]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        hint = "put the nets into one Module, whose attributes give them other names"
        raise GraphError(f"two variables are called {repeated[0]!r}", hint=hint)


def check_finite(program: Program) -> None:
    """Raises DataError if a parameter or state starts with NaN or infinity, or a constant table holds NaN."""
    for variable in program.variables():
        if not np.isfinite(variable.initial).all():
            hint = "train again, or load finite values"
            raise DataError(f"{variable.name} holds NaN or infinity", hint=hint)
    for graph in program.entry_points.values():
        tables = [node for node in graph.nodes() if node.op is CONSTANT and node.type.count > 1]
        for node in tables:
            if not np.isfinite(node.attributes["value"]).all():
                hint = "a table in C holds numbers"
                raise DataError(f"constant {node.name} holds NaN", node.where, hint)
