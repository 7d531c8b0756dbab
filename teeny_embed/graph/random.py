"""Random numbers as scalar functions: Threefry words, uniform and normal floats.

Key and counter determine every word, so any element can be computed alone, in any order, on any device.
"""

from __future__ import annotations

from teeny_embed.graph.algebraic import polynomial
from teeny_embed.graph.exponential import log
from teeny_embed.graph.node import UniformDraw
from teeny_embed.graph.scalar import Number, Scalar, cast, const, define, from_bits, negative

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def _threefry(key0: Scalar, key1: Scalar, counter0: Scalar, counter1: Scalar) -> Scalar:
    """Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011, section 4.2."""
    keys = (key0, key1, key0 ^ key1 ^ _PARITY)
    a, b = counter0 + key0, counter1 + key1
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            a = a + b
            b = ((b << rotation) | (b >> (32 - rotation))) ^ a
        a = a + keys[(group + 1) % 3]
        b = b + keys[(group + 2) % 3] + (group + 1)
    return (cast(b, "uint64") << 32) | cast(a, "uint64")


threefry2x32 = define(
    "threefry2x32",
    "Threefry-2x32-20 of key (x, y) and counter (z, u): word 1 in the upper half, word 0 in the lower",
    _threefry,
    *("uint32",) * 4,
)


def word(block: Scalar, position: Scalar | int) -> Scalar:
    """Word `position & 1` (uint32) of a block of `threefry2x32`."""
    if isinstance(position, int):
        return cast(block >> (32 * (position & 1)), "uint32")
    return cast(block >> (cast(position & 1, "uint64") << 5), "uint32")


def _uniform(random_bits: Scalar) -> Scalar:
    """The top 23 bits as the fraction of a number in [1, 2)."""
    return from_bits((random_bits >> 9) | 0x3F800000) - 1.0


uniform = define("uniform", "32 random bits to a multiple of 2^-23 in [0, 1)", _uniform, "uint32")


def uniform_at(key: tuple[Number, Number], call: Scalar | Number, element: Scalar) -> Scalar:
    """Number `element` (uint32) of one call: word `element & 1` of block `element >> 1`."""
    return uniform(word(threefry2x32(*key, call, element >> 1), element))


def initial_value(draw: UniformDraw, element: Scalar) -> Scalar:
    """(2 u - 1) bound for element `element` (uint32). With the 23 bits of u all but the product is exact."""
    u = uniform_at((draw.seed, draw.stream), 0, element)
    return (2.0 * u - 1.0) * const(draw.bound, "float32")


def _normal(random_bits: Scalar) -> Scalar:
    """sqrt 2 erfinv(t) = t P(w), w = -ln(1 - t^2), for the 2^23 odd multiples t of 2^-23 in (-1, 1).

    The variable w is that of Giles, Approximating the erfinv function, GPU Computing Gems 2 (2011). Here w
    ends at 15.25, and one polynomial without his square root reaches all of it: P in w - 7.625, found as
    in `exponential`. The result is within 4.9e-6 of the exact inverse (1.4e-6 relative), increases with t,
    and is at most 5.295 in magnitude.
    """
    two_v = from_bits((random_bits >> 9) | 0x3F800000) * 2.0
    t = (two_v - 3.0) + 2.0**-23  # exact, as are 1 - t and 1 + t
    w = negative(log((1.0 - t) * (1.0 + t)))
    return t * polynomial(
        w - 7.625,
        "0x1.d5ab70p+1", "0x1.0509f0p-2", "-0x1.ef1cc0p-8", "0x1.7d2c72p-12", "-0x1.4791e2p-17",
        "-0x1.244196p-20", "0x1.f39c4ap-23", "-0x1.bad78ep-25", "0x1.d393f6p-28", "0x1.842f70p-33",
        "-0x1.84e4fcp-34", "0x1.414450p-40", "0x1.668cc0p-42",
    )  # fmt: skip


normal = define("normal", "32 random bits to a standard normal number", _normal, "uint32")
