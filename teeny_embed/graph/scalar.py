"""Scalar expressions: what is computed for one element, stated once for NumPy, C and CUDA.

A `Scalar` is an interned, typed, immutable tree: equal expressions are the same object, so sharing shows
as identity. `evaluate` runs one over NumPy arrays, one operation after the other; `emit_c` prints the
same operations in the same order. Nothing that C leaves undefined is left undefined here: integers wrap,
shift counts are taken modulo the width, division by zero gives 0 for integers, and float to integer
truncates and saturates with NaN giving 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from teeny_embed.errors import DTypeError
from teeny_embed.graph.wrapping import saturating_cast, wrapping_divide, wrapping_remainder, wrapping_shift

Number = int | float | bool
DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64",
)  # fmt: skip


class Scalar:
    """One node of an expression. Build with the functions of this module; compare with `is`."""

    __slots__ = ("args", "attr", "dtype", "op")
    op: str
    args: tuple[Scalar, ...]
    dtype: str
    attr: Any

    def __add__(self, other: Scalar | Number) -> Scalar:
        return add(self, other)

    def __radd__(self, other: Number) -> Scalar:
        return add(other, self)

    def __sub__(self, other: Scalar | Number) -> Scalar:
        return subtract(self, other)

    def __rsub__(self, other: Number) -> Scalar:
        return subtract(other, self)

    def __mul__(self, other: Scalar | Number) -> Scalar:
        return multiply(self, other)

    def __rmul__(self, other: Number) -> Scalar:
        return multiply(other, self)

    def __truediv__(self, other: Scalar | Number) -> Scalar:
        return divide(self, other)

    def __rtruediv__(self, other: Number) -> Scalar:
        return divide(other, self)

    def __and__(self, other: Scalar | Number) -> Scalar:
        return bit_and(self, other)

    def __or__(self, other: Scalar | Number) -> Scalar:
        return bit_or(self, other)

    def __xor__(self, other: Scalar | Number) -> Scalar:
        return bit_xor(self, other)

    def __lshift__(self, other: Scalar | Number) -> Scalar:
        return shift_left(self, other)

    def __rshift__(self, other: Scalar | Number) -> Scalar:
        return shift_right(self, other)

    def __repr__(self) -> str:
        if self.op == "const":
            return repr(self.attr)
        if self.op in ("var", "index"):
            return str(self.attr)
        name = self.attr.name if self.op == "call" else self.op
        return f"{name}({', '.join(map(repr, self.args))})"


@dataclass(frozen=True)
class ScalarFunction:
    """A named function: one expression of its parameters. Printed once per module that calls it.

    `max_ulp` is the worst error found over all binary32 inputs by `benchmarks/unary_ulp.py`, in units in
    the last place of the correctly rounded result; None where no such statement is made. `numpy` is NumPy's
    own function, for evaluation in float64.
    """

    name: str
    summary: str
    parameters: tuple[Scalar, ...]
    body: Scalar
    max_ulp: float | None = None
    numpy: Callable[..., Any] | None = None

    @property
    def dtype(self) -> str:
        return self.body.dtype

    def __call__(self, *args: Scalar | Number) -> Scalar:
        """An expression that calls this function."""
        cast_args = [as_scalar(a, p.dtype) for a, p in zip(args, self.parameters, strict=True)]
        return make("call", tuple(cast_args), self.dtype, self)


FUNCTIONS: dict[str, ScalarFunction] = {}


def define(
    name: str,
    summary: str,
    body: Callable[..., Scalar],
    *dtypes: str,
    max_ulp: float | None = None,
    numpy: Callable[..., Any] | None = None,
) -> ScalarFunction:
    """Register the named function `body(*parameters)` with parameters of `dtypes` (one float32 if empty)."""
    names = "xyzuvw"[: len(dtypes or ("float32",))]
    parameters = tuple(var(n, d) for n, d in zip(names, dtypes or ("float32",), strict=True))
    function = ScalarFunction(name, summary, parameters, body(*parameters), max_ulp, numpy)
    FUNCTIONS[name] = function
    return function


# ---- Building -----------------------------------------------------------------------------------------

_interned: dict[tuple[Any, ...], Scalar] = {}


def make(op: str, args: tuple[Scalar, ...], dtype: str, attr: Any = None) -> Scalar:
    """The one node with these contents."""
    if op == "const":
        attr_key: Any = np.asarray(attr, dtype).tobytes()
    else:
        attr_key = id(attr) if isinstance(attr, ScalarFunction) else attr
    key = (op, tuple(map(id, args)), dtype, attr_key)
    found = _interned.get(key)
    if found is None:
        found = Scalar()
        found.op, found.args, found.dtype, found.attr = op, args, dtype, attr
        _interned[key] = found
    return found


def const(value: Number, dtype: str) -> Scalar:
    """A constant; integers wrap to `dtype`, floats round to it."""
    kind = np.dtype(dtype)
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            return make("const", (), dtype, float(np.array(value, dtype)))
    if kind.kind == "b":
        return make("const", (), dtype, bool(value))
    bits = 8 * kind.itemsize
    wrapped = int(value) % (1 << bits)
    if kind.kind == "i" and wrapped >= 1 << (bits - 1):
        wrapped -= 1 << bits
    return make("const", (), dtype, wrapped)


def var(name: str, dtype: str) -> Scalar:
    """A value given from outside: a read, an accumulator, or a function's parameter."""
    return make("var", (), dtype, name)


