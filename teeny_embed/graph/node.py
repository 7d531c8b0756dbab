"""Nodes, variables and graphs: what tracing records."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from teeny_embed.errors import DataError, GraphError, TeenyError
from teeny_embed.graph.op import NOT_DIFFERENTIABLE, Op, register
from teeny_embed.graph.quantization import Quantization
from teeny_embed.graph.types import TensorType

Array = npt.NDArray[Any]
Result = TypeVar("Result")


@dataclass(frozen=True)
class UniformDraw:
    """An initial value that the device can draw itself: uniform in +-bound, key (seed, stream), counter 0."""

    seed: int
    stream: int
    bound: float


@dataclass(eq=False)
class Variable:
    """A named tensor that survives between calls: a parameter, a moment, a running statistic.

    `kind` is "parameter" (what the net computes with) or "state" (everything else). `trainable=False` keeps
    a parameter as it is and prunes the backward pass. `reset` returns to `initial`; `draw` says how
    `initial` was drawn, if it was.
    """

    name: str
    value: Array
    kind: str = "parameter"
    trainable: bool = True
    draw: UniformDraw | None = None
    version: int = 0
    initial: Array = field(init=False)

    def __post_init__(self) -> None:
        self.start_from(self.value, self.draw)

    def start_from(self, value: Any, draw: UniformDraw | None = None) -> None:
        """Makes `value` the initial and the current value; `draw` says how it was drawn, if it was."""
        self.value = np.array(value, order="C")
        with locating(f"variable {self.name!r}"):
            TensorType(self.value.shape, self.value.dtype.name)
        self.initial = self.value.copy()
        self.draw = draw
        self.version += 1

    @property
    def type(self) -> TensorType:
        return TensorType(tuple(self.value.shape), self.value.dtype.name)

    def fitted(self, value: Any) -> Array:
        """A copy of `value` with this variable's shape and dtype. Raises DataError."""
        try:
            array = np.array(value, dtype=self.value.dtype)
        except (OverflowError, TypeError, ValueError) as error:
            hint = f"give an array of {self.value.dtype}"
            raise DataError(f"the value for {self.name!r} is no array: {error}", hint=hint) from None
        if array.shape != self.value.shape:
            hint = "transpose or reshape it: filters are OHWI, weights [outputs, inputs]"
            shapes = f"{list(array.shape)} for {self.name!r} of shape {list(self.value.shape)}"
            raise DataError(f"value of shape {shapes}", hint=hint)
        return array

    def set(self, value: Any) -> None:
        """Replace the current value; realised tensors that depend on it are computed anew when asked."""
        self.value = self.fitted(value)
        self.version += 1

    def reset(self) -> None:
        self.set(self.initial)


def load(variables: Mapping[str, Variable], values: Mapping[str, Any]) -> None:
    """Gives variables new values to start from, by name: all of them, or none if one does not fit."""
    fitted = {name: variables[name].fitted(value) for name, value in values.items()}
    for name, value in fitted.items():
        variables[name].start_from(value)


def expect_mapping(values: Any) -> None:
    """Raises DataError for what are no values by name."""
    if not isinstance(values, Mapping):
        hint = "give a dict of arrays, such as FitReport.state or Module.state_dict()"
        raise DataError(f"a {type(values).__name__} holds no values by name", hint=hint)


@dataclass(frozen=True, eq=False)
class Node:
    """One typed value. `name` is the layer path, `where` the user's source line, `serial` program order."""

    op: Op
    inputs: tuple[Node, ...]
    attributes: Mapping[str, Any]
    type: TensorType
    name: str
    where: str
    serial: int

    def __repr__(self) -> str:
        return f"<{self.op.name} {self.type} {self.name}>"


def _leaf_type(*, type: TensorType, **_: Any) -> TensorType:
    return type


