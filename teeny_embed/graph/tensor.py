"""`Tensor`: lazy values with NumPy's operators. Nothing runs until `.numpy()`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teeny_embed.errors import DTypeError, GraphError, ShapeError
from teeny_embed.graph import node as nodes
from teeny_embed.graph.node import Array, Check, Graph, Node, Variable, locating, make_node
from teeny_embed.graph.op import REGISTRY
from teeny_embed.graph.recording import current_recording, index_checks, recording
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

        needed = nodes.topological((self.node,))
        if found := next((n for n in needed if n.op is nodes.INPUT), None):
            hint = "choose by value with te.where; te.trace makes a graph that can be given inputs"
            raise GraphError(f"input {found.name!r} has no value while tracing", nodes.user_line(), hint)
        variables = [n.attributes["variable"] for n in needed if n.op is nodes.VARIABLE]
        versions = tuple(v.version for v in variables)
        if self._cache is None or self._cache[0] != versions:
            self._cache = versions, evaluate_nodes((self.node,))[0]
        return self._cache[1].copy()

    def __float__(self) -> float:
        return float(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __repr__(self) -> str:
        if any(node.op is nodes.INPUT for node in nodes.topological((self.node,))):
            return f"Tensor({self.type}, {self.node.name})"
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
        from teeny_embed.graph.indexing import slice_by_key

        return slice_by_key(self, key)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The same elements, row-major, in another shape; one extent may be -1."""
        target = shape[0] if len(shape) == 1 and isinstance(shape[0], Iterable) else shape
        return call("reshape", self, shape=tuple(target))

    def transpose(self, *axes: int) -> Tensor:
        """Axes in another order; reversed if none are given."""
        return call("transpose", self, axes=axes or tuple(reversed(range(self.rank))))

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return call("sum", self, axes=axis, keepdims=keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return call("mean", self, axes=axis, keepdims=keepdims)

    def astype(self, dtype: npt.DTypeLike) -> Tensor:
        name = dtype_name(dtype)
        return self if name == self.dtype else call("cast", self, dtype=name)


def dtype_name(dtype: Any) -> str:
    """NumPy's name of np.float32 and the like; names as they are. Raises DTypeError."""
    try:
        return dtype if isinstance(dtype, str) else np.dtype(dtype).name
    except TypeError:
        raise DTypeError(f"{dtype!r} is no dtype", nodes.user_line(), 'such as "float32"') from None


def call(name: str, *operands: Tensor, **attributes: Any) -> Tensor:
    """Records operator `name`."""
    if name not in REGISTRY:
        near = ", ".join(get_close_matches(name, REGISTRY)) or "`teeny-embed ops` lists them"
        raise GraphError(f"there is no operator {name!r}", nodes.user_line(), f"near: {near}")
    return Tensor(make_node(REGISTRY[name], tuple(o.node for o in operands), attributes))


def operator(name: str) -> Callable[..., Tensor]:
    """The operator as a function of Tensors, Variables, arrays and numbers: operator("exp")(x)."""
    op = REGISTRY[name]

    def record(*operands: Any, **attributes: Any) -> Tensor:
        return call(name, *map(as_tensor, operands), **attributes)

    record.__name__, record.__doc__ = name, op.summary
    return record


def constant(value: Any, dtype: str | None = None, name: str = "") -> Tensor:
    """A tensor known at build time. float64 becomes float32 unless `dtype` says otherwise."""
    with locating("constant"):
        array = _array(value, dtype)
        if dtype is None and array.dtype == np.float64:
            array = array.astype(np.float32)
        attributes = {"type": TensorType(array.shape, array.dtype.name), "value": array}
    return Tensor(make_node(nodes.CONSTANT, (), attributes, name or nodes.scoped("constant")))


def _array(value: Any, dtype: str | None) -> Array:
    try:
        return np.array(value, dtype=dtype)
    except (OverflowError, TypeError, ValueError) as error:
        hint = "give numbers, a regular list of them, or a NumPy array"
        raise DTypeError(f"{value!r} is no tensor of {dtype or 'numbers'}: {error}", hint=hint) from None


def input(name: str, shape: Sequence[Extent], dtype: npt.DTypeLike = "float32") -> Tensor:
    """A placeholder, given at each call: a pointer argument, or a value if its rank is 0.

    The name becomes that of a C argument. An extent may be a name, too, or None, which is the name "N": bound
    by `te.build(program, dims={"N": 8})`. Raises GraphError, ShapeError, DTypeError.
    """
    from teeny_embed.graph.deferred import UnboundInput, named_extents

    _check_name(name)
    with locating(f"input {name!r}"):
        if not isinstance(shape, tuple | list):
            raise ShapeError(f"shape {shape!r} is no tuple", hint=f"({shape},), or () for one value")
        extents = named_extents(shape)
        fixed = tuple(e for e in extents if not isinstance(e, str))
        type = TensorType(fixed, dtype_name(dtype))
    if len(fixed) < len(extents):
        return UnboundInput(name, extents, type.dtype)
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
    with locating(name):
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


def read(variable: Variable) -> Tensor:
    """The current version of a variable."""
    _check_variable("read", variable)
    recording = current_recording()
    if recording is not None and variable in recording.versions:
        return Tensor(recording.versions[variable])
    attributes = {"type": variable.type, "variable": variable}
    node = make_node(nodes.VARIABLE, (), attributes, variable.name)
    if recording is not None:
        recording.versions[variable] = node
    return Tensor(node)


def assign(variable: Variable, value: Any) -> None:
    """Gives a variable its next version: recorded while tracing, at once otherwise. Program order holds."""
    _check_variable("assign", variable)
    tensor = as_tensor(value, None if isinstance(value, np.ndarray) else variable.type.dtype)
    if tensor.type != variable.type:
        kind = ShapeError if tensor.shape != variable.type.shape else DTypeError
        hint = "the next version has the same type: .reshape(...), te.expand, or .astype(...)"
        message = f"assign: {variable.name!r} is {variable.type}, the value is {tensor.type}"
        raise kind(message, nodes.user_line(), hint)
    recording = current_recording()
    if recording is None:
        variable.set(tensor.numpy())
    else:
        recording.assign(variable, tensor.node)


def _check_variable(what: str, variable: Any) -> None:
    if not isinstance(variable, Variable):
        hint = "make one: te.Variable(name, array)"
        raise GraphError(f"{what}: a {type(variable).__name__} is no variable", nodes.user_line(), hint)


def check(kind: str, tensor: Tensor, bound: int = 0) -> None:
    """Records what an entry point refuses; see `node.Check`. Outside tracing there is nothing to refuse."""
    recording = current_recording()
    if recording is not None:
        recording.checks.append(Check(kind, tensor.node, bound))


def trace(
    function: Callable[..., Any], *inputs: Tensor, names: Sequence[str] | None = None
) -> Graph | DeferredGraph:
    """The graph of `function(*inputs)`; `inputs` are placeholders. Returns may be a Tensor, tuple or dict.

    With inputs that have unbound dims the function is called, and its graph made, when they are bound.
    """
    from teeny_embed.graph.deferred import DeferredGraph, UnboundInput

    with locating("trace"):
        _check_traced(function, inputs)
    if any(isinstance(tensor, UnboundInput) for tensor in inputs):
        return DeferredGraph(function, inputs, names, nodes.user_line())
    if isinstance(function, Graph) and names is None:
        names = [name for name, _ in function.outputs]
    with recording() as recorded:
        result = function(*inputs)
        with locating("trace"):
            outputs = _named(result, names)
    graph = Graph(
        tuple((t.node.name, t.node) for t in inputs),
        tuple((name, t.node) for name, t in outputs.items()),
        recorded.assigns(),
        tuple(recorded.checks),
        tuple(recorded.changes),
    )
    checks = (*graph.checks, *index_checks(graph))
    return nodes.verify(replace(graph, checks=checks))


def _check_traced(function: Any, inputs: Sequence[Any]) -> None:
    from teeny_embed.graph.deferred import UnboundInput

    if not callable(function):
        hint = "give a Module, a function of Tensors, or a graph"
        raise GraphError(f"a {type(function).__name__} cannot be called", hint=hint)
    names: list[str] = []
    for tensor in inputs:
        if not isinstance(tensor, UnboundInput) and not (
            isinstance(tensor, Tensor) and tensor.node.op is nodes.INPUT
        ):
            hint = "make it with te.input(name, shape)"
            raise GraphError(f"argument {len(names) + 1} is a {type(tensor).__name__}, no input", hint=hint)
        names.append(tensor.name if isinstance(tensor, UnboundInput) else tensor.node.name)
    if repeated := [name for name in names if names.count(name) > 1]:
        hint = "inputs are given by name: make it another one"
        raise GraphError(f"two inputs are called {repeated[0]!r}", hint=hint)


def _named(result: Any, names: Sequence[str] | None) -> dict[str, Tensor]:
    if isinstance(result, dict):
        return {name: _output(value) for name, value in result.items()}
    values = tuple(result) if isinstance(result, tuple | list) else (result,)
    default = ["output"] if len(values) == 1 else [f"output{i}" for i in range(len(values))]
    if names is not None and len(names) != len(values):
        hint = "give one name for each output"
        raise GraphError(f"{len(names)} names for {len(values)} outputs", hint=hint)
    if names is not None and len(set(names)) != len(names):
        raise GraphError(f"two outputs have one name: {', '.join(names)}", hint="give each its own name")
    return dict(zip(names or default, map(_output, values), strict=True))


def _output(value: Any) -> Tensor:
    if not isinstance(value, Tensor | Variable | np.ndarray | int | float):
        hint = "return a Tensor, or several as a tuple or a dict of names"
        raise GraphError(f"the function returned {value!r}", hint=hint)
    return as_tensor(value)
