"""`from_torch`: a PyTorch module as a `Module`; `to_state_dict`: what was learned, for PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any

import numpy as np

from teeny_embed.api.building import Build
from teeny_embed.api.program import Program
from teeny_embed.autograd.training import is_training
from teeny_embed.errors import DataError, ShapeError
from teeny_embed.frontends import torch as frontend
from teeny_embed.frontends.torch import Exported
from teeny_embed.frontends.torch.reader import torch_package
from teeny_embed.graph.layout import sink_transposes
from teeny_embed.graph.node import Graph, Variable, locating, user_line
from teeny_embed.graph.tensor import Tensor, assign, call, input, read, trace
from teeny_embed.graph.types import TensorType
from teeny_embed.nn.module import Module

_SEED = 1  # of dropout; parameters that are drawn have 0


def from_torch(module: Any, example_inputs: Any) -> TorchModule:
    """`module`, a torch.nn.Module, as a function of Tensors: for `te.trace`, `te.train_step` and modules.

    `example_inputs` is a tensor or a tuple of arguments, as `torch.export` takes them. Every tensor keeps
    torch's shape: images are [N, C, H, W], filters [O, I, H, W]; int64 becomes int32. Parameters and buffers
    are variables under torch's names; those that require no gradient are not trained. The module
    is exported anew for inputs of other shapes, and in training mode for a training step.

    Raises DataError with all operators that are not supported, and for what torch.export refuses;
    ToolError without the package torch.
    """
    torch = torch_package()
    if not isinstance(module, torch.nn.Module):
        hint = "te.from_torch(net, (x,))"
        raise DataError(f"a {type(module).__name__} is no torch.nn.Module", user_line(), hint)
    examples = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    return TorchModule(module, examples)


@dataclass(eq=False)
class _Stored(Variable):
    """A parameter or buffer of a net of torch."""

    net: TorchModule | None = None


class TorchModule(Module):
    """What `from_torch` returns."""

    def __init__(self, module: Any, examples: Sequence[Any]) -> None:
        self._module, self._examples = module, examples
        self._variables: dict[str, Variable] = {}
        for tensor in frontend.stored_tensors(module):
            variable = _Stored(tensor.names[0], tensor.value, tensor.kind, tensor.trainable, net=self)
            self._variables |= dict.fromkeys(tensor.names, variable)
        self._draws: Variable | None = None
        self._exports: dict[Any, Exported] = {}
        exported = self._exported(False, None)
        self._types = tuple(TensorType(a.shape, a.dtype) for a in exported.inputs)
        self.inputs = tuple(input(a.name, a.shape, a.dtype) for a in exported.inputs)
        """A placeholder for each example input: `te.trace(net, *net.inputs)`."""

    def members(self) -> Iterator[tuple[str, Module | Variable]]:
        """Parameters and buffers; one that has several names comes under the first."""
        first = {variable: name for name, variable in reversed(self._variables.items())}
        return ((name, variable) for name, variable in self._variables.items() if first[variable] == name)

    def forward(self, *inputs: Tensor) -> frontend.Result:
        types = tuple(x.type for x in inputs)
        if len(types) != len(self._types):
            hint = "it takes " + ", ".join(x.node.name for x in self.inputs)
            raise ShapeError(f"{len(types)} inputs for {len(self._types)}", hint=hint)
        exported = self._exported(is_training(), None if types == self._types else types)
        graph = Context().run(self._graph, exported)  # in no scope: calling the graph puts it into ours
        found = graph(*inputs)
        outputs = found if isinstance(found, dict) else {name: found for name, _ in graph.outputs}
        if exported.output_names is not None:
            return outputs
        return tuple(outputs.values()) if len(outputs) > 1 else next(iter(outputs.values()))

    def _graph(self, exported: Exported) -> Graph:
        numbers = _Numbers(self)

        def compute(*inputs: Tensor) -> Any:
            result = frontend.convert(exported, inputs, self._variables, numbers.uniform)
            numbers.advance()
            return result

        graph = trace(compute, *(input(a.name, a.shape, a.dtype) for a in exported.inputs))
        assert isinstance(graph, Graph)
        return sink_transposes(graph)

    def _exported(self, training: bool, types: tuple[TensorType, ...] | None) -> Exported:
        """The export for inputs of these types; those of the examples if there are none."""
        if (training, types) not in self._exports:
            examples = self._examples if types is None else _like(self._examples, types)
            exported = frontend.export(self._module, examples, training)
            frontend.check_supported(exported)
            self._exports[training, types] = exported
        return self._exports[training, types]

    def tensors(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """See `to_state_dict`."""
        torch = torch_package()
        found = {}
        for name, tensor in self._module.state_dict().items():
            variable = self._variables[name]
            value = variable.fitted(state.get(variable.name, variable.value))
            found[name] = torch.from_numpy(value).to(tensor.dtype)
        return found


class _Numbers:
    """Random numbers of one call: each draw has a stream of its own, each call its number."""

    def __init__(self, module: TorchModule) -> None:
        self._module, self._count = module, 0

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        """float32 in [0, 1)."""
        if self._module._draws is None:
            variables = self._module._variables.items()
            prefix = next((v.name.removesuffix(name) for name, v in variables), "")
            self._module._draws = Variable(f"{prefix}dropout.calls", np.array(0, np.uint32), "state")
        self._count += 1
        calls = read(self._module._draws)
        return call("random_uniform", calls, shape=shape, seed=_SEED, stream=self._count - 1)

    def advance(self) -> None:
        """Counts the call, if it has drawn."""
        if self._count and self._module._draws is not None:
            assign(self._module._draws, read(self._module._draws) + 1)


def _like(examples: Sequence[Any], types: tuple[TensorType, ...]) -> Any:
    """`examples` with zeros of other shapes for tensors."""
    torch = torch_package()
    given = iter(types)

    def zeros(leaf: Any) -> Any:
        return torch.zeros(next(given).shape, dtype=leaf.dtype) if isinstance(leaf, torch.Tensor) else leaf

    return torch.utils._pytree.tree_map(zeros, tuple(examples))


def to_state_dict(
    source: TorchModule | Program | Build, state: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Tensors by name, for `load_state_dict` of the module that `source` was made from, with torch's dtypes.

    `source` is what `from_torch` gave, or a program or build with it. `state` has values that were learned
    elsewhere, such as `FitReport.state` or a runner's; variables that it lacks have their own values. Raises
    DataError.
    """
    with locating("to_state_dict"):
        net = source if isinstance(source, TorchModule) else _net_of(source)
        return net.tensors(state or {})


def _net_of(source: Program | Build) -> TorchModule:
    program = source.program if isinstance(source, Build) else source
    hint = "give what te.from_torch returned"
    if not isinstance(program, Program):
        raise DataError(f"a {type(source).__name__} holds no net of torch", hint=hint)
    stored = [v for v in program.variables() if isinstance(v, _Stored)]
    nets = list(dict.fromkeys(v.net for v in stored if v.net is not None))
    if len(nets) != 1:
        raise DataError(f"program {program.name!r} holds {len(nets) or 'no'} nets of torch", hint=hint)
    return nets[0]
