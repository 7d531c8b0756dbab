"""Optimisers, after torch's formulas (torch.optim, version 2). The learning rate is given at run time.

An optimiser is called once while a training step is traced: optimizer(parameters, gradients, rate). Its
moments are state variables named after the parameter: "conv0.weight.momentum".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import inf, sqrt

import numpy as np

from teeny_embed.errors import AttributeValueError
from teeny_embed.graph.node import Variable, locating, name_scope, user_line
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, assign, binary, call, constant, read
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

    def count(self) -> Tensor:
        """The number of this step, from 1, as float32."""
        steps = self.state("steps")
        return advance(steps, read(steps) + 1.0)


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
        m_next, v_next = self.moments(parameter, g)
        return size * m_next / (call("sqrt", v_next) + epsilon)

    def moments(self, parameter: Variable, g: Tensor) -> tuple[Tensor, Tensor]:
        """The next running means of the gradient and of its square."""
        m, v = self.state("m", parameter), self.state("v", parameter)
        m_next = advance(m, read(m) + (g - read(m)) * (1.0 - self.beta1))
        return m_next, advance(v, read(v) * self.beta2 + (1.0 - self.beta2) * g * g)


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


class Adamax(Adam):
    """Kingma and Ba, 2015, section 7.1: u = max(beta2 u, |g| + eps); p = p - rate / (1 - beta1^t) m / u."""

    def begin(self, rate: Tensor) -> tuple[Tensor, ...]:
        return (rate / self._correction("beta1", self.beta1),)

    def step(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        m, u = self.state("m", parameter), self.state("u", parameter)
        m_next = advance(m, read(m) + (g - read(m)) * (1.0 - self.beta1))
        u_next = advance(u, binary("maximum", read(u) * self.beta2, call("abs", g) + self.epsilon))
        return shared[0] * m_next / u_next


class NAdam(Adam):
    """Dozat, 2016: Adam whose momentum looks ahead; beta1 is beta1 (1 - 0.96^(t decay) / 2) in step t."""

    def __init__(
        self, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
    ) -> None:  # fmt: skip
        super().__init__(beta1, beta2, epsilon, weight_decay)
        with locating(type(self).__name__):
            within(0, inf, momentum_decay=momentum_decay)
        self.kept = 0.96**momentum_decay

    def begin(self, rate: Tensor) -> tuple[Tensor, ...]:
        """Sizes of gradient and momentum, and epsilon, with the corrections in them as in Adam."""
        risen = self._correction("decay", self.kept)
        now = self.beta1 * (0.5 + 0.5 * risen)
        later = self.beta1 * (0.5 + 0.5 * (risen * self.kept + (1.0 - self.kept)))
        product = self.state("one_minus_momentum_product")  # as in `_correction`
        left = advance(product, read(product) * now + (1.0 - now))
        root = call("sqrt", self._correction("beta2", self.beta2))
        size = rate * root
        return size * (1.0 - now) / left, size * later / (left * later + (1.0 - later)), root * self.epsilon

    def step(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        of_gradient, of_momentum, epsilon = shared
        m_next, v_next = self.moments(parameter, g)
        return (of_gradient * g + of_momentum * m_next) / (call("sqrt", v_next) + epsilon)


class RAdam(Adam):
    """Liu et al., 2020: Adam whose adaptive part waits until the variance of 1 / sqrt(v) is known.

    With n = 2 / (1 - beta2) - 1 and r = n - 2 t beta2^t / (1 - beta2^t), it does while r <= 5.
    """

    def begin(self, rate: Tensor) -> tuple[Tensor, ...]:
        """Whether it is known, the sizes with and without it, and epsilon."""
        count = self.count()
        risen = self._correction("beta2", self.beta2)
        most = 2.0 / (1.0 - self.beta2) - 1.0
        length = most - 2.0 * count * (1.0 - risen) / risen
        known = length > 5.0
        safe = where(known, length, 6.0)
        factor = most / ((most - 4.0) * (most - 2.0))
        variance = call("sqrt", (safe - 4.0) * (safe - 2.0) * factor / safe)
        size = rate / self._correction("beta1", self.beta1)
        root = call("sqrt", risen)
        return known, size * variance * root, size, root * self.epsilon

    def step(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        known, adaptive, plain, epsilon = shared
        m_next, v_next = self.moments(parameter, g)
        return where(known, adaptive * m_next / (call("sqrt", v_next) + epsilon), plain * m_next)


class Rprop(Optimizer):
    """Riedmiller and Braun, 1993: steps of the sign alone, longer while it stays, shorter when it turns.

    The rate is the first step's; an element whose sign has turned is not moved in that step.
    """

    def __init__(
        self, shrink: float = 0.5, grow: float = 1.2, least: float = 1e-6, most: float = 50.0
    ) -> None:
        super().__init__(shrink=shrink)
        with locating(type(self).__name__):
            within(1, inf, grow=grow)
            within(0, inf, least=least, most=most)
        self.shrink, self.grow, self.least, self.most = shrink, grow, least, most

    def update(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        (rate,) = shared
        before, size = self.state("gradient", parameter), self.state("step", parameter)
        agreement = g * read(before)
        begun = where(read(size) > 0.0, read(size), rate)
        factor = where(agreement > 0.0, self.grow, where(agreement < 0.0, self.shrink, agreement * 0.0 + 1.0))
        moved = binary("minimum", binary("maximum", begun * factor, self.least), self.most)
        kept = advance(before, where(agreement < 0.0, 0.0, g))
        return read(parameter) - call("sign", kept) * advance(size, moved)


class Adagrad(Optimizer):
    """Duchi et al., 2011: v = v + g^2; p = p - rate / (1 + (t - 1) rate_decay) g / (sqrt(v) + eps)."""

    def __init__(self, epsilon: float = 1e-10, weight_decay: float = 0.0, rate_decay: float = 0.0) -> None:
        super().__init__(weight_decay, epsilon=epsilon)
        with locating(type(self).__name__):
            within(0, inf, rate_decay=rate_decay)
        self.epsilon, self.rate_decay = epsilon, rate_decay

    def begin(self, rate: Tensor) -> tuple[Tensor, ...]:
        return (rate / (1.0 + (self.count() - 1.0) * self.rate_decay) if self.rate_decay else rate,)

    def update(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        v = self.state("v", parameter)
        v_next = advance(v, read(v) + g * g)
        return read(parameter) - shared[0] * g / (call("sqrt", v_next) + self.epsilon)


class Adadelta(Optimizer):
    """Zeiler, 2012: d = sqrt(u + eps) / sqrt(v + eps) g; u and v are running means of d^2 and g^2."""

    def __init__(self, rho: float = 0.9, epsilon: float = 1e-6, weight_decay: float = 0.0) -> None:
        super().__init__(weight_decay, epsilon=epsilon, rho=rho)
        self.rho, self.epsilon = rho, epsilon

    def update(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        v, u = self.state("v", parameter), self.state("u", parameter)
        v_next = advance(v, read(v) * self.rho + (1.0 - self.rho) * g * g)
        d = call("sqrt", read(u) + self.epsilon) / call("sqrt", v_next + self.epsilon) * g
        advance(u, read(u) * self.rho + (1.0 - self.rho) * d * d)
        return read(parameter) - shared[0] * d


class ASGD(Optimizer):
    """Polyak and Juditsky, 1992: gradient descent whose parameters are averaged from step `start` on.

    p = p (1 - decay eta) - eta g, eta = rate / (1 + decay rate (t - 1))^power. The average is the state
    variable NAME.average.
    """

    def __init__(
        self, decay: float = 1e-4, power: float = 0.75, start: float = 1e6, weight_decay: float = 0.0
    ) -> None:
        super().__init__(weight_decay)
        with locating(type(self).__name__):
            within(0, inf, decay=decay, power=power, start=start)
        self.decay, self.power, self.start = decay, power, start

    def begin(self, rate: Tensor) -> tuple[Tensor, ...]:
        done = self.count() - 1.0
        eta = rate / call("pow", 1.0 + self.decay * rate * done, constant(self.power, "float32"))
        return eta, 1.0 / binary("maximum", done - self.start, 1.0)

    def update(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        eta, share = shared
        average = self.state("average", parameter)
        moved = read(parameter) * (1.0 - self.decay * eta) - eta * g
        advance(average, read(average) + (moved - read(average)) * share)
        return moved


class Muon(Optimizer):
    """Jordan et al., 2024: momentum, made orthogonal by five steps of a Newton-Schulz iteration.

    For weights of rank 2 and more (rows by everything else); `others`, AdamW if not given, updates the rest.
    The step is rate sqrt(max(1, rows / columns)), after a decay by rate weight_decay.
    """

    _STEPS, _COEFFICIENTS, _EPSILON = 5, (3.4445, -4.7750, 2.0315), 1e-7

    def __init__(
        self, momentum: float = 0.95, nesterov: bool = True, weight_decay: float = 0.1,
        others: Optimizer | None = None,
    ) -> None:  # fmt: skip
        super().__init__(weight_decay, momentum=momentum)
        self.momentum, self.nesterov, self.others = momentum, nesterov, others or AdamW()

    def begin(self, rate: Tensor) -> tuple[Tensor, ...]:
        return (rate, *self.others.begin(rate))

    def decayed(self, parameter: Variable, g: Tensor) -> Tensor:
        return g if parameter.value.ndim > 1 else self.others.decayed(parameter, g)

    def update(self, parameter: Variable, g: Tensor, *shared: Tensor) -> Tensor:
        rate, *of_others = shared
        if parameter.value.ndim < 2:
            return self.others.update(parameter, g, *of_others)
        rows = parameter.value.shape[0]
        moment = self.state("momentum", parameter)
        m_next = advance(moment, read(moment) + (g - read(moment)) * (1.0 - self.momentum))
        direction = g + (m_next - g) * self.momentum if self.nesterov else m_next
        flat = direction.reshape(rows, -1)
        size = sqrt(max(1.0, rows / flat.shape[1]))
        step = self._orthogonal(flat).reshape(parameter.value.shape)
        return read(parameter) * (1.0 - rate * self.weight_decay) - rate * size * step

    def _orthogonal(self, x: Tensor) -> Tensor:
        """Singular values to about 1: x = a x + (b x x' + c (x x')^2) x, five times."""
        wide = x.shape[0] <= x.shape[1]
        x = x if wide else x.transpose()
        squares = call("sum", x * x, order="reduce")
        x = x / binary("maximum", call("sqrt", squares), self._EPSILON)
        a, b, c = self._COEFFICIENTS
        for _ in range(self._STEPS):
            gram = x @ x.transpose()
            x = a * x + (b * gram + c * (gram @ gram)) @ x
        return x if wide else x.transpose()


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
