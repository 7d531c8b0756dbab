"""Scalar expressions as C: one statement per shared value, in the order in which NumPy computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from teeny_embed.emit_c.helpers import spellings
from teeny_embed.emit_c.literals import C_TYPES, literal
from teeny_embed.graph import scalar as s
from teeny_embed.graph.interval import Intervals
from teeny_embed.graph.scalar import Scalar, ScalarFunction

Text = tuple[str, int]
"""An expression and how tightly it binds (C99 6.5, higher binds tighter)."""

ATOM, PREFIX, PRODUCT, SUM, SHIFT, ORDER, EQUALITY, BITS, CHOICE = 16, 14, 13, 12, 11, 10, 9, 8, 3

_INFIX = {
    "add": ("+", SUM), "subtract": ("-", SUM), "multiply": ("*", PRODUCT), "divide": ("/", PRODUCT),
    "less": ("<", ORDER), "less_equal": ("<=", ORDER),
    "equal": ("==", EQUALITY), "not_equal": ("!=", EQUALITY),
    "logical_and": ("&&", 5), "logical_or": ("||", 4), "bit_and": ("&", BITS), "bit_or": ("|", BITS),
    "bit_xor": ("^", BITS), "shift_left": ("<<", SHIFT), "shift_right": (">>", SHIFT),
}  # fmt: skip
_WRAPPING = ("add", "subtract", "multiply", "negative", "shift_left")


class ScalarPrinter:
    """Prints expressions over given leaves. Values used more than once become constants in `lines`.

    `intervals` are what the leaves can be: signed arithmetic that cannot overflow is printed as it is.
    """

    def __init__(
        self,
        module: str,
        leaves: Mapping[Scalar, str],
        temporary: Callable[[], str],
        intervals: Intervals | None = None,
    ) -> None:
        self.module = module
        self._intervals = intervals if intervals is not None else Intervals({})
        self.lines: list[str] = []
        self._known: dict[Scalar, Text] = {leaf: (text, ATOM) for leaf, text in leaves.items()}
        self._temporary = temporary
        self._uses: dict[Scalar, int] = {}

    def print(self, roots: Sequence[Scalar]) -> list[str]:
        """The roots' expressions; temporaries they share are appended to `lines`."""
        for node in s.walk(roots):
            for arg in node.args:
                self._uses[arg] = self._uses.get(arg, 0) + 1
        for root in roots:
            self._uses[root] = self._uses.get(root, 0) + 1
        return [self._text(root)[0] for root in roots]

    def condition(self, root: Scalar) -> str:
        """A bool expression as a C condition."""
        for node in s.walk([root]):
            for arg in node.args:
                self._uses[arg] = self._uses.get(arg, 0) + 1
        return self._text(root)[0]

    def _text(self, node: Scalar) -> Text:
        if node in self._known:
            return self._known[node]
        text = self._operation(node)
        if self._uses.get(node, 0) > 1 and node.args and not self._is_cheap(node):
            name = self._temporary()
            self.lines.append(f"const {C_TYPES[node.dtype]} {name} = {stored(text[0], node)};")
            text = (f"({name} != 0u)", ATOM) if node.dtype == "bool" else (name, ATOM)
        self._known[node] = text
        return text

    def _is_cheap(self, node: Scalar) -> bool:
        """Whether repeating `node` reads better, and compiles better, than naming it: a test of two names."""
        return node.dtype == "bool" and all(self._known[a][1] == ATOM for a in node.args if a in self._known)

    def _operation(self, node: Scalar) -> Text:
        if node.op == "const":
            if node.dtype == "bool":
                return ("(1 != 0)" if node.attr else "(0 != 0)"), ATOM
            return literal(node.attr, node.dtype, self.module), ATOM
        if node.op == "call":
            args = ", ".join(self._text(a)[0] for a in node.args)
            return f"{self.module}_{node.attr.name}({args})", ATOM
        if node.op in ("bits", "from_bits", "select", "cast", "logical_not"):
            return getattr(self, "_" + node.op)(node)  # type: ignore[no-any-return]
        return self._arithmetic(node)

    def _bits(self, node: Scalar) -> Text:
        return f"{self.module}_bits{_width(node)}({self._text(node.args[0])[0]})", ATOM

    def _from_bits(self, node: Scalar) -> Text:
        return f"{self.module}_from_bits{_width(node)}({self._text(node.args[0])[0]})", ATOM

    def _logical_not(self, node: Scalar) -> Text:
        return f"!{self._at(node.args[0], PREFIX)}", PREFIX

    def _select(self, node: Scalar) -> Text:
        condition, a, b = (self._text(x) for x in node.args)
        test = condition[0] if condition[1] == ATOM else f"({condition[0]})"
        if node.dtype == "bool":
            a, b = ((f"({x[0]})", ATOM) if x[1] < ATOM else x for x in (a, b))
        return f"{test} ? {_wrapped(a, CHOICE + 1)} : {_wrapped(b, CHOICE + 1)}", CHOICE

    def _cast(self, node: Scalar) -> Text:
        source, text = node.args[0].dtype, self._at(node.args[0], PREFIX)
        if source == "bool":
            return (
                f"{self._at(node.args[0], CHOICE + 1)} ? {literal(1, node.dtype)} : {literal(0, node.dtype)}",
                CHOICE,
            )
        if node.dtype == "bool":
            return f"{text} != {literal(0, source)}", EQUALITY
        is_stored_half = "float16" in (source, node.dtype)
        if is_stored_half or (source.startswith("float") and not node.dtype.startswith("float")):
            return f"{self.module}_{node.dtype}_from_{source}({self._text(node.args[0])[0]})", ATOM
        return f"({C_TYPES[node.dtype]}){text}", PREFIX

    def _arithmetic(self, node: Scalar) -> Text:
        dtype = node.dtype
        if dtype.startswith(("int", "uint")) and node.op in ("divide", "remainder"):
            return self._integer_division(node)
        if node.op == "negative" and dtype.startswith("float"):
            return f"-{self._at(node.args[0], ATOM)}", PREFIX
        if dtype in ("int32", "int64") and node.op in _WRAPPING and not self._intervals.wraps(node):
            return self._exact(node)
        if dtype.startswith("int") and node.op in _WRAPPING:
            return self._wrapping(node)
        if dtype in ("int8", "uint8", "int16", "uint16") and node.op != "select":
            return f"({C_TYPES[dtype]})({self._infix(node)[0]})", PREFIX
        return self._infix(node)

    def _infix(self, node: Scalar) -> Text:
        if node.op == "negative":
            return f"0u - {self._at(node.args[0], SUM + 1)}", SUM
        symbol, precedence = _INFIX[node.op]
        left, right = node.args
        if node.op in ("logical_and", "logical_or") and all(_is_test(n) for n in s.walk([node])):
            symbol, precedence = symbol[0], BITS  # both sides at once: cheaper than a branch
        loose = BITS <= precedence <= SHIFT or precedence in (EQUALITY, 4, 5)  # gcc asks for parentheses here
        a = self._at(left, ATOM if loose and left.args else precedence)
        b = self._at(right, ATOM if loose and right.args else precedence + 1)
        if node.op.startswith("shift") and right.op != "const":
            b = self._count(node)
        return f"{a} {symbol} {b}", precedence

    def _exact(self, node: Scalar) -> Text:
        """Signed arithmetic that does not overflow. C has no shift to the left of negative numbers."""
        if node.op == "negative":
            return f"-{self._at(node.args[0], ATOM)}", PREFIX
        if node.op == "shift_left":
            x, count = node.args
            if count.op != "const":
                return self._wrapping(node)
            return self._infix(s.make("multiply", (x, s.const(1 << count.attr, node.dtype)), node.dtype))
        if node.op == "add" and node.args[1].op == "const" and node.args[1].attr < 0:
            return self._infix(
                s.make("subtract", (node.args[0], s.const(-node.args[1].attr, node.dtype)), node.dtype)
            )
        return self._infix(node)

    def _wrapping(self, node: Scalar) -> Text:
        """Signed arithmetic through the unsigned type, where it wraps."""
        unsigned = "uint64_t" if node.dtype == "int64" else "uint32_t"
        parts = [f"({unsigned}){self._at(a, PREFIX)}" for a in node.args]
        if node.op == "negative":
            return f"({C_TYPES[node.dtype]})(0u - {parts[0]})", PREFIX
        if node.op == "shift_left":
            parts[1] = self._count(node)
        return f"({C_TYPES[node.dtype]})({parts[0]} {_INFIX[node.op][0]} {parts[1]})", PREFIX

    def _count(self, shift: Scalar) -> str:
        """How many places, modulo the width."""
        width, count = 8 * np.dtype(shift.dtype).itemsize, shift.args[1]
        if count.op == "const":
            return f"{count.attr % width}u"
        return f"((uint32_t){self._at(count, PREFIX)} & {width - 1}u)"

    def _integer_division(self, node: Scalar) -> Text:
        a, b = node.args
        if b.op == "const" and b.attr not in (0, -1):
            symbol = "/" if node.op == "divide" else "%"
            return f"{self._at(a, PRODUCT)} {symbol} {literal(b.attr, b.dtype)}", PRODUCT
        return f"{self.module}_{node.dtype}_{node.op}({self._text(a)[0]}, {self._text(b)[0]})", ATOM

    def _at(self, node: Scalar, precedence: int) -> str:
        return _wrapped(self._text(node), precedence)


