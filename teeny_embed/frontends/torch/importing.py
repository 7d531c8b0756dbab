"""From an `Exported` to tensors: operator after operator, each by the converter of its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any

from teeny_embed.errors import DataError
from teeny_embed.frontends.torch.exported import Exported, Operator, Ref
from teeny_embed.frontends.torch.operators import CONVERTERS
from teeny_embed.graph.node import CONSTANT, Variable, called_from, locating, name_scope, topological
from teeny_embed.graph.tensor import Tensor, assign, constant, read

Uniform = Callable[[tuple[int, ...]], Tensor]
"""uniform(shape): float32 numbers in [0, 1)."""
_FOLD_LIMIT = 1 << 20  # elements of a constant: beyond that it is computed where it is used
Result = Tensor | tuple[Tensor, ...] | dict[str, Tensor]


def check_supported(exported: Exported) -> None:
    """Raises DataError that lists every operator without a converter, with where it is used."""
    lines: dict[str, list[str]] = {}
    for op in exported.operators:
        if op.name != "getitem" and op.name not in CONVERTERS:
            lines.setdefault(op.overload, []).append(f"{op.path or 'the module itself'}, {op.where}")
    if lines:
        listed = [f"\n  {name} ({'; '.join(dict.fromkeys(uses))})" for name, uses in lines.items()]
        hint = "docs/pytorch.md lists what is supported"
        raise DataError(f"operators are not supported:{''.join(listed)}", "", hint)


def convert(
    exported: Exported, inputs: Sequence[Tensor], variables: Mapping[str, Variable], uniform: Uniform
) -> Result:
    """What the module computes for `inputs`; buffers that it changes are assigned."""
    check_supported(exported)
    tensors: dict[str, Any] = {a.name: x for a, x in zip(exported.inputs, inputs, strict=True)}
    tensors |= {name: read(variables[stored]) for name, stored in exported.stored.items()}
    tensors |= {name: constant(value, value.dtype.name) for name, value in exported.constants.items()}
    for op in exported.operators:
        tensors[op.result] = called_from(op.where, partial(_convert, op, tensors, uniform))
    for name, new in exported.mutations:
        assign(variables[name], tensors[new.name])
    outputs = tuple(tensors[ref.name] for ref in exported.outputs)
    if exported.output_names is not None:
        return dict(zip(exported.output_names, outputs, strict=True))
    return outputs[0] if len(outputs) == 1 else outputs


def _convert(op: Operator, tensors: Mapping[str, Any], uniform: Uniform) -> Any:
    operand, arguments = _resolved(op.operand, tensors), _resolved(dict(op.arguments), tensors)
    if op.name == "getitem":
        return operand[arguments["index"]]
    converter = CONVERTERS[op.name]
    known = signature(converter).parameters
    if unknown := [name for name in arguments if name not in known]:
        what = f"{op.overload} ({op.path}): {unknown[0]}={arguments[unknown[0]]!r} is not supported"
        raise DataError(what, op.where)
    if "uniform" in known:
        arguments["uniform"] = uniform
    with locating(op.overload, op.where), name_scope(op.path.replace(".", "/")):
        made = converter(operand, **arguments)
        return folded(made) if isinstance(made, Tensor) else tuple(map(folded, made))


def folded(tensor: Tensor | None) -> Any:
    """A constant instead of what is computed from constants alone: masks and positions.

    One number in many places stays what it is.
    """
    if tensor is None:
        return None
    nodes = topological((tensor.node,))
    if any(n.op.leaf and n.op is not CONSTANT for n in nodes) or tensor.type.count > _FOLD_LIMIT:
        return tensor
    one_number = all(n.op.view is not None or (n.op is CONSTANT and n.type.count == 1) for n in nodes)
    return tensor if one_number else constant(tensor.numpy())


def _resolved(value: Any, tensors: Mapping[str, Any]) -> Any:
    """`value` with tensors in the place of their names."""
    if isinstance(value, Ref):
        if tensors[value.name] is None:
            raise DataError(f"{value.name!r} is a result that only torch itself uses")
        return tensors[value.name]
    if isinstance(value, dict):
        return {name: _resolved(v, tensors) for name, v in value.items()}
    return tuple(_resolved(v, tensors) for v in value) if isinstance(value, tuple) else value