INPUT = register(Op("input", "a value given at each call", _leaf_type, NOT_DIFFERENTIABLE, leaf=True))
CONSTANT = register(Op("constant", "a value known at build time", _leaf_type, NOT_DIFFERENTIABLE, leaf=True))
VARIABLE = register(
    Op("variable", "the current value of a variable", _leaf_type, NOT_DIFFERENTIABLE, leaf=True)
)

_serial = itertools.count()
_scope: ContextVar[tuple[str, ...]] = ContextVar("scope", default=())
_PACKAGE = __name__.partition(".")[0]


@contextmanager
def name_scope(path: str) -> Iterator[None]:
    """Names of nodes and variables made inside start with `path/`. Scopes nest."""
    token = _scope.set(_scope.get() + tuple(p for p in path.split("/") if p))
    try:
        yield
    finally:
        _scope.reset(token)


def scoped(name: str) -> str:
    """`name` within the current scope."""
    return "/".join((*_scope.get(), name)) if name else "/".join(_scope.get())


def user_line() -> str:
    """ "file.py:line" of the nearest frame outside this package, or what `called_from` says."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        if frame.f_code is called_from.__code__:
            return str(frame.f_locals["where"])
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def called_from(where: str, function: Callable[[], Result]) -> Result:
    """`function()`, as if the user had called it at the line `where`."""
    return function()


class locating:
    """Errors raised inside say what they are about and the user's line, unless they say so already."""

    def __init__(self, subject: str, where: str = "") -> None:
        self.subject, self.where = subject, where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, TeenyError) and error.where is None:
            error.what = f"{self.subject}: {error.what}"
            error.where = self.where or user_line()


_origin: ContextVar[tuple[str, str] | None] = ContextVar("origin", default=None)


@contextmanager
def on_behalf_of(node: Node, suffix: str = "") -> Iterator[None]:
    """Nodes made inside carry the name (and `suffix`) and source line of `node`."""
    token = _origin.set((node.name + suffix, node.where))
    try:
        yield
    finally:
        _origin.reset(token)


def make_node(op: Op, inputs: tuple[Node, ...], attributes: Mapping[str, Any], name: str = "") -> Node:
    """A new node; attributes are checked, the type is inferred. Errors say layer path and source line."""
    origin = _origin.get()
    path, where = origin or (name or scoped(op.name), user_line())
    with locating(f"{op.name} ({path})", where):
        op.check_operands(len(inputs))
        bound = dict(attributes) if op.leaf else op.bind(attributes)
        inferred = op.infer(*(i.type for i in inputs), **bound)
    return Node(op, inputs, bound, inferred, path, where, next(_serial))


def rebuild(node: Node, inputs: tuple[Node, ...]) -> Node:
    """`node` over other inputs, keeping its name and source line."""
    if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
        return node
    inferred = node.op.infer(*(i.type for i in inputs), **node.attributes)
    return Node(node.op, inputs, node.attributes, inferred, node.name, node.where, next(_serial))


def copied(node: Node, inputs: tuple[Node, ...]) -> Node:
    """`node` once more, over inputs of the same types, its name within the current scope."""
    return replace(node, inputs=inputs, name=scoped(node.name), serial=next(_serial))


@dataclass(frozen=True, eq=False)
class Check:
    """Something an entry point refuses before it writes: `kind` is "range", "rate" or "finite".

    range    every element of an integer input lies in [0, bound), else TE_ERR_RANGE
    rate     a rank-0 float input is finite and not negative, else TE_ERR_ARGUMENT
    finite   a computed value is finite before anything of the state is written, else TE_ERR_NONFINITE
    """

    kind: str
    node: Node
    bound: int = 0


