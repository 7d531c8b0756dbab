"""Scalar expressions over all lanes of a vector at once, as C for GNU vector types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from teeny_embed.emit_c.literals import literal
from teeny_embed.graph import scalar as s
from teeny_embed.graph.interval import Intervals, bound, limits
from teeny_embed.graph.requantize import doubled_high_product, high_product
from teeny_embed.graph.scalar import Scalar, constant_apart

_ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_COMPARISON = {"less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!="}


def in_vectors(values: Sequence[Scalar]) -> bool:
    """Whether lanes of float32 can compute `values`: arithmetic, and choices by one comparison."""
    return all(_is_vector(node) for node in s.walk(values) if node.dtype == "float32") and all(
        node.dtype == "float32" or node.op in _COMPARISON for node in s.walk(values)
    )


def _is_vector(node: Scalar) -> bool:
    return node.op in ("var", "const", "select", *_ARITHMETIC)


class VectorPrinter:
    """Prints values of `lanes` lanes: each operation a statement in `lines`.

    `vectors` names leaves that have a value in each lane, `numbers` those that all lanes share.
    """

    def __init__(
        self, module: str, lanes: int, vectors: Mapping[Scalar, str], numbers: Mapping[Scalar, str],
        temporary: Callable[[], str],
    ) -> None:  # fmt: skip
        self.module, self.lanes, self.temporary = module, lanes, temporary
        self.lines: list[str] = []
        self._numbers, self._texts = numbers, dict(vectors)

    def print(self, roots: Sequence[Scalar]) -> list[str]:
        """The names of the roots' vectors."""
        return [self._text(root) for root in roots]

    def _text(self, node: Scalar) -> str:
        if node not in self._texts:
            name = self.temporary()
            self.lines.append(f"const {self.module}_v{self.lanes}_t {name} = {self._operation(node)};")
            self._texts[node] = name
        return self._texts[node]

    def _operation(self, node: Scalar) -> str:
        if node.op == "select":
            test, *arms = node.args
            a, b, chosen, otherwise = map(self._text, (*test.args, *arms))
            bits, mask = f"({self.module}_mask{self.lanes}_t)", self.temporary()
            self.lines.append(f"const {bits[1:-1]} {mask} = {a} {_COMPARISON[test.op]} {b};")
            both = f"({bits}{chosen} & {mask}) | ({bits}{otherwise} & ~{mask})"
            return f"({self.module}_v{self.lanes}_t)({both})"
        if node.args:
            a, b = map(self._text, node.args)
            return f"{a} {_ARITHMETIC[node.op]} {b}"
        number = self._numbers[node] if node.op == "var" else literal(node.attr, node.dtype, self.module)
        return f"{number} - ({self.module}_v{self.lanes}_t){{0.0f}}"  # in every lane; -0 stays -0


# ---- Integers -------------------------------------------------------------------------------------------

_LANE_TYPES = ("int8", "int16", "int32")
_LANE_FUNCTIONS = ("high_product", "saturate_int8", "saturate_int16")


def in_integer_vectors(values: Sequence[Scalar], known: Intervals) -> bool:
    """Whether lanes of int32 can compute `values`, as most quantised arithmetic, and nothing wraps."""
    inner = [value.args[0] if _is_narrowing(value) else value for value in values]
    return all(_is_integer_vector(node) and not known.wraps(node) for node in _computed(inner))


def _computed(values: Sequence[Scalar]) -> list[Scalar]:
    """The operations and leaves of `values`, without the comparisons of clamps."""
    return [node for node in s.walk(values) if node.op not in ("less", "less_equal")]


def _half(x: Scalar) -> Scalar | None:
    """Half of `x`, if its form shows that it is even."""
    inner, number = constant_apart(x)
    if inner is None or inner.op != "shift_left" or inner.args[1].op != "const" or number % 2:
        return None
    places = inner.args[1].attr - 1
    half = s.shift_left(inner.args[0], s.const(places, "int32")) if places else inner.args[0]
    return half + number // 2 if number else half


def _is_narrowing(value: Scalar) -> bool:
    """A cast that storing does, which keeps the low bits."""
    return value.op == "cast" and value.args[0].dtype in _LANE_TYPES


def _is_integer_vector(node: Scalar) -> bool:
    if node.op in ("var", "const"):
        return node.dtype in _LANE_TYPES
    if node.op == "cast":
        return node.dtype == "int32" and node.args[0].dtype in _LANE_TYPES
    if node.op == "call":
        return node.attr.name in _LANE_FUNCTIONS
    if node.op == "select":
        return bound(node) is not None
    if node.op in ("shift_left", "shift_right") and node.args[1].op != "const":
        return False
    return node.dtype == "int32" and node.op in ("add", "subtract", "multiply", "shift_left", "shift_right")


