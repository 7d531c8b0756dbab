"""Extents that have a name while a model is written, and a number only when it is built.

`te.input("image", (None, 28, 28, 1))` gives an `UnboundInput`. Shapes are static where operators see them, so
what is to be traced with such an input waits, as a `DeferredGraph`, until the names are bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, NoReturn

from teeny_embed.errors import GraphError
from teeny_embed.graph.node import Graph, called_from, user_line
from teeny_embed.graph.tensor import Tensor, input, trace

Extent = int | str | None


class UnboundInput(Tensor):
    """An input with extents that are names. Tracing takes it; there is no tensor before they are bound."""

    __slots__ = ("extents", "input_dtype", "name", "where")

    def __init__(self, name: str, extents: tuple[int | str, ...], dtype: str) -> None:
        self.name, self.extents, self.input_dtype, self.where = name, extents, dtype, user_line()

    def __repr__(self) -> str:
        return f"Tensor({self.input_dtype}[{','.join(map(str, self.extents))}], {self.name})"

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of extents."""
        return tuple(dict.fromkeys(e for e in self.extents if isinstance(e, str)))

    def bind(self, dims: Mapping[str, int]) -> Tensor:
        """The input itself."""
        if missing := [d for d in self.dims if d not in dims]:
            hint = f'te.build(program, dims={{"{missing[0]}": 8}}), or --dim {missing[0]}=8'
            raise GraphError(f"dim {missing[0]!r} of input {self.name!r} is not bound", self.where, hint)
        shape = [dims[e] if isinstance(e, str) else e for e in self.extents]
        return called_from(self.where, lambda: input(self.name, shape, self.input_dtype))

    def __getattr__(self, name: str) -> NoReturn:
        """Whatever needs the tensor's node finds that there is none yet."""
        if name != "node":
            raise AttributeError(name)
        raise GraphError(
            f"input {self.name!r} has no shape before dim {self.dims[0]!r} is bound",
            user_line(),
            "compute with it inside the function that te.trace is given",
        )


@dataclass(frozen=True, eq=False)
class DeferredGraph:
    """A function and inputs whose graph is traced, as if at `where`, when their dims are bound."""

    function: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    names: Sequence[str] | None
    where: str
    context: Context = field(default_factory=copy_context)

    @property
    def unbound(self) -> dict[str, UnboundInput]:
        """Dims by name, each with the first input that has it."""
        found: dict[str, UnboundInput] = {}
        for each in self.inputs:
            if isinstance(each, UnboundInput):
                found |= {dim: each for dim in each.dims if dim not in found}
        return found

    def bind(self, dims: Mapping[str, int]) -> Graph:
        """The graph for these extents. Raises GraphError for a dim that is missing."""
        inputs = [i.bind(dims) if isinstance(i, UnboundInput) else i for i in self.inputs]

        def traced() -> Graph:
            graph = trace(self.function, *inputs, names=self.names)
            assert isinstance(graph, Graph)
            return graph

        return self.context.copy().run(called_from, self.where, traced)

    def __call__(self, *inputs: Any) -> Any:
        """The function itself, on tensors of any shape that it takes."""
        return self.function(*inputs)


def named_extents(shape: Sequence[Extent]) -> tuple[int | str, ...]:
    """None has a name, too: the first of a shape is "N", the batch; another is "D" and its axis."""
    first = next((axis for axis, e in enumerate(shape) if e is None), None)
    named = (("N" if axis == first else f"D{axis}") if e is None else e for axis, e in enumerate(shape))
    return tuple(int(e) if isinstance(e, Integral) else e for e in named)
