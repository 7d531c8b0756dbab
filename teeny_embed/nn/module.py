"""`Module`: parameters and children, found by attribute, named by path. Layout is NHWC, filters OHWI."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from math import prod
from typing import Any, Self

import numpy as np

from teeny_embed.autograd.training import is_training
from teeny_embed.errors import DataError, GraphError
from teeny_embed.graph import scalar as s
from teeny_embed.graph.functions import initial_value
from teeny_embed.graph.node import (
    Array,
    UniformDraw,
    Variable,
    expect_mapping,
    load,
    locating,
    name_scope,
    scoped,
)
from teeny_embed.graph.tensor import Tensor, as_tensor, assign, call, read

_UNDRAWN = -1  # stream of a parameter that was not drawn yet

_inside: ContextVar[bool] = ContextVar("inside", default=False)


def uniform(*shape: int, bound: float) -> Variable:
    """A parameter that `Module.initialize` draws uniformly from +-bound."""
    return Variable("", np.zeros(shape, np.float32), draw=UniformDraw(0, _UNDRAWN, bound))


def filled(*shape: int, value: float, kind: str = "parameter") -> Variable:
    """A float32 variable that starts with one value everywhere."""
    return Variable("", np.full(shape, value, np.float32), kind)


def drawn(shape: tuple[int, ...], draw: UniformDraw) -> Array:
    """float32, row-major: `initial_value` of each element, which a device computes alike."""
    element = s.var("element", "uint32")
    elements = np.arange(prod(shape), dtype=np.uint32)
    values: Array = s.evaluate(initial_value(draw, element), {element: elements})
    return values.reshape(shape)


class Module:
    """A layer or a net: a function of Tensors that owns Variables.

    Attributes that are Variables, Modules, or lists of Modules belong to it, in the order in which they
    were set. Subclasses define `forward`. Calling the outermost module names and draws what was not drawn
    yet, with seed 0; call `initialize` to choose the seed.
    """

    kind: str | None = None
    """What positional children of `Sequential` are called; the class name in lower case if not given."""
    forward: Callable[..., Any]

    _scope = ""
    _prepared = False
    _calls: Variable | None = None  # uint32[], of the whole model: outermost calls in training

    def __call__(self, *inputs: Any) -> Any:
        """`forward(*inputs)`, its nodes named after this module. Errors say in which layer and line."""
        if _inside.get():
            with name_scope(self._scope) if self._scope else nullcontext():
                return self._run(inputs)
        self._prepare()
        token = _inside.set(True)
        try:
            result = self._run([as_tensor(x) if isinstance(x, np.ndarray) else x for x in inputs])
        finally:
            _inside.reset(token)
        if self._calls is not None and is_training():
            assign(self._calls, read(self._calls) + 1)
        return result

    def _run(self, inputs: Sequence[Any]) -> Any:
        path = scoped("")
        with locating(f"{type(self).__name__} ({path})" if path else type(self).__name__):
            if not hasattr(self, "forward"):
                raise GraphError("the module has no method forward", hint="define forward(self, x)")
            return self.forward(*inputs)

    # ---- What belongs to it ---------------------------------------------------------------------------

    def members(self) -> Iterator[tuple[str, Module | Variable]]:
        """(name, child or variable); element i of a list `blocks` is `blocks<i>`."""
        for name, value in vars(self).items():
            if name.startswith("_"):
                continue
            if isinstance(value, Module | Variable):
                yield name, value
            elif isinstance(value, list | tuple):
                yield from ((f"{name}{i}", m) for i, m in enumerate(value) if isinstance(m, Module))

    def named_modules(self, path: str = "") -> Iterator[tuple[str, Module]]:
        """(path, module), this one first; a module used twice comes once, under its first path."""
        found: dict[Module, str] = {}
        self._collect(path, found)
        return ((p, m) for m, p in found.items())

    def _collect(self, path: str, found: dict[Module, str]) -> None:
        if self in found:
            return
        found[self] = path
        for name, member in self.members():
            if isinstance(member, Module):
                member._collect(_joined(path, name), found)

    def named_variables(self) -> Iterator[tuple[str, Variable]]:
        """("conv0.weight", variable): parameters and state; a shared variable comes once."""
        seen: set[Variable] = set()
        for path, module in self.named_modules():
            for name, member in module.members():
                if isinstance(member, Variable) and member not in seen:
                    seen.add(member)
                    yield _joined(path, name), member

    def parameters(self) -> list[Variable]:
        """What the net computes with, trainable or frozen, in order."""
        return [v for _, v in self.named_variables() if v.kind == "parameter"]

    # ---- Values ---------------------------------------------------------------------------------------

    def initialize(self, seed: int = 0) -> Self:
        """Names every variable by its path and draws initial values: key (seed, index of the parameter).

        Parameters that were loaded, or that start with a fixed value, keep it.
        """
        self._name()
        for stream, parameter in enumerate(self.parameters()):
            if parameter.draw is not None:
                _draw(parameter, seed, stream)
        self._prepare_randomness(seed)
        return self

    def _prepare(self) -> None:
        """As `initialize(0)`, but what has values already keeps them (a part that was used on its own)."""
        if self._prepared:
            return
        self._name()
        for stream, parameter in enumerate(self.parameters()):
            if parameter.draw is not None and parameter.draw.stream == _UNDRAWN:
                _draw(parameter, 0, stream)
        self._prepare_randomness(0)

    def _name(self) -> None:
        for path, variable in self.named_variables():
            variable.name = path
        for path, module in self.named_modules():
            module._scope, module._prepared = path.rpartition(".")[2], True

    def _prepare_randomness(self, seed: int) -> None:
        """One call counter for the whole model; streams of random layers follow those of the parameters."""
        modules = [m for _, m in self.named_modules()]
        layers = [m for m in modules if isinstance(m, RandomModule)]
        for number, layer in enumerate(layers):
            layer.key = seed, len(self.parameters()) + number
        if layers:
            calls = Variable("random.calls", np.array(0, np.uint32), "state")
            for module in modules:
                module._calls = calls

    def freeze(self) -> Self:
        """Training leaves the parameters as they are and does not compute their gradients."""
        for parameter in self.parameters():
            parameter.trainable = False
        return self

    def load(self, values: Mapping[str, Any]) -> Self:
        """Sets every variable, by name: current and initial value. Refuses all if one has no fit."""
        self._prepare()
        variables = dict(self.named_variables())
        with locating("load"):
            expect_mapping(values)
            if missing := sorted(variables.keys() ^ values.keys()):
                side = "the values lack" if missing[0] in variables else "the net has no"
                raise DataError(f"{side} {missing[0]!r}", hint=f"the net has {', '.join(variables)}")
            load(variables, values)
        return self

    def state_dict(self) -> dict[str, Array]:
        """A copy of every variable's value, by name."""
        self._prepare()
        return {name: v.value.copy() for name, v in self.named_variables()}