def index(dim: str) -> Scalar:
    """The position along `dim`, int32."""
    return make("index", (), "int32", dim)


def as_scalar(value: Scalar | Number, dtype: str) -> Scalar:
    """`value` itself, checked to be of `dtype`, or the constant."""
    if not isinstance(value, Scalar):
        return const(value, dtype)
    if value.dtype != dtype:
        raise DTypeError(f"scalar expression: expected {dtype}, got {value.dtype} in {value!r}")
    return value


def _same(*values: Scalar | Number) -> tuple[Scalar, ...]:
    dtype = next(v.dtype for v in values if isinstance(v, Scalar))
    return tuple(as_scalar(v, dtype) for v in values)


def _arithmetic(op: str) -> Callable[[Scalar | Number, Scalar | Number], Scalar]:
    def build(a: Scalar | Number, b: Scalar | Number) -> Scalar:
        args = _same(a, b)
        return make(op, args, args[0].dtype)

    build.__name__ = op
    build.__doc__ = f"{op}(a, b): same dtype in and out."
    return build


def _comparison(op: str) -> Callable[[Scalar | Number, Scalar | Number], Scalar]:
    def build(a: Scalar | Number, b: Scalar | Number) -> Scalar:
        return make(op, _same(a, b), "bool")

    build.__name__ = op
    build.__doc__ = f"{op}(a, b): bool; false if either is NaN (not_equal: true)."
    return build


add, subtract, multiply, divide = map(_arithmetic, ("add", "subtract", "multiply", "divide"))
remainder = _arithmetic("remainder")
bit_and, bit_or, bit_xor = map(_arithmetic, ("bit_and", "bit_or", "bit_xor"))
shift_left, shift_right = map(_arithmetic, ("shift_left", "shift_right"))
less, less_equal, equal, not_equal = map(_comparison, ("less", "less_equal", "equal", "not_equal"))


