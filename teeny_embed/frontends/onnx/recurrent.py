"""RNN, GRU and LSTM, step by step over their length, which is known when the model is read."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from teeny_embed.frontends.onnx.model import Operation
from teeny_embed.frontends.onnx.registry import converter
from teeny_embed.graph.tensor import Tensor, binary, call, constant

Step = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]
"""step(gates of the input, state) -> next state; its first part is the output."""
_FUNCTIONS = {
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "relu": "relu",
    "softsign": "softsign",
    "softplus": "softplus",
}


def _activations(
    op: Operation, direction: int, defaults: tuple[str, ...]
) -> list[Callable[[Tensor], Tensor]]:
    given = op.attribute("activations") or list(defaults) * len(_directions(op))
    names = given[direction * len(defaults) : (direction + 1) * len(defaults)]
    if unknown := [n for n in names if n.lower() not in _FUNCTIONS]:
        raise op.error(f"activation {unknown[0]!r} is not supported")
    return [partial(call, _FUNCTIONS[n.lower()]) for n in names]


def _directions(op: Operation) -> tuple[bool, ...]:
    """For each direction whether it runs backwards."""
    found = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    name = op.attribute("direction", "forward")
    if name not in found:
        raise op.error(f"direction {name!r} is unknown")
    return found[name]


def _clipped(op: Operation) -> Callable[[Tensor], Tensor]:
    limit = op.attribute("clip")
    if limit is None:
        return lambda x: x
    return lambda x: binary("minimum", binary("maximum", x, -limit), limit)


def _run(op: Operation, states: int, make_step: Callable[[int], Step], gates: int) -> list[Tensor]:
    """Y [T, D, B, H], then the last states, each [D, B, H]."""
    if op.has(4):
        lengths = np.asarray(op.known(4))
        if (lengths != op[0].shape[1 if op.attribute("layout", 0) else 0]).any():
            raise op.error("sequences of different lengths are not supported")
    x, first = op[0], bool(op.attribute("layout", 0))
    x = x.transpose(1, 0, 2) if first else x
    length, batch, _ = x.shape
    hidden = op.attribute("hidden_size", op[2].shape[-1])
    outputs, lasts = [], []
    for direction, backwards in enumerate(_directions(op)):
        step, weight = make_step(direction), op[1][direction]
        bias = op[3][direction][0 : gates * hidden] if op.has(3) else None
        wide = call("conv", x.reshape((length * batch, -1)), weight)
        wide = (wide if bias is None else wide + bias).reshape((length, batch, gates * hidden))
        state = tuple(_initial(op, 5 + n, direction, first, batch, hidden) for n in range(states))
        order = range(length)[::-1] if backwards else range(length)
        found: dict[int, Tensor] = {}
        for t in order:
            state = step(wide[t], state)
            found[t] = state[0]
        outputs.append([found[t] for t in range(length)])
        lasts.append(state)
    shape = (1, 1, batch, hidden)
    rows = [call("concat", *(o[t].reshape(shape) for o in outputs), axis=1) for t in range(length)]
    y = call("concat", *rows, axis=0)
    ends = [call("concat", *(last[n].reshape(shape[1:]) for last in lasts), axis=0) for n in range(states)]
    if first:
        y, ends = y.transpose(2, 0, 1, 3), [e.transpose(1, 0, 2) for e in ends]
    return [y, *ends]


def _initial(op: Operation, number: int, direction: int, first: bool, batch: int, hidden: int) -> Tensor:
    given = op.get(number)
    if given is None:
        return constant(np.zeros((batch, hidden), np.float32))
    return given[:, direction] if first else given[direction]


def _parts(x: Tensor, hidden: int) -> list[Tensor]:
    return [x[:, i : i + hidden] for i in range(0, x.shape[1], hidden)]


def _recurrent_bias(op: Operation, direction: int, gates: int, hidden: int) -> Tensor | None:
    return op[3][direction][gates * hidden : 2 * gates * hidden] if op.has(3) else None


@converter("RNN")
def rnn(op: Operation) -> list[Tensor]:
    def make_step(direction: int) -> Step:
        weight, clipped = op[2][direction], _clipped(op)
        (f,) = _activations(op, direction, ("Tanh",))
        bias = _recurrent_bias(op, direction, 1, weight.shape[-1])

        def step(wide: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            total = wide + call("conv", state[0], weight)
            return (f(clipped(total if bias is None else total + bias)),)

        return step

    return _run(op, 1, make_step, 1)


@converter("GRU")
def gru(op: Operation) -> list[Tensor]:
    def make_step(direction: int) -> Step:
        weight, clipped = op[2][direction], _clipped(op)
        hidden = weight.shape[-1]
        f, g = _activations(op, direction, ("Sigmoid", "Tanh"))
        bias = _recurrent_bias(op, direction, 3, hidden)
        biases = [None] * 3 if bias is None else [bias[i * hidden : (i + 1) * hidden] for i in range(3)]

        def recurrent(h: Tensor, gate: int) -> Tensor:
            y = call("conv", h, weight[gate * hidden : (gate + 1) * hidden])
            b = biases[gate]
            return y if b is None else y + b

        def step(wide: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            (h,) = state
            z, r, n = _parts(wide, hidden)
            z, r = f(clipped(z + recurrent(h, 0))), f(clipped(r + recurrent(h, 1)))
            if op.attribute("linear_before_reset", 0):
                n = g(clipped(n + r * recurrent(h, 2)))
            else:
                n = g(clipped(n + recurrent(r * h, 2)))
            return ((1.0 - z) * n + z * h,)

        return step

    return _run(op, 1, make_step, 3)


@converter("LSTM")
def lstm(op: Operation) -> list[Tensor]:
    """Gates in the order input, output, forget, cell; peepholes input, output, forget."""
    op.refuse(input_forget=0)

    def make_step(direction: int) -> Step:
        weight, clipped = op[2][direction], _clipped(op)
        hidden = weight.shape[-1]
        f, g, h = _activations(op, direction, ("Sigmoid", "Tanh", "Tanh"))
        bias = _recurrent_bias(op, direction, 4, hidden)
        peephole = op[7][direction] if op.has(7) else None

        def seen(gate: Tensor, cell: Tensor, number: int) -> Tensor:
            if peephole is None:
                return gate
            return gate + cell * peephole[number * hidden : (number + 1) * hidden]

        def step(wide: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            last, cell = state
            total = wide + call("conv", last, weight)
            i, o, forget, c = _parts(total if bias is None else total + bias, hidden)
            i, forget = f(clipped(seen(i, cell, 0))), f(clipped(seen(forget, cell, 2)))
            cell = forget * cell + i * g(clipped(c))
            return f(clipped(seen(o, cell, 1))) * h(cell), cell

        return step

    return _run(op, 2, make_step, 4)
