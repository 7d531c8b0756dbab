"""Operators that keep what they have seen: LSTM over a sequence, and SVDF, one step of a filter over time.

What they keep is a variable of the graph: it lives from call to call, and `reset` puts it back.
"""

from __future__ import annotations

from math import log2

import numpy as np

from teeny_embed.frontends.tflite.activation import activated, logistic_16, tanh_16
from teeny_embed.frontends.tflite.model import Array
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.quantization import (
    clamp,
    quantize_multipliers,
    quotient,
    requantize,
    rescaled,
    to_output,
)
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.graph.node import Variable, scoped
from teeny_embed.graph.tensor import Tensor, assign, call, constant, read

GATES = range(4)
"""Input, forget, cell and output gate: the order of their weights among the operands."""
INPUT_WEIGHTS, RECURRENT_WEIGHTS, PEEPHOLES, BIASES, PROJECTION, HIDDEN, CELL, NORMALIZATION = (
    1, 5, range(9, 12), 12, range(16, 18), 18, 19, range(20, 24)
)  # fmt: skip
GATE_SCALE, UNIT_SCALE = 2.0**-12, 2.0**-15
"""Of a gate's sum, and of what the logistic function and tanh give."""


def _state(op: Operation, number: int, name: str, shape: tuple[int, ...]) -> Variable:
    """The variable behind an operand: 0 to begin with, as an integer its zero point."""
    info = op.input_info(number)
    if not info.is_variable or np.prod(shape) != np.prod(info.shape):
        raise op.error(f"operand {info.name!r} is no state of shape {list(shape)}")
    zero = 0 if info.dtype == "float32" else info.zero_point
    variable = Variable(scoped(name), np.full(shape, zero, info.dtype), kind="state")
    op.context.variables[variable.name] = variable
    return variable


# ---- LSTM -------------------------------------------------------------------------------------------------


@converter("UNIDIRECTIONAL_SEQUENCE_LSTM", "float32 int8 int16", "no peepholes, projection, normalisation")
def unidirectional_sequence_lstm(op: Operation) -> Tensor:
    """[batch, time, inputs] to [batch, time, units]; time comes first where the options say so.

    Each time is a contraction of its input and one of the hidden state, for all gates together, and one
    function of each unit: what the gates get from the inputs is never kept for more than one time.
    """
    _check_lstm(op)
    x, time_major = op.input(0), bool(op.option("time_major"))
    x = x if time_major else x.transpose(1, 0, 2)
    times, batch, _ = x.shape
    units = op.input_info(INPUT_WEIGHTS).shape[0]
    layer = _FloatLSTM(op) if x.dtype == "float32" else _IntegerLSTM(op)
    states = [_state(op, n, name, (batch, units)) for n, name in ((HIDDEN, "hidden"), (CELL, "cell"))]
    hidden, cell = map(read, states)
    outputs = []
    for time in range(times):
        from_hidden = layer.sums(hidden, HIDDEN, RECURRENT_WEIGHTS, None)
        from_input = layer.sums(x[time], 0, INPUT_WEIGHTS, BIASES)
        of_gates = [slice(gate * units, (gate + 1) * units) for gate in GATES]
        hidden, cell = layer.step([layer.added(from_input[:, g], from_hidden[:, g]) for g in of_gates], cell)
        outputs.append(hidden.reshape(1, batch, units))
    for variable, value in zip(states, (hidden, cell), strict=True):
        assign(variable, value)
    sequence = call("concat", *outputs, axis=0)
    return sequence if time_major else sequence.transpose(1, 0, 2)


def _check_lstm(op: Operation) -> None:
    for what, operands in (
        ("peepholes", PEEPHOLES), ("a projection", PROJECTION), ("layer normalisation", NORMALIZATION)
    ):  # fmt: skip
        if any(map(op.has_input, operands)):
            raise op.error(f"{what}: not supported")
    if op.activation != "TANH":
        raise op.error(f"activation {op.activation} is not supported", hint="TANH is")
    if op.option("diagonal_recurrent_tensors", False):
        raise op.error("diagonal recurrent weights are not supported")
    units, inputs = op.input_info(INPUT_WEIGHTS).shape
    for first, shape in ((INPUT_WEIGHTS, (units, inputs)), (RECURRENT_WEIGHTS, (units, units))):
        for gate in GATES:
            if op.input_info(first + gate).shape != shape:
                raise op.error(f"weights {op.input_info(first + gate).name!r} are not {list(shape)}")


