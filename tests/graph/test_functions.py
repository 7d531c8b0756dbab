"""Scalar functions: special values, error bounds on samples, exact square roots, random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from teeny_embed.graph import functions as f
from teeny_embed.graph.scalar import FUNCTIONS, Scalar, ScalarFunction, const, evaluate

INF, NAN = math.inf, math.nan
TINY = 2.0**-149
# What C99 Annex F says of these functions, and zeros that keep their sign.
SPECIAL: dict[str, list[tuple[float, float]]] = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (89.0, INF), (-104.0, 0.0), (-1e30, 0.0)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (TINY, TINY), (-1e30, -1.0), (1e30, INF)],
    "log": [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-1.0, NAN), (-INF, NAN), (-TINY, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-1.5, NAN), (INF, INF), (-INF, NAN), (TINY, TINY)],
    "sqrt": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, NAN), (-TINY, NAN), (2.0**-148, 2.0**-74)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (2.0**-148, 2.0**74), (0.25, 2.0)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (TINY, TINY), (-TINY, -TINY), (10.0, 1.0)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (200.0, 1.0), (-200.0, 0.0), (TINY, 0.5)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (5.0, 1.0), (-5.0, -1.0)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (TINY, TINY), (-TINY, -TINY)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (TINY, 1.0)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (TINY, TINY), (-TINY, -TINY)],
    "asin": [(0.0, 0.0), (-0.0, -0.0), (1.0, np.pi / 2), (-1.0, -np.pi / 2), (1.5, NAN), (TINY, TINY)],
    "acos": [(1.0, 0.0), (-1.0, np.pi), (0.0, np.pi / 2), (-1.5, NAN), (INF, NAN), (TINY, np.pi / 2)],
    "atan": [(0.0, 0.0), (-0.0, -0.0), (INF, np.pi / 2), (-INF, -np.pi / 2), (TINY, TINY), (1.0, np.pi / 4)],
    "sinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (90.0, INF), (1e30, INF), (-TINY, -TINY)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (-90.0, INF), (1e30, INF), (TINY, 1.0)],
    "asinh": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (TINY, TINY), (-TINY, -TINY)],
    "acosh": [(1.0, 0.0), (0.5, NAN), (-1.0, NAN), (-3000.0, NAN), (-INF, NAN), (INF, INF)],
    "atanh": [(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (INF, NAN), (-TINY, -TINY)],
    "floor": [(-0.0, -0.0), (0.7, 0.0), (-0.3, -1.0), (-2.0, -2.0), (INF, INF), (-INF, -INF), (1e30, 1e30)],
    "ceil": [(0.0, 0.0), (-0.7, -0.0), (0.3, 1.0), (2.0, 2.0), (INF, INF), (-1e30, -1e30), (TINY, 1.0)],
    "trunc": [(-0.0, -0.0), (-0.7, -0.0), (1.9, 1.0), (-8388607.5, -8388607.0), (-INF, -INF)],
    "round": [(-0.0, -0.0), (0.5, 0.0), (-0.5, -0.0), (1.5, 2.0), (2.5, 2.0), (8388607.5, 8388608.0)],
}  # fmt: skip
REFERENCES: dict[str, Any] = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "tanh": np.tanh, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.frompyfunc(math.erf, 1, 1), "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
}  # fmt: skip


def run(function: ScalarFunction, *arguments: Any) -> Any:
    return evaluate(function.body, dict(zip(function.parameters, arguments, strict=True)))


def float32(values: Any) -> Any:
    return np.asarray(values, np.float32)


def same(a: Any, b: Any) -> bool:
    """Equal bits, any NaN equal to any NaN."""
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    return bool(np.all((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))))


def worst_ulp(value: Any, exact: Any) -> float:
    """The greatest |value - exact| in ulps of the rounded `exact`; infinite where kind or sign differ."""
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    exponent = np.maximum((rounded.view(np.uint32) >> 23) & 0xFF, 1).astype(np.int32)
    with np.errstate(all="ignore"):
        error = np.ldexp(np.abs(value.astype(np.float64) - exact.astype(np.float64)), 150 - exponent)
    equal = (value == rounded) | (np.isnan(value) & np.isnan(rounded))
    finite = np.isfinite(value) & np.isfinite(rounded)
    error = np.where(finite, error, np.where(equal, 0.0, np.inf))
    signs_differ = (np.signbit(value) != np.signbit(rounded)) & ~np.isnan(rounded)
    return float(np.max(np.where(signs_differ, np.inf, error)))


def arguments(name: str) -> Any:
    """Every 65521st binary32, and as many where the function is neither 0, 1 nor infinite."""
    rng = np.random.default_rng(7)
    spread = np.arange(0, 1 << 32, 65521).astype(np.uint32).view(np.float32)
    dense = rng.choice([-1.0, 1.0], 1 << 16) * np.exp2(rng.uniform(-12, 7, 1 << 16))
    return np.concatenate([spread, dense.astype(np.float32)])


@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(name: str) -> None:
    x, expected = zip(*SPECIAL[name], strict=True)
    assert same(run(FUNCTIONS[name], float32(x)), float32(expected)), name


@pytest.mark.parametrize("name", SPECIAL)
def test_nan_stays_nan_whatever_its_payload(name: str) -> None:
    words = np.array([0x7FC00000, 0x7F800001, 0x7FC00002, 0x7FFFFFFF, 0xFF800001, 0xFFC12345], np.uint32)
    assert np.isnan(run(FUNCTIONS[name], words.view(np.float32))).all()


@pytest.mark.parametrize("name", REFERENCES)
def test_error_stays_within_the_published_bound(name: str) -> None:
    function, x = FUNCTIONS[name], arguments(name)
    with np.errstate(all="ignore"):
        exact = np.asarray(REFERENCES[name](x.astype(np.float64)), np.float64)
    assert function.max_ulp is not None
    allowed = {"tan": 3.54, "acosh": 2.5}.get(name, 2.0)  # made of two functions
    assert worst_ulp(run(function, x), exact) <= function.max_ulp <= allowed


def test_fmod_is_exact_while_the_quotient_has_24_bits() -> None:
    rng = np.random.default_rng(4)
    b = rng.choice([-1, 1], 4000) * np.exp2(rng.uniform(-20, 20, 4000)).astype(np.float32)
    a = (rng.uniform(-1, 1, 4000) * np.exp2(rng.uniform(-4, 23, 4000)) * b).astype(np.float32)
    near = (np.arange(1, 2001) * b[:2000]).astype(np.float32)  # multiples, and their neighbours
    cases = [(a, b), (near, b[:2000]), (np.nextafter(near, float32(0)), b[:2000])]
    for x, y in [*cases, (float32([INF, 1, NAN, 5, 0.0, -0.0]), float32([1, 0, 1, INF, 2, 2]))]:
        with np.errstate(invalid="ignore"):
            assert same(run(f.fmod, x, float32(y)), np.fmod(x, float32(y)))


def test_square_root_is_correctly_rounded_for_every_exponent() -> None:
    rng = np.random.default_rng(3)
    fractions = np.concatenate([rng.integers(0, 1 << 23, 2000), [0, 1, 2, (1 << 23) - 2, (1 << 23) - 1]])
    words = (np.arange(255)[:, None] << 23 | fractions).astype(np.uint32).ravel()
    x = words.view(np.float32)
    assert same(run(f.sqrt, x), np.sqrt(x))


def test_square_root_is_correctly_rounded_beside_squares() -> None:
    roots = np.arange(1 << 11, 1 << 12, dtype=np.uint32)
    x = (roots * roots).astype(np.float32)
    near = np.concatenate([x, np.nextafter(x, float32(0)), np.nextafter(x, float32(INF))])
    assert same(run(f.sqrt, near), np.sqrt(near))


def test_tanh_and_erf_are_odd() -> None:
    x = np.abs(arguments("tanh"))
    for function in (f.tanh, f.erf, f.sin):
        assert same(run(function, -x), -run(function, x))


def test_sin_and_cos_reduce_the_hardest_arguments() -> None:
    """16367173 * 2^72 comes within 2^-29 of a multiple of pi / 2, closer than any other binary32."""
    x = float32([16367173 * 2.0**72, 1.5707964, 3.1415927, 11.0, 355.0, 710.0, 3.4028235e38])
    assert min(np.abs(run(f.sin, x[:1])), np.abs(run(f.cos, x[:1]))) < 2.0**-29
    assert worst_ulp(run(f.sin, x), np.sin(x.astype(np.float64))) <= 2.0
    assert worst_ulp(run(f.cos, x), np.cos(x.astype(np.float64))) <= 2.0


def test_power_stays_within_two_ulp() -> None:
    rng = np.random.default_rng(11)
    n = 1 << 16
    near_one = rng.choice([-1, 1], n) * np.exp2(rng.uniform(-23, 0, n))
    x = np.exp2(np.concatenate([rng.uniform(-149, 127.9, n), near_one])).astype(np.float32)
    x = x[x != 1]
    y = (rng.uniform(-150, 128, x.size) / np.log2(x.astype(np.float64))).astype(np.float32)
    exact = np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(np.float64)
    assert worst_ulp(run(f.power, x, y), exact) <= 2.0


def test_power_of_special_values_is_that_of_annex_f() -> None:
    values = [0.0, 1.0, 2.0, 3.0, 0.5, 1.5, INF, TINY, 3e38, 2.0**24 + 2, 2.0**23 + 1, 1e10, 0.99999994, NAN]
    values = float32(values + [-v for v in values])
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    assert worst_ulp(run(f.power, x, y), exact) <= 2.0


# ---- Random numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_known_answers_of_random123(
    counter: tuple[int, int], key: tuple[int, int], expected: tuple[int, int]
) -> None:
    block: Scalar = f.threefry2x32(*(const(v, "uint32") for v in (*key, *counter)))
    words = tuple(int(evaluate(f.word(block, i), {})) for i in (0, 1))
    assert words == expected
    by_expression = [int(evaluate(f.word(block, const(i, "uint32")), {})) for i in (4, 5)]
    assert by_expression == list(expected)


def test_uniform_covers_the_half_open_interval() -> None:
    words = np.array([0, 511, 512, 0x80000000, 0xFFFFFFFF], np.uint32)
    assert same(run(f.uniform, words), float32([0.0, 0.0, 2.0**-23, 0.5, 1.0 - 2.0**-23]))


def test_normal_is_symmetric_increasing_and_standard() -> None:
    words = np.arange(0, 1 << 32, 1 << 12).astype(np.uint32)
    z = run(f.normal, words)
    assert np.all(np.diff(z) > 0)
    assert same(z, -run(f.normal, ~words))
    assert abs(float(np.mean(z, dtype=np.float64))) < 1e-5
    assert abs(float(np.std(z, dtype=np.float64)) - 1.0) < 1e-5
    assert np.isfinite(run(f.normal, np.array([0, 0xFFFFFFFF], np.uint32))).all()


def test_normal_inverts_the_normal_distribution() -> None:
    words = np.arange(1 << 11, 1 << 32, 1 << 20).astype(np.uint32)
    z = run(f.normal, words).astype(np.float64)
    probability = ((words >> 9).astype(np.float64) + 0.5) * 2.0**-23
    below = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in z])
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    assert np.max(np.abs(below - probability) / density) < 5e-6