class RandomModule(Module):
    """A layer that draws random numbers while training. Its outermost module gives it key and counter."""

    key: tuple[int, int] = (0, 0)
    """(seed, stream)"""

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        """float32 in [0, 1), other numbers at each call of the outermost module in training."""
        assert self._calls is not None
        seed, stream = self.key
        return call("random_uniform", read(self._calls), shape=shape, seed=seed, stream=stream)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _draw(parameter: Variable, seed: int, stream: int) -> None:
    assert parameter.draw is not None
    draw = UniformDraw(seed, stream, parameter.draw.bound)
    parameter.start_from(drawn(parameter.value.shape, draw), draw)


class Sequential(Module):
    """Modules one after the other. Positional ones are named by kind and position: conv0, relu1, linear2."""

    def __init__(self, *modules: Module, **named: Module) -> None:
        with locating(type(self).__name__):
            for position, module in enumerate([*modules, *named.values()]):
                if not isinstance(module, Module):
                    hint = "what has no class in te.nn: write a Module with a method forward"
                    raise GraphError(f"entry {position} is a {type(module).__name__}, no Module", hint=hint)
        positional = {f"{m.kind or type(m).__name__.lower()}{i}": m for i, m in enumerate(modules)}
        self._chain = {**positional, **named}

    def members(self) -> Iterator[tuple[str, Module | Variable]]:
        yield from self._chain.items()

    def forward(self, x: Tensor) -> Tensor:
        for module in self._chain.values():
            x = module(x)
        return x
