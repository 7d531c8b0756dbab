"""Integer arithmetic in cheaper forms that give the same bits, where intervals prove that they do.

Requantisation becomes a high product of the doubled accumulator and a rounded shift; zero points move into
constants that are added anyway; what cannot exceed a bound is not compared with it. The steps stay what
they are (outputs, folds, and the formula that people see): only what is printed differs.
"""

from __future__ import annotations

from dataclasses import replace

from teeny_embed.graph import scalar as s
from teeny_embed.graph.interval import Intervals, bound, limits
from teeny_embed.graph.requantize import RULES, SATURATE, high_product, rounded_shift
from teeny_embed.graph.scalar import Scalar, constant_apart
from teeny_embed.graph.step import Index, Output, Step

HALF_RANGE = 1 << 30


def simplified(step: Step, known: Intervals) -> Step:
    """`step` with its integer arithmetic simplified, without reads that this leaves unused.

    `known` are its `intervals`.
    """
    simplify = _Simplifier(known)
    folds = tuple(replace(f, update=simplify(f.update)) if f.term is None else f for f in step.folds)
    outputs = tuple(Output(o.buffer, simplify(o.value)) for o in step.outputs)
    simple = replace(step, folds=folds, outputs=outputs)
    used = simple.fold_reads() | simple.epilogue_reads()
    reads = {n: replace(r, index=tuple(_index(i, simplify) for i in r.index)) for n, r in step.reads.items()}
    return replace(simple, reads={name: read for name, read in reads.items() if name in used})


def _index(i: Index, simplify: _Simplifier) -> Index:
    return simplify(i) if isinstance(i, Scalar) else i


def simplified_scalar(root: Scalar, known: Intervals) -> Scalar:
    """The same for one expression over leaves with known intervals."""
    return _Simplifier(known)(root)


