"""The operator registry: what an operator means is declared once, as one `Op`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import Parameter, signature
from operator import index
from typing import TYPE_CHECKING, Any

from teeny_embed.errors import AttributeValueError, GraphError
from teeny_embed.graph.types import TensorType

if TYPE_CHECKING:
    from teeny_embed.graph.affine import Affine
    from teeny_embed.graph.scalar import Scalar
    from teeny_embed.graph.step import Form
    from teeny_embed.graph.tensor import Tensor


class _NotDifferentiable:
    """Marks an operator whose result carries no gradient."""

    def __repr__(self) -> str:
        return "NOT_DIFFERENTIABLE"


NOT_DIFFERENTIABLE = _NotDifferentiable()

Vjp = Callable[..., Sequence["Tensor | None"]]
"""vjp(g, ans, *operands, **attributes) -> one cotangent per operand, None where there is none."""


@dataclass(frozen=True)
class Attribute:
    """A keyword argument of an operator. `check` returns the accepted value or raises ValueError."""

    summary: str
    default: Any = None
    required: bool = False
    check: Callable[[Any], Any] = field(default=lambda value: value)


def integers(value: Any) -> tuple[int, ...]:
    """For `Attribute.check`: a tuple of integers."""
    return tuple(map(index, value))


@dataclass(frozen=True)
class Sample:
    """Operands and attributes for the contract tests."""

    operands: tuple[Any, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Op:
    """One operator. Exactly one of `scalar`, `form`, `view`, `composite` or `leaf` says what it computes.

    scalar      expression of one element of each (broadcast) operand
    form        a fold over an index space, as a `Form`
    view        movement: the operand's index map over the result's dims "0", "1", ...; None for a
                row-major regrouping
    composite   the same in other operators, as Tensors
    leaf        inputs, constants and variables
    """

    name: str
    summary: str
    infer: Callable[..., TensorType]
    vjp: Vjp | _NotDifferentiable
    scalar: Callable[..., Scalar] | None = None
    form: Callable[..., Form] | None = None
    view: Callable[..., tuple[Affine, ...] | None] | None = None
    composite: Callable[..., Tensor] | None = None
    leaf: bool = False
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    index_bounds: Callable[..., Mapping[int, int]] | None = None
    """(types, **attributes) -> {operand position: exclusive upper bound of its values}."""
    samples: Callable[..., Sequence[Sample]] | None = None

    def __post_init__(self) -> None:
        meanings = [self.scalar, self.form, self.view, self.composite, self.leaf or None]
        assert sum(m is not None for m in meanings) == 1, f"{self.name}: exactly one meaning"

    @cached_property
    def operand_count(self) -> int | None:
        """How many operands it takes; None for any number from 1."""
        meaning = self.scalar or self.form or self.composite
        if meaning is None:
            return 0 if self.leaf else 1
        parameters = getattr(meaning, "parameters", None) or signature(meaning).parameters.values()
        if any(p.kind is Parameter.VAR_POSITIONAL for p in parameters if isinstance(p, Parameter)):
            return None
        named = [p for p in parameters if getattr(p, "kind", None) is not Parameter.VAR_KEYWORD]
        return sum(getattr(p, "name", "") not in self.attributes for p in named)

    def check_operands(self, count: int) -> None:
        """Raises GraphError for a wrong number of operands."""
        if count != self.operand_count and (self.operand_count is not None or count == 0):
            expected = "at least 1" if self.operand_count is None else self.operand_count
            raise GraphError(f"{count} operands, expected {expected}", hint=self.summary)

    def bind(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes with defaults filled in and values checked."""
        unknown = sorted(set(given) - set(self.attributes))
        if unknown:
            known = ", ".join(self.attributes) or "none"
            raise AttributeValueError(f"unknown attribute {unknown[0]!r}", hint=f"known: {known}")
        return {name: self._value(name, a, given) for name, a in self.attributes.items()}

    def _value(self, name: str, attribute: Attribute, given: Mapping[str, Any]) -> Any:
        if name not in given:
            if attribute.required:
                raise AttributeValueError(f"attribute {name!r} is missing", hint=attribute.summary)
            return attribute.default
        try:
            return attribute.check(given[name])
        except (TypeError, ValueError) as error:
            message = f"attribute {name} = {given[name]!r}: {error}"
            raise AttributeValueError(message, hint=attribute.summary) from None


REGISTRY: dict[str, Op] = {}


def register(op: Op) -> Op:
    """Add `op` to the registry, which tests, docs and lowering iterate."""
    assert op.name not in REGISTRY, f"operator {op.name} is declared twice"
    REGISTRY[op.name] = op
    return op
