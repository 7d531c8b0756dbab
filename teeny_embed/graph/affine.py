"""Index maps: which element of a tensor a step reads at a point of its index space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


class NotAffineError(Exception):
    """A composition of index maps has no affine form; the caller copies the tensor instead."""


@dataclass(frozen=True)
class Affine:
    """floor((sum of coefficient * dim + constant) / divisor).

    `exact`: the element exists only where the division leaves no remainder.
    """

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0
    divisor: int = 1
    exact: bool = False

    def __add__(self, other: Affine | int) -> Affine:
        other = _affine(other)
        self._require_undivided(other)
        sums = dict(self.terms)
        for dim, coefficient in other.terms:
            sums[dim] = sums.get(dim, 0) + coefficient
        return Affine(_canonical(sums), self.constant + other.constant)

    def __sub__(self, other: Affine | int) -> Affine:
        return self + _affine(other) * -1

    def __mul__(self, factor: int) -> Affine:
        self._require_undivided()
        return Affine(_canonical({d: c * factor for d, c in self.terms}), self.constant * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Affine:
        self._require_undivided()
        return self if divisor == 1 else Affine(self.terms, self.constant, divisor)

    def exactly(self, divisor: int) -> Affine:
        """self / divisor, existing only where there is no remainder."""
        self._require_undivided()
        return self if divisor == 1 else Affine(self.terms, self.constant, divisor, True)

    def _require_undivided(self, *others: Affine) -> None:
        if any(a.divisor != 1 for a in (self, *others)):
            raise NotAffineError

    @property
    def dims(self) -> tuple[str, ...]:
        return tuple(d for d, _ in self.terms)

    def coefficient(self, name: str) -> int:
        return dict(self.terms).get(name, 0)

    def numerator(self) -> Affine:
        """What is divided."""
        return Affine(self.terms, self.constant)

    def substitute(self, mapping: Mapping[str, Affine]) -> Affine:
        """Replaces dims by affine maps of other dims."""
        if self.divisor == 1 and self.constant == 0 and len(self.terms) == 1 and self.terms[0][1] == 1:
            return mapping.get(self.terms[0][0], self)
        total = Affine((), self.constant)
        for name, coefficient in self.terms:
            total = total + mapping.get(name, dim(name)) * coefficient
        return Affine(total.terms, total.constant, self.divisor, self.exact)

    def bounds(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """Smallest and largest value of the numerator over the index space."""
        low = self.constant + sum(min(0, c * (sizes[d] - 1)) for d, c in self.terms)
        high = self.constant + sum(max(0, c * (sizes[d] - 1)) for d, c in self.terms)
        return low, high

    def in_range(self, extent: int, sizes: Mapping[str, int]) -> bool:
        """Whether every point of the index space gives an element of 0 .. extent - 1."""
        low, high = self.bounds(sizes)
        return low >= 0 and high // self.divisor < extent and not self.exact

    def __str__(self) -> str:
        parts = [d if c == 1 else f"{c} {d}" for d, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        text = " + ".join(parts).replace("+ -", "- ")
        return text if self.divisor == 1 else f"({text}) / {self.divisor}"


def _canonical(sums: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((d, c) for d, c in sums.items() if c))


def dim(name: str) -> Affine:
    """The position along one dim."""
    return Affine(((name, 1),))


def fixed(position: int) -> Affine:
    """A constant position."""
    return Affine((), position)


def _affine(value: Affine | int) -> Affine:
    return fixed(value) if isinstance(value, int) else value


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Element strides of a row-major tensor."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
