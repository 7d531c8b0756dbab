"""What a step computes, as a line of a comment: `y[oc] = max(sum over ic of x[ic] w[oc,ic] + b[oc], 0)`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.step import Buffer, Fold, Step

LONGEST = 300  # characters; what is longer explains nothing
_INFIX = {
    "add": " + ", "subtract": " - ", "multiply": " ", "divide": " / ", "less": " < ", "less_equal": " <= ",
    "equal": " == ", "not_equal": " != ", "logical_and": " and ", "logical_or": " or ",
    "remainder": " mod ",
}  # fmt: skip
_TIGHT = ("multiply", "divide", "remainder")


def formulas(step: Step, names: Mapping[Buffer, str]) -> list[str]:
    """One line for each output, none where it would be too long to help. `names` are the C function's."""
    lines = []
    printer = _Printer(step, names)
    for output in step.outputs:
        if printer.names_in(output.value) > LONGEST:
            continue
        here = ",".join(d for d, _ in step.dims)
        place = f"{names[output.buffer]}[{here}]" if here else names[output.buffer]
        text = f"{place} = {printer.text(output.value)}"
        if len(text) <= LONGEST:
            lines.append(text)
    return lines


class _Printer:
    def __init__(self, step: Step, names: Mapping[Buffer, str]) -> None:
        self.step, self.names = step, names
        self.folds = {f.accumulator: f for f in step.folds}
        self._counts: dict[Scalar, int] = {}

    def names_in(self, node: Scalar) -> int:
        """How many names and numbers the text of `node` has: what is shared is written out each time."""
        if node not in self._counts:
            parts = node.args
            if node.op == "var" and node not in self.folds:
                parts = tuple(i for i in self.step.reads[str(node.attr)].index if isinstance(i, Scalar))
            self._counts[node] = max(1, sum(map(self.names_in, parts)))
        return self._counts[node]

    def text(self, node: Scalar, tight: bool = False) -> str:
        """`node` in mathematical notation; in parentheses if it stands beside a product and is no factor."""
        if node in self.folds:
            return self._fold(self.folds[node], tight)
        if node.op in ("index", "const"):
            return node.attr if node.op == "index" else f"{_number(node)}"
        if node.op == "var":
            return self._read(str(node.attr))
        if node.op == "select":
            return self._select(node)
        if node.op == "cast":
            return self.text(node.args[0], tight)
        if node.op in _INFIX:
            inner = node.op in _TIGHT
            text = _INFIX[node.op].join(self.text(a, inner) for a in node.args)
            return f"({text})" if tight and not inner else text
        name = node.attr.name if node.op == "call" else node.op
        return f"{name}({', '.join(map(self.text, node.args))})"

    def _select(self, node: Scalar) -> str:
        condition, a, b = node.args
        if condition is s.less(b, 0) and _is_zero(a):
            return f"max({self.text(b)}, 0)"
        return f"({self.text(a)} if {self.text(condition)} else {self.text(b)})"

    def _fold(self, fold: Fold, tight: bool) -> str:
        over = ", ".join(d for d, _ in self.step.fold_dims)
        of = fold.term if fold.operand is None else fold.operand
        text = f"{fold.kind} over {over}" + (f" of {self.text(of, True)}" if of is not None else "")
        return f"({text})" if tight else text

    def _read(self, name: str) -> str:
        read = self.step.reads[name]
        parts = [str(i) if isinstance(i, Affine) else self.text(i) for i in read.index]
        return f"{self.names[read.buffer]}[{','.join(parts)}]" if parts else self.names[read.buffer]


def _number(node: Scalar) -> str:
    return f"{np.dtype(node.dtype).type(node.attr):.7g}" if node.dtype.startswith("float") else str(node.attr)


def _is_zero(node: Scalar) -> bool:
    return node.op == "const" and node.attr == 0
