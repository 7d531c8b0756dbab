"""Resource variables, and the operators that run other subgraphs: once, by a condition, while one holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from teeny_embed.frontends.tflite.model import TensorInfo
from teeny_embed.frontends.tflite.operation import Operation, known_value
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.graph.node import VARIABLE, Variable
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.recording import Recording, current_recording, recording
from teeny_embed.graph.tensor import Tensor, assign, constant, read

ANY = "float32 int8 uint8 int16 int32 int64 bool"
MOST_ROUNDS = 1000
"""Of a loop that is written out."""

# ---- Variables --------------------------------------------------------------------------------------------


@converter("VAR_HANDLE", "resource", "variables of any type")
def var_handle(op: Operation) -> Tensor:
    """A constant that spells the variable's name: handles are passed on like other values."""
    parts = [_text(op.option(name, "")) for name in ("container", "shared_name")]
    name = "/".join(("resource", *filter(None, parts)))
    return constant(np.frombuffer(name.encode(), np.uint8))


def _text(name: bytes | str | None) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name or ""


def _variable(op: Operation, info: TensorInfo) -> Variable:
    """The variable of operand 0. Unless it is assigned once it starts at its zero point."""
    name = op.constant(0).tobytes().decode()
    if name not in op.context.variables:
        zero = 0 if info.quantization is None else info.zero_point
        op.context.variables[name] = Variable(name, np.full(info.shape, zero, info.dtype), kind="state")
    variable = op.context.variables[name]
    if (variable.type.shape, variable.type.dtype) != (info.shape, info.dtype):
        raise op.error(f"variable {name!r} is {variable.type}, not {info.dtype}{list(info.shape)}")
    return variable


@converter("READ_VARIABLE", "resource", "variables of any type")
def read_variable(op: Operation) -> Tensor:
    """The variable's value now."""
    return read(_variable(op, op.output_info()))


@converter("ASSIGN_VARIABLE", "resource", "variables of any type")
def assign_variable(op: Operation) -> Sequence[Tensor]:
    """Operand 1 becomes the variable's value."""
    assign(_variable(op, op.input_info(1)), op.input(1))
    return ()


# ---- Subgraphs --------------------------------------------------------------------------------------------


@converter("CALL_ONCE", "resource", "what it assigns must be known")
def call_once(op: Operation) -> Sequence[Tensor]:
    """What the subgraph assigns is what variables start with, and have again after a reset."""
    with recording() as once:
        op.context.call(int(op.option("init_subgraph_index")), ())
    outside = current_recording()
    for variable, node in once.assigns():
        if outside is not None and variable in outside.versions:
            raise op.error(f"variable {variable.name!r} is used before it gets its first value")
        variable.start_from(Tensor(node).numpy())
    return ()


def _branch(op: Operation, number: int) -> tuple[list[Tensor], Recording]:
    """What a subgraph makes of the operands after the condition, and of the variables."""
    outside = current_recording()
    with recording() as inside:
        inside.versions.update({} if outside is None else outside.versions)
        results = op.context.call(number, [op.input(i) for i in range(1, op.input_count)])
    return results, inside


@converter("IF", "bool", "both branches are computed where the condition is not known")
def if_(op: Operation) -> Sequence[Tensor]:
    """One of two subgraphs, by a condition; they also decide what variables become."""
    numbers = [int(op.option(f"{name}_subgraph_index")) for name in ("then", "else")]
    known = op.known(0)
    if known is not None:
        taken = numbers[0] if known.reshape(-1)[0] else numbers[1]
        return op.context.call(taken, [op.input(i) for i in range(1, op.input_count)])
    condition = op.input(0).reshape()
    (first, then), (second, otherwise) = (_branch(op, number) for number in numbers)
    for variable in dict.fromkeys((*then.versions, *otherwise.versions)):
        before = read(variable)
        values = [_version(branch, variable, before) for branch in (then, otherwise)]
        if any(value.node is not before.node for value in values):
            assign(variable, where(condition, *values))
    return [where(condition, a, b) for a, b in zip(first, second, strict=True)]


def _version(branch: Recording, variable: Variable, before: Tensor) -> Tensor:
    """The value of a variable after a branch."""
    node = branch.versions.get(variable, before.node)
    return before if node.op is VARIABLE else Tensor(node)


@converter("WHILE", ANY, "only where the number of rounds is known")
def while_(op: Operation) -> Sequence[Tensor]:
    """A subgraph again and again while another holds: written out, round after round."""
    condition, body = (int(op.option(f"{name}_subgraph_index")) for name in ("cond", "body"))
    values = [op.input(i) for i in range(op.input_count)]
    for _ in range(MOST_ROUNDS):
        goes_on = known_value(op.context.call(condition, values)[0])
        if goes_on is None:
            raise op.error("how often it loops depends on its input", hint="loops over known numbers are")
        if not goes_on.reshape(-1)[0]:
            return values
        values = op.context.call(body, values)
    raise op.error(f"more than {MOST_ROUNDS} rounds")