def _is_test(node: Scalar) -> bool:
    """Whether `node` is a comparison, a combination of comparisons, or compares values at hand."""
    return node.dtype == "bool" or not node.args


def _wrapped(text: Text, precedence: int) -> str:
    return text[0] if text[1] >= precedence else f"({text[0]})"


def _width(node: Scalar) -> str:
    return "64" if "64" in node.dtype or "64" in node.args[0].dtype else ""


def stored(text: str, node: Scalar) -> str:
    """`text` as a value to keep: conditions become 0 or 1."""
    return f"({text}) ? 1u : 0u" if node.dtype == "bool" else text


def function_definition(module: str, function: ScalarFunction) -> str:
    """A named function as C; where an instruction set has a spelling of its own, with that before it."""
    numbers = iter(range(1 << 20))
    names = {p: p.attr for p in function.parameters}
    printer = ScalarPrinter(module, names, lambda: f"t{next(numbers)}")
    (result,) = printer.print([function.body])
    parameters = ", ".join(f"{C_TYPES[p.dtype]} {p.attr}" for p in function.parameters)
    ulp = f" Worst error over all inputs: {function.max_ulp} ulp." if function.max_ulp else ""
    lines = [f"/* {function.summary}.{ulp} */"]
    lines += [f"TE_SCALAR static {C_TYPES[function.dtype]} {module}_{function.name}({parameters})", "{"]
    body = [*printer.lines, f"return {stored(result, function.body)};"]
    for number, (condition, spelling) in enumerate(spellings().get(function.name, [])):
        lines += [f"#{'elif' if number else 'if'} {condition}", *spelling.split("\n")]
    if function.name in spellings():
        body = ["#else", *body, "#endif"]
    return "\n".join([*lines, *body, "}"])
