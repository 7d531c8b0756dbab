"""Random programs over two variables and an input, for what must hold for every program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from teeny_embed.graph.node import Variable
from teeny_embed.graph.tensor import Tensor, assign, call, read

SIZE = 4
"""All tensors are square."""


def random_step(rng: np.random.Generator) -> Callable[[Variable, Variable, Tensor], Tensor]:
    """Each variable is assigned once or twice; every expression may use old and new values."""

    def step(a: Variable, b: Variable, x: Tensor) -> Tensor:
        known = [read(a), read(b), x]
        for _ in range(8):
            left, right = (known[int(i)] for i in rng.integers(0, len(known), 2))
            known.append(random_value(rng, left, right))
            if rng.random() < 0.4:
                target = a if rng.random() < 0.5 else b
                assign(target, known[int(rng.integers(0, len(known)))])
                known.append(read(target))
        return known[-1] + known[int(rng.integers(0, len(known)))]

    return step


def random_value(rng: np.random.Generator, left: Tensor, right: Tensor) -> Tensor:
    values: list[Callable[[], Tensor]] = [
        lambda: left * 0.5 + right,
        lambda: (left @ right) * 0.1,
        lambda: left.transpose(1, 0) - right * 0.5,
        lambda: call("concat", left[1:], right[:1], axis=0),
        lambda: call("softmax", left, axis=-1) + right[:, :1],
        lambda: left - left.mean(axis=0) * right,
        lambda: call("tanh", left[::1, :2]) @ right[:2],
    ]
    return values[int(rng.integers(0, len(values)))]()