class _Simplifier:
    """Expressions rewritten from their leaves upwards."""

    def __init__(self, known: Intervals) -> None:
        self._known = known
        self._done: dict[Scalar, Scalar] = {}

    def __call__(self, root: Scalar) -> Scalar:
        for node in s.walk([root]):
            if node not in self._done:
                self._done[node] = self._node(node, tuple(self._done[a] for a in node.args))
        return self._done[root]

    def _node(self, node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        if node.op == "call" and node.attr is RULES["tflite"]:
            found = self._requantized(*args)
            if found is not None:
                return found
        elif node.dtype == "int32" and node.op in ("add", "subtract", "shift_left"):
            return self._int32(node.op, *args)
        elif node.op == "cast" and node.dtype in SATURATE and args[0].dtype == "int32":
            return self._saturated(args[0], node.dtype)
        if all(a is b for a, b in zip(args, node.args, strict=True)):
            return self._chosen(node) if node.op == "select" else node
        if node.op == "select":
            return self._chosen(s.select(*args))
        return s.make(node.op, args, node.dtype, node.attr)

    # ---- Sums and shifts: these are equal modulo 2^32, so nothing needs to be proven

    def _int32(self, op: str, a: Scalar, b: Scalar) -> Scalar:
        if op == "shift_left":
            return _shifted(a, b.attr) if b.op == "const" and 0 <= b.attr < 31 else s.shift_left(a, b)
        if op == "subtract":
            return self._plus(a, -b.attr) if b.op == "const" else a - b
        (first, m), (second, n) = constant_apart(a), constant_apart(b)
        if first is None or second is None:
            return self._plus(a, n) if second is None else self._plus(b, m)
        return self._plus(first + second, m + n)

    def _plus(self, x: Scalar, number: int) -> Scalar:
        """x + number: one addition for all constants, before a shift to the right where there is one."""
        inner, own = constant_apart(x)
        if inner is None:
            return s.const(own + number, "int32")
        number += own
        if inner.op == "shift_right" and inner.args[1].op == "const":
            sum_, places = inner.args
            before, first = constant_apart(sum_)
            if before is not None and first:
                merged = before + (first + (number << places.attr))
                if not self._known.wraps(sum_) and not self._known.wraps(merged):
                    return s.shift_right(merged, places)
        return inner + number if s.const(number, "int32").attr else inner

    # ---- Requantisation

    def _requantized(self, x: Scalar, multiplier: Scalar, shift: Scalar) -> Scalar | None:
        """Rule "tflite" of an accumulator that is known to be small, by one scale or only to the right."""
        least, greatest = self._known.of(shift)
        if least < -31 or (greatest >= 0 and least != greatest):
            return None
        left = max(0, least)
        low, high = self._known.of(x)
        if max(-low, high) << left >= HALF_RANGE:
            return None
        product = self._high_product(_shifted(x, left + 1), multiplier)
        if least >= 0:
            return product
        places = s.const(-least, "int32") if least == greatest else s.negative(shift)
        return rounded_shift(product, places, self._known.of(product)[0] < 0)

    def _high_product(self, x: Scalar, multiplier: Scalar) -> Scalar:
        """By a power of two it is a rounded shift, which a multiple does without rounding."""
        if multiplier.op != "const" or multiplier.attr.bit_count() != 1:
            return high_product(x, multiplier)
        places = 33 - multiplier.attr.bit_length()
        inner, number = constant_apart(x)
        if inner is not None and inner.op == "shift_left" and inner.args[1].op == "const":
            finer = inner.args[1].attr - places
            if finer >= 0 and number % (1 << places) == 0 and not self._known.wraps(x):
                return self._plus(_shifted(inner.args[0], finer), number >> places)
        rounded = x + (1 << (places - 1))
        if self._known.wraps(rounded):
            return high_product(x, multiplier)
        return s.shift_right(rounded, s.const(places, "int32"))

    # ---- Clamps

    def _chosen(self, node: Scalar) -> Scalar:
        """A bound that is never passed is none."""
        found = bound(node)
        if found is None:
            return node
        x, low, high = found
        least, greatest = self._known.of(x)
        return x if low <= least and greatest <= high else node

    def _saturated(self, x: Scalar, dtype: str) -> Scalar:
        """x as a small type: clamping to its range is one function, a bound that it cannot pass is none."""
        inner, low, high = x, *limits("int32")
        while (found := bound(inner)) is not None:
            inner, at_least, at_most = found
            low, high = max(low, at_least), min(high, at_most)
        type_low, type_high = limits(dtype)
        inner = self._without_ties(inner, max(low, type_low))
        least, greatest = self._known.of(inner)
        below, above = least < low, greatest > high
        low, high = max(low, least), min(high, greatest)
        if low > high or low < type_low or high > type_high:
            return s.cast(x, dtype)
        if not (below or above):
            return s.cast(inner, dtype)
        own_low, own_high = below and low > type_low, above and high < type_high
        if own_low and own_high:
            return s.cast(x, dtype)
        if not (own_low or own_high):
            return SATURATE[dtype](inner)
        inside = s.cast(SATURATE[dtype](inner), "int32") if below and above else inner
        return s.cast(_at_least(inside, low) if own_low else _at_most(inside, high), dtype)

    def _without_ties(self, x: Scalar, low: int) -> Scalar:
        """`x`, of which nothing below `low` is kept: if negative sums end there, their ties do not matter."""
        if x.op != "shift_right" or x.args[1].op != "const":
            return x
        rounded, number = constant_apart(x.args[0])
        if rounded is None or rounded.op != "add" or (number - 1) >> x.args[1].attr > low:
            return x
        value, sign = rounded.args
        plain = value + number
        if sign is not s.shift_right(value, s.const(31, "int32")):
            return x
        if self._known.wraps(x.args[0]) or self._known.wraps(rounded) or self._known.wraps(plain):
            return x
        return s.shift_right(plain, x.args[1])


def _shifted(x: Scalar, places: int) -> Scalar:
    """x 2^places as one shift and one addition."""
    if places == 0:
        return x
    inner, number = constant_apart(x)
    if inner is None:
        return s.const(number << places, "int32")
    if inner.op == "shift_left" and inner.args[1].op == "const" and inner.args[1].attr + places < 32:
        inner, places_inside = inner.args[0], inner.args[1].attr + places
    else:
        places_inside = places
    shifted = s.shift_left(inner, s.const(places_inside, "int32"))
    return shifted + (number << places) if number else shifted


def _at_least(x: Scalar, low: int) -> Scalar:
    return s.select(s.less_equal(s.const(low, "int32"), x), x, low)


def _at_most(x: Scalar, high: int) -> Scalar:
    return s.select(s.less_equal(x, s.const(high, "int32")), x, high)
