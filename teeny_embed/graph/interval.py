"""Intervals of integers: what the values of a step can be, whatever its inputs.

An `Interval` is a pair of arrays, least and greatest, both included. They have an axis for each dim of a
step, of extent 1 where nothing depends on it: constants are known element by element, so the sums of a
convolution are known filter by filter. What depends on no dim has one element. Values of 64 bits, and what
could leave int64 on the way, are Python's own integers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.errors import GraphError
from teeny_embed.graph import scalar as s
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.step import Fold, Read, Schedule, Step

Array = npt.NDArray[Any]
Interval = tuple[Array, Array]
MOST_ELEMENTS = 1 << 24
"""Constants of steps with more combinations of them are known by their ends alone."""


def accumulator_interval(filter: Array, bias: Array, low: int, high: int) -> tuple[int, int]:
    """(least, greatest) of every partial sum, in any order, of bias + sum of x w with low <= x <= high.

    `filter` is [outputs, ...], `bias` [outputs]; the bias may come first or last.
    """
    weights = filter.reshape(len(filter), -1).astype(np.int64)
    least = np.minimum(0, np.minimum(weights * low, weights * high)).sum(axis=1)
    greatest = np.maximum(0, np.maximum(weights * low, weights * high)).sum(axis=1)
    offset = bias.astype(np.int64)
    return int((np.minimum(offset, 0) + least).min()), int((np.maximum(offset, 0) + greatest).max())


def limits(dtype: str) -> tuple[int, int]:
    """The least and the greatest value of an integer type or bool."""
    if dtype == "bool":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def elements_at(read: Read, dims: Sequence[str], extents: Mapping[str, int]) -> Array:
    """The elements of the constant that `read` reads at every position of `dims`, row-major."""
    flat, value = read.flat(), read.buffer.value
    assert flat is not None and value is not None
    positions = np.array(flat.constant)
    for axis, name in enumerate(dims):
        steps = flat.coefficient(name) * np.arange(extents[name])
        positions = positions + steps.reshape((-1,) + (1,) * (len(dims) - 1 - axis))
    return np.asarray(value.reshape(-1)[positions])


class Intervals:
    """The intervals of expressions over leaves whose own are known; other leaves are any of their type."""

    def __init__(self, known: Mapping[Scalar, Interval]) -> None:
        self._leaves = known
        self._known: dict[Scalar, Interval] = dict(known)
        self._wraps: dict[Scalar, bool] = {}

    def of(self, node: Scalar) -> tuple[int, int]:
        """(least, greatest) of the integer or bool `node` over all elements."""
        low, high = self.elements(node)
        return int(low.min()), int(high.max())

    def wraps(self, node: Scalar) -> bool:
        """Whether the exact result of the operation `node` may not be of its type."""
        self.elements(node)
        return self._wraps.get(node, False)

    def elements(self, node: Scalar) -> Interval:
        """The interval of the integer or bool `node`, element by element."""
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = self._computed(node)
        return found

    def _computed(self, node: Scalar) -> Interval:
        if node.op == "const":
            return _stored(node.dtype, int(node.attr), int(node.attr))
        if node.op == "call":
            inner = {
                p: self.elements(a)
                for p, a in zip(node.attr.parameters, node.args, strict=True)
                if is_integer(p.dtype)
            }
            return Intervals(inner).elements(node.attr.body)
        if node.op == "select":
            return self._select(node)
        rule = _RULES.get(node.op)
        if rule is None or not all(is_integer(a.dtype) for a in node.args):
            return _anything(node.dtype)
        kind = _kind(node.dtype) if node.op not in _COMPARISONS else object
        args = [tuple(end.astype(kind) for end in self.elements(a)) for a in node.args]
        exact = rule(*args)
        if exact is None:
            self._wraps[node] = True
            return _anything(node.dtype)
        return self._within(node, exact)

    def _within(self, node: Scalar, exact: tuple[Any, Any]) -> Interval:
        """`exact`, or any value of the type where that does not hold it."""
        least, greatest = limits(node.dtype)
        low, high = exact
        out = np.asarray((low < least) | (high > greatest), bool)
        if not out.any():
            return _stored(node.dtype, low, high)
        self._wraps[node] = True
        return _stored(node.dtype, np.where(out, least, low), np.where(out, greatest, high))

    def _select(self, node: Scalar) -> Interval:
        condition, a, b = node.args
        first, second = self.elements(a), self.elements(b)
        extremum = _extremum(condition, a, b)
        if extremum is not None:
            return _stored(node.dtype, *map(extremum, first, second))
        least, greatest = self.elements(condition)
        low = np.where(greatest == 0, second[0], np.minimum(first[0], second[0]))
        high = np.where(greatest == 0, second[1], np.maximum(first[1], second[1]))
        always = least == 1
        return _stored(node.dtype, np.where(always, first[0], low), np.where(always, first[1], high))

    def given(self, known: Mapping[Scalar, Interval]) -> Intervals:
        """With further leaves known."""
        return Intervals({**self._leaves, **known})


def is_integer(dtype: str) -> bool:
    """Whether values of `dtype` have intervals: integers and bool."""
    return not dtype.startswith("float")


def _kind(dtype: str) -> Any:
    """What ends are kept in, so that sums and products of two of them are exact."""
    return object if dtype in ("int64", "uint64", "uint32") else np.int64


def _stored(dtype: str, low: Any, high: Any) -> Interval:
    ends = (np.atleast_1d(np.asarray(end)).astype(_kind(dtype)) for end in (low, high))
    return next(ends), next(ends)


def _anything(dtype: str) -> Interval:
    return _stored(dtype, *limits(dtype))


# ---- What operations do to intervals: None where any value may come out ---------------------------------

Rule = Callable[..., "tuple[Any, Any] | None"]


def _corners(operation: Callable[[Any, Any], Any]) -> Rule:
    """For operations that are monotonic in each operand."""

    def rule(a: Interval, b: Interval) -> tuple[Any, Any]:
        values = [operation(x, y) for x in a for y in b]
        low, high = values[0], values[0]
        for value in values[1:]:
            low, high = np.minimum(low, value), np.maximum(high, value)
        return low, high

    return rule


def _shift(operation: Callable[[Any, Any], Any]) -> Rule:
    """By 0 to 31 places: no more than any type has, but for 64 bits, where few shift further."""

    def rule(a: Interval, b: Interval) -> tuple[Any, Any] | None:
        width = 63 if a[0].dtype == object else 31
        if b[0].min() < 0 or b[1].max() > width:
            return None
        return _corners(operation)(a, b)

    return rule


def _bit_and(a: Interval, b: Interval) -> tuple[Any, Any] | None:
    bounds = [x[1].max() for x in (a, b) if x[0].min() >= 0]
    return (np.asarray(0), np.asarray(min(bounds))) if bounds else None


def _bit_or(a: Interval, b: Interval) -> tuple[Any, Any] | None:
    if a[0].min() < 0 or b[0].min() < 0:
        return None
    return np.asarray(0), np.asarray((1 << max(int(a[1].max()), int(b[1].max())).bit_length()) - 1)


def _bit_xor(a: Interval, b: Interval) -> tuple[Any, Any] | None:
    """By 0 or -1: x, or -1 - x."""
    for mask, x in ((a, b), (b, a)):
        if mask[0].min() >= -1 and mask[1].max() <= 0:
            return np.minimum(x[0], -1 - x[1]), np.maximum(x[1], -1 - x[0])
    return _bit_or(a, b)


def _bitwise(operation: Callable[[Any, Any], Any], rule: Rule) -> Rule:
    """`rule`, and what is known exactly where both operands are."""

    def sharper(a: Interval, b: Interval) -> tuple[Any, Any] | None:
        known = np.asarray((a[0] == a[1]) & (b[0] == b[1]), bool)
        exact, found = operation(a[0], b[0]), rule(a, b)
        if known.all() or found is None:
            return (exact, exact) if known.all() else None
        return np.where(known, exact, found[0]), np.where(known, exact, found[1])

    return sharper


def _divide(a: Interval, b: Interval) -> tuple[Any, Any] | None:
    divisor = int(b[0].min())
    if divisor < 1 or divisor != int(b[1].max()):
        return None
    low, high = (np.where(end < 0, -(-end // divisor), end // divisor) for end in a)
    return low, high


def _remainder(a: Interval, b: Interval) -> tuple[Any, Any] | None:
    if b[0].min() < 1:
        return None
    most = int(b[1].max()) - 1
    low = max(-most, int(a[0].min())) if a[0].min() < 0 else 0
    return np.asarray(low), np.asarray(max(0, min(most, int(a[1].max()))))


def _less(a: Interval, b: Interval) -> tuple[Any, Any]:
    return _flags(a[1] < b[0], a[0] < b[1])


def _less_equal(a: Interval, b: Interval) -> tuple[Any, Any]:
    return _flags(a[1] <= b[0], a[0] <= b[1])


def _equal(a: Interval, b: Interval) -> tuple[Any, Any]:
    same = (a[0] == a[1]) & (b[0] == b[1]) & (a[0] == b[0])
    return _flags(same, (a[0] <= b[1]) & (b[0] <= a[1]))


def _flags(always: Any, possible: Any) -> tuple[Any, Any]:
    return np.asarray(always, np.int64), np.asarray(possible, np.int64)


def _not(a: Interval) -> tuple[Any, Any]:
    return 1 - a[1], 1 - a[0]


def _not_equal(a: Interval, b: Interval) -> tuple[Any, Any]:
    return _not(_equal(a, b))


def _extremum(condition: Scalar, a: Scalar, b: Scalar) -> Callable[[Any, Any], Any] | None:
    """Whether `condition ? a : b` is the smaller or the larger of both."""
    if condition.op not in ("less", "less_equal") or {*condition.args} != {a, b}:
        return None
    return np.minimum if condition.args[0] is a else np.maximum


def bound(node: Scalar) -> tuple[Scalar, int, int] | None:
    """(x, low, high) where int32 `node` is x, but at least `low` or at most `high`, a constant."""
    if node.op != "select" or node.dtype != "int32":
        return None
    extremum = _extremum(*node.args)
    numbers = [a for a in node.args[1:] if a.op == "const"]
    if extremum is None or len(numbers) != 1:
        return None
    x = node.args[2] if numbers[0] is node.args[1] else node.args[1]
    low, high = limits("int32")
    return (x, low, numbers[0].attr) if extremum is np.minimum else (x, numbers[0].attr, high)


_COMPARISONS = ("less", "less_equal", "equal", "not_equal")
_RULES: dict[str, Rule] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "multiply": _corners(operator.mul),
    "negative": lambda a: (-a[1], -a[0]),
    "shift_left": _shift(operator.lshift), "shift_right": _shift(operator.rshift),
    "divide": _divide, "remainder": _remainder,
    "bit_and": _bitwise(operator.and_, _bit_and), "bit_or": _bitwise(operator.or_, _bit_or),
    "bit_xor": _bitwise(operator.xor, _bit_xor),
    "less": _less, "less_equal": _less_equal, "equal": _equal, "not_equal": _not_equal,
    "logical_and": lambda a, b: (np.minimum(a[0], b[0]), np.minimum(a[1], b[1])),
    "logical_or": lambda a, b: (np.maximum(a[0], b[0]), np.maximum(a[1], b[1])),
    "logical_not": _not,
    "cast": lambda a: a,
}  # fmt: skip


# ---- Steps ------------------------------------------------------------------------------------------------


def intervals(step: Step) -> Intervals:
    """Those of everything that `step` computes, the partial sums of its folds included."""
    dims = [d for d, _ in (*step.dims, *step.fold_dims)]
    known = {
        s.var(name, read.buffer.type.dtype): _read(step, read, dims)
        for name, read in step.reads.items()
        if is_integer(read.buffer.type.dtype)
    }
    found = Intervals(known | {s.index(d): _stored("int32", 0, e - 1) for d, e in step.sizes.items()})
    for fold in step.folds:
        if is_integer(fold.dtype):
            found = found.given({fold.accumulator: _fold(step, fold, found)})
    return found


def _read(step: Step, read: Read, dims: Sequence[str]) -> Interval:
    """What one read of integers yields."""
    dtype, value = read.buffer.type.dtype, read.buffer.value
    index = read.affine()
    if read.buffer.kind != "constant" or value is None or not value.size:
        return _anything(dtype)
    inside = index is not None and all(
        i.in_range(e, step.sizes) for i, e in zip(index, read.shape, strict=True)
    )
    used = {d for r in step.reads.values() if r.buffer.kind == "constant" for d in r.dims()}
    if inside and read.flat() is not None and prod(step.sizes[d] for d in used) <= MOST_ELEMENTS:
        extents = {d: e if d in read.dims() else 1 for d, e in step.sizes.items()}
        elements = elements_at(read, dims, extents)
        return _stored(dtype, elements, elements)
    ends = [int(value.min()), int(value.max())]
    ends += [int(read.fill.attr)] if read.fill is not None else []
    return _stored(dtype, min(ends), max(ends))


def _fold(step: Step, fold: Fold, terms: Intervals) -> Interval:
    """Of the accumulator, however many terms it has, in whatever order."""
    sums = _partial_sums(step, fold, terms)
    if sums is None:
        return _fixpoint(step, fold, terms)
    (low, high), (least, greatest) = sums, limits(fold.dtype)
    fits = np.asarray((low >= least) & (high <= greatest), bool)
    return _stored(fold.dtype, np.where(fits, low, least), np.where(fits, high, greatest))


def _partial_sums(step: Step, fold: Fold, terms: Intervals) -> Interval | None:
    """Of a sum, as far as it would reach in a type without bounds; None for other folds."""
    term = _term(fold)
    if term is None:
        return None
    low, high = terms.elements(term)
    least, greatest = _sum(step, np.minimum(0, low)), _sum(step, np.maximum(0, high))
    return least + int(fold.start.attr), greatest + int(fold.start.attr)


def _term(fold: Fold) -> Scalar | None:
    """What a sum adds to its accumulator, where it does."""
    update = fold.update
    if update.op == "select" and fold.accumulator in update.args:
        update = update.args[1] if update.args[2] is fold.accumulator else update.args[2]
    if update.op != "add" or fold.accumulator not in update.args:
        return None
    term = update.args[1] if update.args[0] is fold.accumulator else update.args[0]
    return None if fold.accumulator in s.leaves(term) else term


def _sum(step: Step, ends: Any) -> Array:
    """Over all fold dims, of which every term exists."""
    total = np.asarray(ends)
    for axis, (_, extent) in enumerate(step.fold_dims, len(step.dims)):
        if axis < total.ndim and total.shape[axis] == extent:
            total = total.sum(axis=axis, keepdims=True)
        else:
            total = np.asarray(total * extent)
    return total


def _fixpoint(step: Step, fold: Fold, terms: Intervals) -> Interval:
    """Of an accumulator that is a choice among what it was and what is read, as a maximum is."""
    start = int(fold.start.attr)
    low, high = start, start
    for _ in range(3):
        found = terms.given({fold.accumulator: _stored(fold.dtype, low, high)}).of(fold.update)
        if low <= found[0] and found[1] <= high:
            return _stored(fold.dtype, low, high)
        low, high = min(low, found[0]), max(high, found[1])
    return _anything(fold.dtype)


# ---- Accumulators that must not overflow ------------------------------------------------------------------


@dataclass(frozen=True)
class Accumulator:
    """Between what every partial sum of a contraction lies, both included."""

    dtype: str
    least: int
    greatest: int

    @property
    def fits(self) -> bool:
        least, greatest = limits(self.dtype)
        return least <= self.least and self.greatest <= greatest

    def hull(self, other: Accumulator) -> Accumulator:
        """What holds for both."""
        return Accumulator(self.dtype, min(self.least, other.least), max(self.greatest, other.greatest))

    def __str__(self) -> str:
        return f"in [{self.least}, {self.greatest}]"


def accumulator_of(step: Step) -> Accumulator | None:
    """That of a contraction of small integers; None for other steps.

    In any order; what the epilogue adds to the sum, such as a bias, may come first or last.
    """
    fold = next((f for f in step.folds if f.bounded), None)
    if fold is None:
        return None
    known = intervals(step)
    sums = _partial_sums(step, fold, known)
    assert sums is not None
    low, high = sums
    for node in s.walk([o.value for o in step.outputs]):
        if node.op == "add" and fold.accumulator in node.args:
            other = node.args[1] if node.args[0] is fold.accumulator else node.args[0]
            ends = known.elements(other)
            low, high = low + np.minimum(0, ends[0]), high + np.maximum(0, ends[1])
    return Accumulator(fold.dtype, int(np.asarray(low).min()), int(np.asarray(high).max()))


def check_accumulators(schedule: Schedule) -> None:
    """Raises GraphError for a contraction whose accumulator could overflow: nothing says what it is then."""
    for step in schedule.steps:
        found = accumulator_of(step)
        if found is not None and not found.fits:
            raise GraphError(
                f"{step.title} ({step.sources[0].name}): the {found.dtype} accumulator may lie {found}",
                hint='accumulator="int64"' if found.dtype == "int32" else "fewer terms, or smaller weights",
            )
