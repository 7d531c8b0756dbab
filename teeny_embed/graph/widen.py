"""Steps in float64 with NumPy's own functions: what checks of gradients are evaluated in.

Orders of sums stay as they are. Constants keep the float32 values that they have, numbers drawn at random
too, so the function is the one that a device computes, but for rounding.
"""

from __future__ import annotations

from dataclasses import replace

from teeny_embed.graph import scalar as s
from teeny_embed.graph.scalar import Scalar
from teeny_embed.graph.step import Buffer, BufferCheck, Fold, Index, Output, Read, Schedule, Step

_WIDE = {"float32": "float64"}


def widen(schedule: Schedule) -> Schedule:
    """`schedule` with float64 for every float32."""
    buffers = {buffer: _buffer(buffer) for buffer in schedule.buffers()}
    return replace(
        schedule,
        inputs=tuple(buffers[b] for b in schedule.inputs),
        outputs=tuple(buffers[b] for b in schedule.outputs),
        steps=tuple(_step(step, buffers) for step in schedule.steps),
        assigns=tuple((buffers[variable], buffers[value]) for variable, value in schedule.assigns),
        checks=tuple(BufferCheck(c.kind, buffers[c.buffer], c.bound) for c in schedule.checks),
    )


def _buffer(buffer: Buffer) -> Buffer:
    dtype = _wide(buffer.type.dtype)
    value = None if buffer.value is None else buffer.value.astype(dtype)
    return Buffer(buffer.name, buffer.type.with_dtype(dtype), buffer.kind, value, buffer.variable)


def _step(step: Step, buffers: dict[Buffer, Buffer]) -> Step:
    memo: dict[Scalar, Scalar] = {}

    def scalar(value: Scalar) -> Scalar:
        for node in s.walk([value]):
            if node not in memo:
                memo[node] = _scalar(node, tuple(memo[a] for a in node.args))
        return memo[value]

    def optional(value: Scalar | None) -> Scalar | None:
        return None if value is None else scalar(value)

    def index(i: Index) -> Index:
        return scalar(i) if isinstance(i, Scalar) else i

    return replace(
        step,
        reads={
            n: Read(buffers[r.buffer], r.shape, tuple(map(index, r.index)), optional(r.fill))
            for n, r in step.reads.items()
        },
        folds=tuple(
            Fold(f.name, scalar(f.start), scalar(f.update), optional(f.term), optional(f.absent))
            for f in step.folds
        ),
        outputs=tuple(Output(buffers[o.buffer], scalar(o.value)) for o in step.outputs),
    )


def _scalar(node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
    if node.op == "call" and (node.attr.numpy is None or args[0].dtype != "float64"):
        exact = s.make("call", tuple(map(_narrow, args)), node.dtype, node.attr)
        return s.cast(exact, _wide(node.dtype))
    if node.op in ("bits", "from_bits"):
        exact = s.make(node.op, tuple(map(_narrow, args)), node.dtype)
        return s.cast(exact, _wide(node.dtype))
    if node.op == "cast" and args[0].dtype == _wide(node.dtype):
        return args[0]
    return s.make(node.op, args, _wide(node.dtype), node.attr)


def _narrow(arg: Scalar) -> Scalar:
    return s.cast(arg, "float32") if arg.dtype == "float64" else arg


def _wide(dtype: str) -> str:
    return _WIDE.get(dtype, dtype)
