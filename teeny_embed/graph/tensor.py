"""`Tensor`: lazy values with NumPy's operators. Nothing runs until `.numpy()`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from teeny_embed.errors import DTypeError, GraphError
from teeny_embed.graph import node as nodes
from teeny_embed.graph.node import Array, Check, Graph, Node, Variable, locating, make_node
from teeny_embed.graph.op import REGISTRY
from teeny_embed.graph.types import TensorType

if TYPE_CHECKING:
    from teeny_embed.graph.deferred import DeferredGraph, Extent


class Tensor:
    """A value that is computed when asked for. dtypes promote by NumPy's rules; Python numbers are weak."""

    __array_priority__ = 1000
    __slots__ = ("_cache", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self._cache: tuple[tuple[int, ...], Array] | None = None

    @property
    def type(self) -> TensorType:
        return self.node.type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.type.shape

    @property
    def dtype(self) -> str:
        return self.node.type.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    def numpy(self) -> Array:
        """Runs what this value needs, in the stated order, and returns a copy."""
        from teeny_embed.graph.lower import evaluate_nodes

        variables = [
            n.attributes["variable"] for n in nodes.topological((self.node,)) if n.op is nodes.VARIABLE
        ]
        versions = tuple(v.version for v in variables)
        if self._cache is None or self._cache[0] != versions:
            self._cache = versions, evaluate_nodes((self.node,))[0]
        return self._cache[1].copy()

    def __float__(self) -> float:
        return float(self.numpy())

    def __repr__(self) -> str:
        return f"Tensor({self.numpy()!r}, {self.node.name})"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a rank-0 tensor has no length")
        return self.shape[0]

    def __add__(self, other: Any) -> Tensor:
        return binary("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return binary("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return binary("subtract", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return binary("subtract", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return binary("multiply", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return binary("multiply", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return binary("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return binary("divide", other, self)

    def __pow__(self, other: Any) -> Tensor:
        return binary("pow", self, other)

    def __matmul__(self, other: Any) -> Tensor:
        return call("matmul", self, as_tensor(other))

    def __neg__(self) -> Tensor:
        return call("negative", self)

    def __lt__(self, other: Any) -> Tensor:
        return binary("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return binary("less_equal", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return binary("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return binary("greater_equal", self, other)

    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]
        return binary("equal", self, other)

    def __ne__(self, other: Any) -> Tensor:  # type: ignore[override]
        return binary("not_equal", self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __getitem__(self, key: Any) -> Tensor:
        return slice_by_key(self, key)

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The same elements, row-major, in another shape; one extent may be -1."""
        target = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return call("reshape", self, shape=tuple(target))

    def transpose(self, *axes: int) -> Tensor:
        """Axes in another order; reversed if none are given."""
        return call("transpose", self, axes=axes or tuple(reversed(range(self.rank))))

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return call("sum", self, axes=axis, keepdims=keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return call("mean", self, axes=axis, keepdims=keepdims)

    def astype(self, dtype: str) -> Tensor:
        return self if dtype == self.dtype else call("cast", self, dtype=dtype)


def call(name: str, *operands: Tensor, **attributes: Any) -> Tensor:
    """Records operator `name`."""
    return Tensor(make_node(REGISTRY[name], tuple(o.node for o in operands), attributes))


def operator(name: str) -> Callable[..., Tensor]:
    """The operator as a function of Tensors, Variables, arrays and numbers: operator("exp")(x)."""
    op = REGISTRY[name]

    def record(*operands: Any, **attributes: Any) -> Tensor:
        return call(name, *map(as_tensor, operands), **attributes)

    record.__name__, record.__doc__ = name, op.summary
    return record


def constant(value: Any, dtype: str | None = None, name: str = "") -> Tensor:
    """A tensor known at build time."""
    array = np.array(value, dtype=dtype)
    if dtype is None and array.dtype == np.float64:
        array = array.astype(np.float32)
    attributes = {"type": TensorType(array.shape, array.dtype.name), "value": array}
    return Tensor(make_node(nodes.CONSTANT, (), attributes, name or nodes.scoped("constant")))


def input(name: str, shape: Sequence[Extent], dtype: str = "float32") -> Tensor:
    """A placeholder, given at each call: a pointer argument, or a value if its rank is 0.

    The name becomes that of a C argument. An extent may be a name, too, or None, which is the name "N": bound
    by `te.build(program, dims={"N": 8})`. Raises GraphError, ShapeError, DTypeError.
    """
    from teeny_embed.graph.deferred import UnboundInput, named_extents

    _check_name(name)
    with locating(f"input {name!r}"):
        extents = named_extents(shape)
        fixed = tuple(e for e in extents if not isinstance(e, str))
        type = TensorType(fixed, dtype)
    if len(fixed) < len(extents):
        return UnboundInput(name, extents, dtype)
    return Tensor(make_node(nodes.INPUT, (), {"type": type}, name))


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name):
        hint = "use letters, digits and underscores, a letter first"
        raise GraphError(f"input name {name!r} is no C identifier", nodes.user_line(), hint)


def as_tensor(value: Any, dtype: str | None = None) -> Tensor:
    """`value` as a Tensor: Tensors as they are, Variables as their current version, all else constant."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Variable):
        return read(value)
    return constant(value, dtype)


def binary(name: str, a: Any, b: Any) -> Tensor:
    """An elementwise operator after NumPy's dtype promotion."""
    left, right = promote(a, b)
    return call(name, left, right)


def promote(*values: Any) -> tuple[Tensor, ...]:
    """Operands of one dtype. A Python number takes the dtype of the others (float32 beside integers)."""
    strong = [v for v in values if not isinstance(v, int | float | bool)]
    tensors = [as_tensor(v) for v in strong]
    if not tensors:
        return tuple(constant(v) for v in values)
    dtype = np.result_type(*(t.dtype for t in tensors)).name
    weak = [v for v in values if isinstance(v, int | float | bool)]
    if np.dtype(dtype).kind != "f" and any(isinstance(v, float) for v in weak):
        dtype = "float32"
    if dtype == "float64" and not any(t.dtype == "float64" for t in tensors):
        raise DTypeError(
            f"{' and '.join(t.dtype for t in tensors)} promote to float64, which no device computes",
            hint="cast one operand with .astype(...)",
        )
    return tuple(
        constant(v, dtype) if isinstance(v, int | float | bool) else as_tensor(v).astype(dtype)
        for v in values
    )


# ---- Recording ----------------------------------------------------------------------------------------


class Recording:
    """What tracing collects: assignments in program order, checks, and the current version of variables."""

    def __init__(self) -> None:
        self.versions: dict[Variable, Tensor] = {}
        self.checks: list[Check] = []
        self.changes: list[str] = []

    def nodes(self) -> tuple[Node, ...]:
        """What later versions and checks are made of."""
        return (*(t.node for t in self.versions.values()), *(c.node for c in self.checks))

    def replace(self, new: Mapping[Node, Node]) -> None:
        """Puts `new` nodes in the place of recorded ones."""
        self.versions = {v: Tensor(new[t.node]) for v, t in self.versions.items()}
        self.checks = [replace(c, node=new[c.node]) for c in self.checks]


_recording: ContextVar[Recording | None] = ContextVar("recording", default=None)


def current_recording() -> Recording | None:
    """The recording under way, or None."""
    return _recording.get()


def read(variable: Variable) -> Tensor:
    """The current version of a variable."""
    recording = _recording.get()
    if recording is not None and variable in recording.versions:
        return recording.versions[variable]
    tensor = Tensor(
        make_node(nodes.VARIABLE, (), {"type": variable.type, "variable": variable}, variable.name)
    )
    if recording is not None:
        recording.versions[variable] = tensor
    return tensor


def assign(variable: Variable, value: Any) -> None:
    """Gives a variable its next version: recorded while tracing, at once otherwise. Program order holds."""
    tensor = as_tensor(value, variable.type.dtype)
    if tensor.type != variable.type:
        raise DTypeError(f"assign: {variable.name} is {variable.type}, the value is {tensor.type}")
    recording = _recording.get()
    if recording is None:
        variable.set(tensor.numpy())
    else:
        recording.versions.pop(variable, None)  # assignments stay in program order
        recording.versions[variable] = tensor


def check(kind: str, tensor: Tensor, bound: int = 0) -> None:
    """Records what an entry point refuses; see `node.Check`. Outside tracing there is nothing to refuse."""
    recording = _recording.get()
    if recording is not None:
        recording.checks.append(Check(kind, tensor.node, bound))


@contextmanager
def recording() -> Iterator[Recording]:
    """Collects assignments and checks made inside."""
    fresh = Recording()
    token = _recording.set(fresh)
    try:
        yield fresh
    finally:
        _recording.reset(token)


def trace(
    function: Callable[..., Any], *inputs: Tensor, names: Sequence[str] | None = None
) -> Graph | DeferredGraph:
    """The graph of `function(*inputs)`; `inputs` are placeholders. Returns may be a Tensor, tuple or dict.

    With inputs that have unbound dims the function is called, and its graph made, when they are bound.
    """
    from teeny_embed.graph.deferred import DeferredGraph, UnboundInput

    if any(isinstance(tensor, UnboundInput) for tensor in inputs):
        return DeferredGraph(function, inputs, names, nodes.user_line())
    for tensor in inputs:
        if tensor.node.op is not nodes.INPUT:
            raise GraphError(
                f"trace: {tensor.node.name} is no input", hint="make it with te.input(name, shape)"
            )
    if isinstance(function, Graph) and names is None:
        names = [name for name, _ in function.outputs]
    with recording() as recorded:
        outputs = _named(function(*inputs), names)
    assigns = tuple(
        (v, t.node) for v, t in recorded.versions.items() if t.node.attributes.get("variable") is not v
    )
    graph = Graph(
        tuple((t.node.name, t.node) for t in inputs),
        tuple((name, t.node) for name, t in outputs.items()),
        assigns,
        tuple(recorded.checks),
        tuple(recorded.changes),
    )
    checks = (*graph.checks, *_index_checks(graph))
    return nodes.verify(replace(graph, checks=checks))


def _index_checks(graph: Graph) -> list[Check]:
    """A range check for each input whose values index something, directly or through views and casts."""
    bounds: dict[Node, int] = {}
    for node in graph.nodes():
        types = [i.type for i in node.inputs]
        indexed = node.op.index_bounds(*types, **node.attributes) if node.op.index_bounds else {}
        for position, bound in indexed.items():
            source = node.inputs[position]
            while source.op.view is not None or source.op.name == "cast":
                source = source.inputs[0]
            if source.op is nodes.INPUT:
                bounds[source] = min(bound, bounds.get(source, bound))
    return [Check("range", source, bound) for source, bound in bounds.items()]


def _named(result: Any, names: Sequence[str] | None) -> dict[str, Tensor]:
    if isinstance(result, dict):
        return {k: as_tensor(v) for k, v in result.items()}
    values = tuple(result) if isinstance(result, tuple | list) else (result,)
    default = ["output"] if len(values) == 1 else [f"output{i}" for i in range(len(values))]
    return dict(zip(names or default, map(as_tensor, values), strict=True))


def slice_by_key(x: Tensor, key: Any) -> Tensor:
    """NumPy's basic indexing: integers and slices with positive steps."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        keys[at : at + 1] = [slice(None)] * (x.rank - len(keys) + 1)
    keys += [slice(None)] * (x.rank - len(keys))
    starts, stops, steps, kept = [], [], [], []
    for k, extent in zip(keys, x.shape, strict=True):
        if isinstance(k, int):
            k = slice(k % extent, k % extent + 1)
        else:
            kept.append(len(range(*k.indices(extent))))
        start, stop, step = k.indices(extent)
        starts.append(start)
        stops.append(stop)
        steps.append(step)
    sliced = call("slice", x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
    return sliced.reshape(tuple(kept)) if len(kept) != x.rank else sliced