@dataclass(frozen=True, eq=False)
class Graph:
    """A traced function: named inputs and outputs, and assignments to variables in program order.

    Calling it on Tensors computes the same with them: `te.trace` and `te.train_step` take a graph for a net.
    What differs between training and evaluation stays as it was when the graph was traced.
    """

    inputs: tuple[tuple[str, Node], ...]
    outputs: tuple[tuple[str, Node], ...]
    assigns: tuple[tuple[Variable, Node], ...] = ()
    checks: tuple[Check, ...] = ()
    changes: tuple[str, ...] = ()
    """What was rewritten so far that may change bits, one line each."""
    quantizations: Mapping[str, Quantization] = field(default_factory=dict)
    """What the integers of inputs and outputs stand for, by their names, where it is known."""

    def __call__(self, *inputs: Any) -> Any:
        """The output as a Tensor, or outputs by name; see `inline`."""
        from teeny_embed.graph.inline import inline

        return inline(self, inputs)

    @property
    def roots(self) -> tuple[Node, ...]:
        return (*(n for _, n in self.outputs), *(n for _, n in self.assigns), *(c.node for c in self.checks))

    def nodes(self) -> list[Node]:
        """Every node that the roots need, operands first, in program order where that leaves a choice."""
        return topological(self.roots)

    def variables(self) -> list[Variable]:
        """Variables read or assigned, in order of first use."""
        read = [n.attributes["variable"] for n in self.nodes() if n.op is VARIABLE]
        return list(dict.fromkeys([*read, *(v for v, _ in self.assigns)]))


def topological(roots: tuple[Node, ...], stop: tuple[Node, ...] = ()) -> list[Node]:
    """Nodes below `roots`, operands before users, without `stop` and what only they need."""
    done: dict[Node, None] = dict.fromkeys(stop)
    for root in roots:
        stack = [(root, iter(root.inputs))]
        while stack:
            node, remaining = stack[-1]
            if node in done:
                stack.pop()
                continue
            following = next((i for i in remaining if i not in done), None)
            if following is None:
                done[node] = None
                stack.pop()
            else:
                stack.append((following, iter(following.inputs)))
    return list(done)[len(dict.fromkeys(stop)) :]


def verify(graph: Graph) -> Graph:
    """`graph` itself if every node has the type its operator infers and every input is declared."""
    declared = {n for _, n in graph.inputs}
    for node in graph.nodes():
        if node.op is INPUT and node not in declared:
            hint = "give it to te.trace or te.train_step, in the order of the function's arguments"
            raise GraphError(f"{node.name!r} is used but is not an input of this graph", node.where, hint)
        if not node.op.leaf and node.op.infer(*(i.type for i in node.inputs), **node.attributes) != node.type:
            raise GraphError(f"{node!r}: type differs from what {node.op.name} infers", node.where)
    for variable, node in graph.assigns:
        if variable.type != node.type:
            raise GraphError(f"{variable.name} of type {variable.type} is assigned {node.type}", node.where)
    return graph


def print_graph(graph: Graph) -> str:
    """One line per node: `%3 = conv(%1, %2) stride=(2, 2)  float32[1,5,5,8]  # net/conv0`."""
    numbers: dict[Node, int] = {}
    lines = []
    for number, node in enumerate(graph.nodes()):
        numbers[node] = number
        operands = ", ".join(f"%{numbers[i]}" for i in node.inputs)
        lines.append(
            f"%{number} = {node.op.name}({operands}){_attribute_text(node)}  {node.type}  # {node.name}"
        )
    for name, node in graph.outputs:
        lines.append(f"return {name} = %{numbers[node]}")
    for variable, node in graph.assigns:
        lines.append(f"{variable.name} <- %{numbers[node]}")
    return "\n".join(lines) + "\n"


def _attribute_text(node: Node) -> str:
    if node.op is CONSTANT:
        value = node.attributes["value"]
        return f" value={value.item()!r}" if value.size == 1 else ""
    if node.op.leaf:
        return ""
    shown = {k: v for k, v in node.attributes.items() if node.op.attributes[k].default != v}
    return "".join(f" {k}={v!r}" for k, v in shown.items())