def _stacked(op: Operation, first: int) -> Array:
    """The constants of the four gates, one after the other."""
    return np.concatenate([op.constant(first + gate) for gate in GATES])


class _FloatLSTM:
    """Of float32 numbers."""

    def __init__(self, op: Operation) -> None:
        self._op, self._clip = op, float(op.option("cell_clip", 0.0))

    def sums(self, x: Tensor, operand: int, weights: int, biases: int | None) -> Tensor:
        """[rows, 4 units]: operand `operand`, as `x`, times the weights of each gate."""
        total = call("conv", x, constant(_stacked(self._op, weights)))
        return total if biases is None else total + constant(_stacked(self._op, biases))

    def added(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b

    def step(self, sums: list[Tensor], cell: Tensor) -> tuple[Tensor, Tensor]:
        """The next hidden and cell state."""
        inputs, forget, output = (call("sigmoid", sums[gate]) for gate in (0, 1, 3))
        cell = forget * cell + inputs * call("tanh", sums[2])
        if self._clip > 0:
            low, high = constant(-self._clip, "float32"), constant(self._clip, "float32")
            cell = call("maximum", call("minimum", cell, high), low)
        return call("tanh", cell) * output, cell


class _IntegerLSTM:
    """Of 8-bit or 16-bit inputs and outputs; gates and cell state have 16 bits."""

    def __init__(self, op: Operation) -> None:
        self._op = op
        cell, clip = op.input_info(CELL), float(op.option("cell_clip", 0.0))
        self._cell_scale = cell.scale
        exponent = round(log2(cell.scale)) if cell.scale > 0 else 0
        if cell.dtype != "int16" or abs(log2(cell.scale or 1) - exponent) > 1e-3 or exponent > 0:
            raise op.error(f"the cell state is {cell.dtype} of scale {cell.scale:g}, no power of two")
        self._exponent = exponent + 12
        self._clip = int(min(clip / cell.scale, 32767.0)) if clip > 0 else 0

    def sums(self, x: Tensor, operand: int, weights: int, biases: int | None) -> Tensor:
        """int16 [rows, 4 units]: operand `operand`, as `x`, times the weights of each gate."""
        op, info = self._op, self._op.input_info(operand)
        accumulator = "int64" if x.dtype == "int16" else "int32"
        infos = [op.input_info(weights + gate) for gate in GATES]
        if any(w.zero_point for w in infos):
            raise op.error("weights have a zero point")
        bias = np.zeros(4 * infos[0].shape[0]) if biases is None else _stacked(op, biases)
        acc = call(
            "conv", x, constant(_stacked(op, weights)),
            zero_points=(info.zero_point, 0), accumulator=accumulator,
        )  # fmt: skip
        scales = np.repeat([info.scale * w.scale / GATE_SCALE for w in infos], infos[0].shape[0])
        rule = "tflite_wide" if accumulator == "int64" else "tflite"
        multipliers, shifts = quantize_multipliers(scales, op.where, rule)
        return _to_16(requantize(acc + constant(bias.astype(accumulator)), multipliers, shifts, rule))

    def added(self, a: Tensor, b: Tensor) -> Tensor:
        return _to_16(a.astype("int32") + b.astype("int32"))

    def step(self, sums: list[Tensor], cell: Tensor) -> tuple[Tensor, Tensor]:
        """The next hidden and cell state."""
        inputs, forget, output = (logistic_16(sums[gate].astype("int32") * 3) for gate in (0, 1, 3))
        kept = self._product(forget, cell, UNIT_SCALE)
        added = self._product(inputs, tanh_16(sums[2].astype("int32") * 3), UNIT_SCALE**2 / self._cell_scale)
        cell = self.added(_to_16(kept), _to_16(added))
        if self._clip > 0:
            cell = clamp(cell, -self._clip, self._clip)
        hidden = self._op.input_info(HIDDEN)
        scale = quotient(UNIT_SCALE**2, hidden.scale, self._op.where)
        return to_output(self._product(tanh_16(self._finer(cell)), output, scale), hidden), cell

    def _product(self, a: Tensor, b: Tensor, scale: float) -> Tensor:
        return rescaled(a.astype("int32") * b.astype("int32"), scale, self._op.where)

    def _finer(self, cell: Tensor) -> Tensor:
        """The cell state in units of 1 / (3 4096)."""
        if self._exponent >= 0:
            return cell.astype("int32") * (3 << self._exponent)
        places = -self._exponent
        return call("shift_right", cell.astype("int32") * 3 + (1 << (places - 1)), constant(places, "int32"))


def _to_16(x: Tensor) -> Tensor:
    return clamp(x, -(1 << 15), (1 << 15) - 1).astype("int16")


# ---- SVDF -------------------------------------------------------------------------------------------------


@converter("SVDF", "float32 int8", "integer states of 8 and 16 bits")
def svdf(op: Operation) -> Tensor:
    """[batch, inputs] to [batch, units]: each unit sums `rank` filters, each over its last outputs in time.

    The state is [batch, time, filters], the oldest first: the newest moves in at the end.
    """
    x, rank = op.input(0), int(op.option("rank"))
    (filters, _), (others, times) = op.input_info(1).shape, op.input_info(2).shape
    if x.rank != 2 or filters != others or rank < 1 or filters % rank:
        raise op.error(f"{filters} filters over {x.type}, {others} over time, rank {rank}")
    batch, units = x.shape[0], filters // rank
    variable = _state(op, 4, "state", (batch, times, filters))
    newest = _features(op, x).reshape(batch, 1, filters)
    state = call("concat", read(variable)[:, 1:], newest, axis=1) if times > 1 else newest
    assign(variable, state)
    over_time = constant(op.constant(2).reshape(units, rank, times).transpose(0, 2, 1).copy())
    return _over_time(op, state, over_time, units).reshape(batch, units)


def _features(op: Operation, x: Tensor) -> Tensor:
    """What the filters make of this input, in the state's type.

    TFLite Micro clamps before it adds the state's zero point, so the sum may wrap; so does this.
    """
    weights = constant(op.constant(1))
    if x.dtype == "float32":
        return call("conv", x, weights)
    info, weight_info, state = op.input_info(0), op.input_info(1), op.input_info(4)
    zero_points = info.zero_point, weight_info.zero_point
    acc = call("conv", x, weights, zero_points=zero_points, accumulator="int32")
    scale = quotient(info.scale * weight_info.scale, state.scale, op.where)
    multipliers, shifts = quantize_multipliers(np.full(acc.shape[-1], scale), op.where)
    newest = clamp(requantize(acc, multipliers, shifts, "tflite"), *state.limits)
    return (newest + state.zero_point).astype(state.dtype)


def _over_time(op: Operation, state: Tensor, weights: Tensor, units: int) -> Tensor:
    """The state's sums over time and rank; of integers the fused activation is ignored, as there.

    Products of 16 bits fill TFLite Micro's int32, which then wraps: so they are products of int32 here, which
    wrap by definition.
    """
    bias = op.constant(3) if op.has_input(3) else np.zeros(units, weights.dtype)
    if state.dtype == "float32":
        y = call("conv", state, weights, groups=units)
        return activated(y + constant(bias), op.activation)
    info, weight_info, output = op.input_info(4), op.input_info(2), op.output_info()
    zero_points = info.zero_point, weight_info.zero_point
    if state.dtype == "int16":
        operands = [x.astype("int32") - z for x, z in zip((state, weights), zero_points, strict=True)]
        acc = call("conv", *operands, groups=units)
    else:
        acc = call("conv", state, weights, groups=units, zero_points=zero_points, accumulator="int32")
    scale = quotient(info.scale * weight_info.scale, output.scale, op.where)
    multipliers, shifts = quantize_multipliers(np.full(units, scale), op.where)
    return to_output(requantize(acc + constant(bias.astype(np.int32)), multipliers, shifts, "tflite"), output)