def greater(a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """a > b."""
    return less(b, a)


def greater_equal(a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """a >= b."""
    return less_equal(b, a)


def logical_not(a: Scalar) -> Scalar:
    """bool to bool."""
    return make("logical_not", (as_scalar(a, "bool"),), "bool")


def logical_and(a: Scalar, b: Scalar) -> Scalar:
    """bool, bool to bool."""
    return make("logical_and", (as_scalar(a, "bool"), as_scalar(b, "bool")), "bool")


def logical_or(a: Scalar, b: Scalar) -> Scalar:
    """bool, bool to bool."""
    return make("logical_or", (as_scalar(a, "bool"), as_scalar(b, "bool")), "bool")


def negative(a: Scalar) -> Scalar:
    """-a; flips the sign bit of a float, also of zero and NaN."""
    return make("negative", (a,), a.dtype)


def select(condition: Scalar, a: Scalar | Number, b: Scalar | Number) -> Scalar:
    """a where condition, else b."""
    first, second = _same(a, b)
    if condition.op == "const":
        return first if condition.attr else second
    return make("select", (as_scalar(condition, "bool"), first, second), first.dtype)


_BITS = {"float32": "uint32", "float64": "uint64"}


def bits(a: Scalar) -> Scalar:
    """The bits of a float32 (uint32) or float64 (uint64)."""
    return make("bits", (a,), _BITS[a.dtype])


def from_bits(a: Scalar) -> Scalar:
    """The float32 of a uint32's bits, or the float64 of a uint64's."""
    return make("from_bits", (a,), {u: f for f, u in _BITS.items()}[a.dtype])


def cast(a: Scalar, dtype: str) -> Scalar:
    """To `dtype`: integers wrap, float to integer truncates and saturates, bool is 0 or 1.

    float16 is storage: it goes through float32.
    """
    if a.dtype == dtype:
        return a
    if "float16" in (a.dtype, dtype) and "float32" not in (a.dtype, dtype):
        return cast(cast(a, "float32"), dtype)
    if a.op == "const":
        return const(evaluate(make("cast", (a,), dtype), {})[()].item(), dtype)
    return make("cast", (a,), dtype)


def is_nan(a: Scalar) -> Scalar:
    """bool."""
    return not_equal(a, a)


# ---- Walking ------------------------------------------------------------------------------------------


def walk(roots: Sequence[Scalar]) -> list[Scalar]:
    """Every node below `roots` once, operands before users."""
    found: dict[Scalar, None] = {}

    def visit(node: Scalar) -> None:
        for arg in node.args:
            if arg not in found:
                visit(arg)
        found[node] = None

    for root in roots:
        if root not in found:
            visit(root)
    return list(found)


def leaves(*roots: Scalar) -> list[Scalar]:
    """The variables and indices that `roots` use, in order of first use."""
    return [n for n in walk(roots) if n.op in ("var", "index")]


def constant_apart(x: Scalar) -> tuple[Scalar | None, int]:
    """An integer x as (y, number) with x = y + number; y None for a constant."""
    if x.op == "const":
        return None, x.attr
    if x.op == "add" and x.args[1].op == "const":
        return x.args[0], x.args[1].attr
    return x, 0


def substitute(root: Scalar, mapping: Mapping[Scalar, Scalar]) -> Scalar:
    """`root` with each node of `mapping` replaced."""
    memo: dict[Scalar, Scalar] = dict(mapping)

    def visit(node: Scalar) -> Scalar:
        if node not in memo:
            args = tuple(map(visit, node.args))
            if all(a is b for a, b in zip(args, node.args, strict=True)):
                memo[node] = node
            elif node.op == "select":
                memo[node] = select(*args)
            else:
                memo[node] = make(node.op, args, node.dtype, node.attr)
        return memo[node]

    return visit(root)


def functions_used(roots: Sequence[Scalar]) -> list[ScalarFunction]:
    """Named functions that `roots` call, callees before callers."""
    found: dict[str, ScalarFunction] = {}
    for node in walk(roots):
        if node.op == "call" and node.attr.name not in found:
            for inner in functions_used([node.attr.body]):
                found.setdefault(inner.name, inner)
            found[node.attr.name] = node.attr
    return list(found.values())


# ---- Evaluating ---------------------------------------------------------------------------------------


_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply,
    "divide": wrapping_divide, "remainder": wrapping_remainder, "negative": np.negative,
    "bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor,
    "shift_left": wrapping_shift(np.left_shift), "shift_right": wrapping_shift(np.right_shift),
    "less": np.less, "less_equal": np.less_equal, "equal": np.equal, "not_equal": np.not_equal,
    "logical_not": np.logical_not, "logical_and": np.logical_and, "logical_or": np.logical_or,
    "select": np.where,
}  # fmt: skip


def evaluate(root: Scalar, env: Mapping[Scalar, Any], memo: dict[Scalar, Any] | None = None) -> Any:
    """`root` over NumPy values; `env` maps the leaves. Share `memo` between roots of one environment."""
    memo = {} if memo is None else memo

    def visit(node: Scalar) -> Any:
        value = memo.get(node)
        if value is None:
            value = _evaluate_node(node, env, visit)
            memo[node] = value
        return value

    with np.errstate(all="ignore"):
        return visit(root)


def _evaluate_node(node: Scalar, env: Mapping[Scalar, Any], visit: Callable[[Scalar], Any]) -> Any:
    if node.op in ("var", "index"):
        return env[node]
    if node.op == "const":
        return np.array(node.attr, node.dtype)
    args = [visit(a) for a in node.args]
    if node.op == "call" and node.dtype != node.attr.dtype:  # see `widen`
        return node.attr.numpy(*args)
    if node.op == "call":
        return evaluate(node.attr.body, dict(zip(node.attr.parameters, args, strict=True)))
    if node.op == "cast":
        return saturating_cast(args[0], node.dtype)
    if node.op in ("bits", "from_bits"):
        return np.ascontiguousarray(args[0]).view(node.dtype).reshape(np.shape(args[0]))
    return _NUMPY[node.op](*args)
