"""From a torch module to plain data, through torch.export and its decomposition to core ATen operators."""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from teeny_embed.errors import DataError, ToolError
from teeny_embed.frontends.torch.exported import (
    Argument,
    Array,
    Exported,
    Operator,
    Ref,
    Stored,
    narrowed,
    numpy_dtype,
)
from teeny_embed.graph.node import user_line

KEPT = (
    "celu", "group_norm", "layer_norm", "linear", "log_sigmoid", "matmul", "mish", "roll",
    "scaled_dot_product_attention", "softplus",
)  # fmt: skip
"""Operators with a converter that is better than what they decompose to."""
_STORAGE = {"layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "requires_grad"}
"""Arguments that change no value."""


def torch_package() -> Any:
    """The package `torch`. Raises ToolError where it is missing."""
    try:
        import torch
    except ImportError as error:
        hint = 'pip install "teeny_embed[torch]"'
        raise ToolError(f"PyTorch modules need the package {error.name}", hint=hint) from None
    return torch


def stored_tensors(module: Any) -> list[Stored]:
    """Its parameters, then its buffers. Raises DataError for a dtype that cannot be stored."""
    names: dict[Any, list[str]] = {}
    for name, tensor in module.named_parameters(remove_duplicate=False):
        names.setdefault(tensor, []).append(name)
    parameters = set(names)
    for name, tensor in module.named_buffers(remove_duplicate=False):
        names.setdefault(tensor, []).append(name)
    return [
        Stored(
            names=tuple(found),
            value=_array(tensor, found[0]),
            kind="parameter" if tensor in parameters else "state",
            trainable=tensor in parameters and tensor.requires_grad,
        )
        for tensor, found in names.items()
    ]


def export(module: Any, arguments: Sequence[Any], training: bool) -> Exported:
    """What `module(*arguments)` computes, in training or evaluation mode. Raises DataError."""
    torch = torch_package()
    where = user_line()
    with _mode(module, training), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about itself
        try:
            program = torch.export.export(module, tuple(arguments)).run_decompositions(_decompositions(torch))
        except Exception as error:  # whatever the module's own code and torch raise
            what = f"torch.export refuses {type(module).__name__}: {_first_line(error)}"
            hint = "shapes must be fixed, and the code must not branch on values"
            raise DataError(what, where, hint) from error
    return _Reader(torch, program, where).read()


def _decompositions(torch: Any) -> Any:
    table = torch.export.default_decompositions()
    for name in KEPT:
        table.pop(getattr(torch.ops.aten, name).default, None)
    return table


@contextmanager
def _mode(module: Any, training: bool) -> Iterator[None]:
    """`module` in training or evaluation mode, and as it was afterwards."""
    before = {m: m.training for m in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for each, flag in before.items():
            each.training = flag


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _array(tensor: Any, name: str) -> Array:
    try:
        value = narrowed(tensor.detach().cpu().numpy())
    except (OverflowError, RuntimeError, TypeError) as error:
        raise DataError(f"{name!r} is {tensor.dtype}: {error}", user_line(), "module.float()") from None
    if value.dtype == np.float64:
        raise DataError(f"{name!r} is float64, which no device computes", user_line(), "module.float()")
    return value


class _Reader:
    """Reads one exported program."""

    def __init__(self, torch: Any, program: Any, where: str) -> None:
        self._program, self._where = program, where
        self._library = Path(torch.__file__).parent

    def read(self) -> Exported:
        signature, nodes = self._program.graph_signature, list(self._program.graph.nodes)
        kinds: dict[str, list[Any]] = {}
        for spec in signature.input_specs:
            kinds.setdefault(spec.kind.name, []).append(spec)
        if odd := [s for k in kinds if k not in _INPUTS for s in kinds[k]]:
            raise DataError(f"input {odd[0].arg.name!r} is no tensor", self._where)
        placeholders = {n.name: n for n in nodes if n.op == "placeholder"}
        stored = {s.arg.name: s.target for k in ("PARAMETER", "BUFFER") for s in kinds.get(k, ())}
        changed = [s for s in signature.output_specs if s.kind.name == "BUFFER_MUTATION"]
        mutations = [(s.target, Ref(s.arg.name)) for s in changed]
        return Exported(
            inputs=tuple(
                self._argument(placeholders[s.arg.name])
                for s in kinds.get("USER_INPUT", ())
                if "val" in placeholders[s.arg.name].meta
                and hasattr(placeholders[s.arg.name].meta["val"], "dtype")
            ),
            stored=stored,
            constants={
                s.arg.name: _array(self._program.constants[s.target], s.target)
                for s in kinds.get("CONSTANT_TENSOR", ())
            },
            operators=tuple(self._operator(n) for n in nodes if n.op == "call_function" and n.users),
            outputs=tuple(self._output(s) for s in signature.output_specs if s not in changed),
            output_names=self._output_names(),
            mutations=tuple(m for m in mutations if not _counts_only(m, stored, placeholders)),
        )

    def _argument(self, node: Any) -> Argument:
        value = node.meta["val"]
        return Argument(node.name, tuple(map(int, value.shape)), numpy_dtype(str(value.dtype)))

    def _output(self, spec: Any) -> Ref:
        if spec.kind.name != "USER_OUTPUT" or type(spec.arg).__name__ != "TensorArgument":
            hint = "return tensors, and leave inputs as they are"
            raise DataError(f"the module returns {spec.arg}, no tensor", self._where, hint)
        return Ref(spec.arg.name)

    def _output_names(self) -> tuple[str, ...] | None:
        spec = self._program.call_spec.out_spec
        return tuple(map(str, spec.context)) if spec is not None and spec.type is dict else None

    def _operator(self, node: Any) -> Operator:
        path, where = _path(node), self._line(node)
        if node.target is operator.getitem:
            several, index = node.args
            return Operator(node.name, "getitem", "", _plain(several), {"index": index}, path, where)
        if not hasattr(node.target, "_schema"):
            name = getattr(node.target, "__name__", str(node.target))
            return Operator(node.name, name, name, None, {}, path, where)
        schema = node.target._schema
        given = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | dict(node.kwargs)
        first = schema.arguments[0].name if schema.arguments else ""
        rest = {
            a.name: _plain(given[a.name])
            for a in schema.arguments
            if a.name in given and a.name not in (first, *_STORAGE)
            if not (a.has_default_value() and given[a.name] == a.default_value)
        }
        name = schema.name.replace("::", ".")
        overload = f"{name}.{schema.overload_name}" if schema.overload_name else name
        return Operator(node.name, name, overload, _plain(given.get(first)), rest, path, where)

    def _line(self, node: Any) -> str:
        """The innermost line of the user's own code."""
        frames = re.findall(r'File "(.*?)", line (\d+)', node.meta.get("stack_trace") or "")
        own = [(Path(file), line) for file, line in frames if self._library not in Path(file).parents]
        return f"{own[-1][0].name}:{own[-1][1]}" if own else self._where


_INPUTS = ("PARAMETER", "BUFFER", "CONSTANT_TENSOR", "USER_INPUT")


def _counts_only(mutation: tuple[str, Ref], stored: Mapping[str, str], nodes: Mapping[str, Any]) -> bool:
    """Whether a buffer serves nothing but its own next version: batch normalisation's count of batches."""
    name, new = mutation
    placeholder = next(nodes[tensor] for tensor, target in stored.items() if target == name)
    readers = list(placeholder.users)
    return [r.name for r in readers] == [new.name] and {u.op for u in readers[0].users} == {"output"}


def _path(node: Any) -> str:
    """The module that a node stems from; of one that is called repeatedly, without the number of the call."""
    stack = node.meta.get("nn_module_stack") or {}
    return re.sub(r"@\d+", "", str(list(stack.values())[-1][0])) if stack else ""


def _plain(value: Any) -> Any:
    """Numbers, text, tuples and `Ref`s for what a node is called with."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    kind = type(value).__name__
    return Ref(value.name) if kind == "Node" else numpy_dtype(str(value)) if kind == "dtype" else str(value)
