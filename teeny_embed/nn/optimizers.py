"""Optimisers, after torch's formulas (torch.optim, version 2). The learning rate is given at run time.

An optimiser is called once while a training step is traced: optimizer(parameters, gradients, rate). Its
moments are state variables named after the parameter: "conv0.weight.momentum".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import inf

import numpy as np

from teeny_embed.errors import AttributeValueError
from teeny_embed.graph.node import Variable, locating, name_scope, user_line
from teeny_embed.graph.tensor import Tensor, assign, binary, call, read
from teeny_embed.nn.checks import within


class Optimizer(ABC):
    """State by name, weight decay, and one update per parameter."""

    def __init__(self, weight_decay: float = 0.0, *, epsilon: float = 0.0, **rates: float) -> None:
        """`rates` are numbers in [0, 1), the others at least 0."""
        with locating(type(self).__name__):
            within(0, inf, weight_decay=weight_decay, epsilon=epsilon)
            within(0, 1, **rates)
        self.weight_decay = weight_decay
        self._state: dict[tuple[Variable | None, str], Variable] = {}

    def __call__(self, parameters: Sequence[Variable], gradients: Sequence[Tensor], rate: Tensor) -> None:
        """Assigns the next version of each parameter; rate is float32 of rank 0."""
        with name_scope("update"):
            shared = self.begin(rate)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            with name_scope(f"update/{parameter.name}"):
                assign(parameter, self.update(parameter, self.decayed(parameter, gradient), *shared))

    def begin(self, rate: Tensor) -> tuple[Tensor, ...]:
        """What the updates of all parameters share: rank-0 values, computed once."""
        return (rate,)

    @abstractmethod
    def update(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        """The next version of `parameter`; moments are assigned."""

    def decayed(self, parameter: Variable, g: Tensor) -> Tensor:
        """The gradient of loss + weight_decay / 2 |parameter|^2."""
        return g + self.weight_decay * read(parameter) if self.weight_decay else g

    def state(self, name: str, of: Variable | None = None) -> Variable:
        """The moment `name` of a parameter, or a rank-0 value of the optimiser itself; starts at 0."""
        if (of, name) not in self._state:
            shape = of.value.shape if of else ()
            path = f"{of.name}.{name}" if of else f"optimizer.{name}"
            self._state[of, name] = Variable(path, np.zeros(shape, np.float32), "state")
        return self._state[of, name]


def advance(variable: Variable, value: Tensor) -> Tensor:
    """Assigns and returns the next version."""
    assign(variable, value)
    return value


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if it is not 0: b = momentum b + g; p = p - rate b."""

    def __init__(self, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0) -> None:
        super().__init__(weight_decay, momentum=momentum)
        if nesterov and not momentum:
            hint = "nn.SGD(momentum=0.9, nesterov=True)"
            raise AttributeValueError("SGD: nesterov without momentum", user_line(), hint)
        self.momentum, self.nesterov = momentum, nesterov

    def update(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        (rate,) = shared
        if self.momentum:
            moment = self.state("momentum", parameter)
            b = advance(moment, self.momentum * read(moment) + g)
            g = g + self.momentum * b if self.nesterov else b
        return read(parameter) - rate * g


class Adam(Optimizer):
    """Kingma and Ba, 2015. Weight decay is added to the gradient."""

    def __init__(
        self, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.0
    ) -> None:
        super().__init__(weight_decay, epsilon=epsilon, beta1=beta1, beta2=beta2)
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def begin(self, rate: Tensor) -> tuple[Tensor, ...]:
        """Step size and epsilon with both bias corrections in them, which spares each element a division:

        m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) = r m / (1 - beta1^t) / (sqrt(v) + r eps),
        r = sqrt(1 - beta2^t).
        """
        root = call("sqrt", self._correction("beta2", self.beta2))
        return rate, rate * root / self._correction("beta1", self.beta1), root * self.epsilon

    def _correction(self, name: str, beta: float) -> Tensor:
        """1 - beta^t, kept as such: the difference of 1 and a stored power would lose its low bits."""
        kept = self.state(f"one_minus_{name}_power", None)
        return advance(kept, read(kept) * beta + (1.0 - beta))

    def update(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        return read(parameter) - self.step(parameter, g, *shared)

    def step(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        """What the parameter goes down by."""
        _, size, epsilon = shared
        m, v = self.state("m", parameter), self.state("v", parameter)
        m_next = advance(m, read(m) + (g - read(m)) * (1.0 - self.beta1))
        v_next = advance(v, read(v) * self.beta2 + (1.0 - self.beta2) * g * g)
        return size * m_next / (call("sqrt", v_next) + epsilon)


class AdamW(Adam):
    """Loshchilov and Hutter, 2019: Adam whose weight decay shrinks the parameter by rate * weight_decay."""

    def __init__(
        self, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 1e-2
    ) -> None:
        super().__init__(beta1, beta2, epsilon, weight_decay)

    def decayed(self, parameter: Variable, g: Tensor) -> Tensor:
        return g

    def update(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        kept = read(parameter) * (1.0 - shared[0] * self.weight_decay)
        return kept - self.step(parameter, g, *shared)


class RMSprop(Optimizer):
    """Hinton, 2012: v = alpha v + (1 - alpha) g^2; p = p - rate g / (sqrt(v) + eps); momentum after that."""

    def __init__(
        self, alpha: float = 0.99, epsilon: float = 1e-8, momentum: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        super().__init__(weight_decay, epsilon=epsilon, alpha=alpha, momentum=momentum)
        self.alpha, self.epsilon, self.momentum = alpha, epsilon, momentum

    def update(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        (rate,) = shared
        v = self.state("v", parameter)
        v_next = advance(v, read(v) * self.alpha + (1.0 - self.alpha) * g * g)
        direction = g / (call("sqrt", v_next) + self.epsilon)
        if self.momentum:
            moment = self.state("momentum", parameter)
            direction = advance(moment, self.momentum * read(moment) + direction)
        return read(parameter) - rate * direction


# ---- Clipping -----------------------------------------------------------------------------------------

Clip = Callable[[Sequence[Tensor]], list[Tensor]]


def clip_by_value(limit: float) -> Clip:
    """Every element of every gradient into [-limit, limit]; NaN stays NaN."""
    with locating("clip_by_value"):
        within(0, inf, limit=limit)

    def clip(gradients: Sequence[Tensor]) -> list[Tensor]:
        return [binary("maximum", binary("minimum", g, limit), -limit) for g in gradients]

    return clip


def clip_by_norm(limit: float) -> Clip:
    """All gradients times min(1, limit / (norm + 1e-6)), norm over all of them together (torch's rule)."""
    with locating("clip_by_norm"):
        within(0, inf, limit=limit)

    def clip(gradients: Sequence[Tensor]) -> list[Tensor]:
        flat = [g.reshape(-1) for g in gradients]
        squares = [call("sum", f * f, order="reduce") for f in flat]
        total = sum(squares[1:], squares[0])
        factor = binary("minimum", limit / (call("sqrt", total) + 1e-6), 1.0)
        return [g * factor for g in gradients]

    return clip