class IntegerVectorPrinter:
    """Prints values of four lanes of int32. Those used more than once become constants in `lines`.

    `vectors` names leaves that have a value in each lane, `numbers` those that all lanes share.
    """

    def __init__(
        self, module: str, vectors: Mapping[Scalar, str], numbers: Mapping[Scalar, str],
        temporary: Callable[[], str],
    ) -> None:  # fmt: skip
        self.module, self.temporary = module, temporary
        self.lines: list[str] = []
        self._numbers, self._texts = numbers, dict(vectors)
        self._uses: dict[Scalar, int] = {}
        self._infix: set[str] = set()
        """Texts that stand in parentheses beside another operator."""

    def print(self, roots: Sequence[Scalar]) -> list[str]:
        """The roots' expressions; what they share is appended to `lines`."""
        roots = [self._doubled(root.args[0] if _is_narrowing(root) else root) for root in roots]
        for node in _computed(roots):
            for arg in node.args:
                self._uses[arg] = self._uses.get(arg, 0) + 1
        return [self._text(root) for root in roots]

    def _doubled(self, root: Scalar) -> Scalar:
        """`root` with high products of even numbers as those of their halves, by one number."""
        done: dict[Scalar, Scalar] = {}
        for node in s.walk([root]):
            done[node] = node
            if node.args and node not in self._texts:
                args = tuple(done[a] for a in node.args)
                done[node] = s.make(node.op, args, node.dtype, node.attr)
                half = _half(args[0]) if node.attr is high_product else None
                if half is not None and self._number(args[1]) is not None:
                    done[node] = doubled_high_product(half, args[1])
        return done[root]

    def _text(self, node: Scalar) -> str:
        if node not in self._texts:
            text = self._operation(node)
            if self._uses.get(node, 0) > 1 and node.args and node.op != "cast":
                name = self.temporary()
                self.lines.append(f"const {self.module}_int32x4_t {name} = {text};")
                text = name
            self._texts[node] = text
        return self._texts[node]

    def _operand(self, node: Scalar) -> str:
        """The text of `node` beside an operator."""
        text = self._text(node)
        return f"({text})" if text in self._infix else text

    def _operation(self, node: Scalar) -> str:
        if (number := self._number(node)) is not None:
            return self._call("all", number)
        if node.op == "cast":
            return self._text(node.args[0])
        if node.op == "call":
            return self._function(node)
        if node.op == "select":
            return self._clamped(node)
        a, b = node.args
        if node.op == "add":
            return self._sum(a, b)
        if node.op == "shift_right":
            inner, half = constant_apart(a)
            if inner is not None and 2 * half == 1 << b.attr:
                return self._call("rounded_shift", self._text(inner), str(b.attr))
            text = f"{self._operand(a)} >> {b.attr}"
        elif node.op == "shift_left":
            text = f"{self._operand(a)} * {1 << b.attr}"
        else:
            text = f"{self._operand(a)} {_ARITHMETIC[node.op]} {self._operand(b)}"
        self._infix.add(text)
        return text

    def _sum(self, a: Scalar, b: Scalar) -> str:
        """A multiple is added, or added to, in one instruction."""
        if (summand := self._number(b)) is not None:
            multiple = self._multiple(a)
            if multiple is None:
                return self._call("add", self._text(a), summand)
            return self._call("multiply_add", self._text(multiple[0]), multiple[1], summand)
        for x, y in ((a, b), (b, a)):
            if (multiple := self._multiple(y)) is not None:
                return self._call("add_multiple", self._text(x), self._text(multiple[0]), multiple[1])
        text = f"{self._operand(a)} + {self._operand(b)}"
        self._infix.add(text)
        return text

    def _multiple(self, node: Scalar) -> tuple[Scalar, str] | None:
        """(x, factor) if `node` is x times one number, and is used here alone."""
        if self._uses.get(node, 0) > 1:
            return None
        if node.op == "shift_left":
            return node.args[0], str(1 << node.args[1].attr)
        if node.op == "multiply" and (factor := self._number(node.args[1])) is not None:
            return node.args[0], factor
        return None

    def _function(self, node: Scalar) -> str:
        if node.attr.name in ("high_product", "doubled_high_product"):
            x, y = node.args
            factor = self._text(y) if node.attr is high_product else self._number(y)
            return self._call(node.attr.name, self._text(x), str(factor))
        (x,), places = node.args, 0
        if x.op == "shift_right" and x.args[1].attr <= 32 - 8 * np.dtype(node.dtype).itemsize:
            x, places = x.args[0], x.args[1].attr
        return self._call(node.attr.name, self._text(x), str(places))

    def _clamped(self, node: Scalar) -> str:
        found = bound(node)
        assert found is not None
        x, low, high = found
        name, number = ("minimum", high) if low == limits("int32")[0] else ("maximum", low)
        return self._call(name, self._text(x), self._text(s.const(number, "int32")))

    def _call(self, name: str, *args: str) -> str:
        return f"{self.module}_{name}_x4({', '.join(args)})"

    def _number(self, node: Scalar) -> str | None:
        """`node` as one number, if all lanes share it."""
        if node.op == "const":
            return literal(node.attr, node.dtype, self.module)
        return self._number(node.args[0]) if node.op == "cast" else self._numbers.get(node)
