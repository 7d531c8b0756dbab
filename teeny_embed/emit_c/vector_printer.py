"""Scalar expressions over all lanes of a vector at once, as C statements for GNU vector types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from teeny_embed.emit_c.literals import literal
from teeny_embed.graph import scalar as s
from teeny_embed.graph.scalar import Scalar

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

    def text(self, node: Scalar) -> str:
        """The name of the vector of `node`."""
        if node not in self._texts:
            name = self.temporary()
            self.lines.append(f"const {self.module}_v{self.lanes}_t {name} = {self._operation(node)};")
            self._texts[node] = name
        return self._texts[node]

    def _operation(self, node: Scalar) -> str:
        if node.op == "select":
            test, *arms = node.args
            a, b, chosen, otherwise = map(self.text, (*test.args, *arms))
            bits, mask = f"({self.module}_mask{self.lanes}_t)", self.temporary()
            self.lines.append(f"const {bits[1:-1]} {mask} = {a} {_COMPARISON[test.op]} {b};")
            both = f"({bits}{chosen} & {mask}) | ({bits}{otherwise} & ~{mask})"
            return f"({self.module}_v{self.lanes}_t)({both})"
        if node.args:
            a, b = map(self.text, node.args)
            return f"{a} {_ARITHMETIC[node.op]} {b}"
        number = self._numbers[node] if node.op == "var" else literal(node.attr, node.dtype, self.module)
        return f"{number} - ({self.module}_v{self.lanes}_t){{0.0f}}"  # in every lane; -0 stays -0
