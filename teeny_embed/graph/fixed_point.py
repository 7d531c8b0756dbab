"""Fixed-point functions of int32: products, shifts and reciprocals that round as stated.

Qm.n is an int32 that stands for itself times 2^-n, of which m bits are whole. The polynomials and the
Newton iteration are those of gemmlowp's fixed-point library, which TensorFlow Lite computes with.
"""

from __future__ import annotations

from teeny_embed.graph import scalar as s
from teeny_embed.graph.scalar import Scalar, define

INT32_MAX = (1 << 31) - 1
_INT32 = ("int32", "int32")


def _multiply_high(x: Scalar, y: Scalar) -> Scalar:
    product = s.cast(x, "int64") * s.cast(y, "int64")
    high = s.cast(s.shift_right(product + (1 << 30), s.const(31, "int64")), "int32")
    lowest = s.const(-(1 << 31), "int32")
    overflows = s.logical_and(s.equal(x, lowest), s.equal(y, lowest))
    return s.select(overflows, s.const(INT32_MAX, "int32"), high)


def _shift_right_rounding(x: Scalar, places: Scalar) -> Scalar:
    mask = s.shift_left(s.const(1, "int32"), places) - 1
    threshold = s.shift_right(mask, s.const(1, "int32")) + s.cast(s.less(x, 0), "int32")
    return s.shift_right(x, places) + s.cast(s.less(threshold, s.bit_and(x, mask)), "int32")


def _shift_left_saturating(x: Scalar, places: Scalar) -> Scalar:
    limit = s.shift_right(s.const(INT32_MAX, "int32"), places)
    low = s.select(
        s.less(x, s.const(-1, "int32") - limit), s.const(-(1 << 31), "int32"), s.shift_left(x, places)
    )
    return s.select(s.less(limit, x), s.const(INT32_MAX, "int32"), low)


def _leading_zeros(x: Scalar) -> Scalar:
    count, rest = s.const(0, "int32"), s.cast(x, "uint32")
    for width in (16, 8, 4, 2, 1):
        empty = s.less(rest, s.const(1 << (32 - width), "uint32"))
        count = count + s.select(empty, s.const(width, "int32"), s.const(0, "int32"))
        rest = s.select(empty, s.shift_left(rest, s.const(width, "uint32")), rest)
    return count + s.select(
        s.less(rest, s.const(1 << 31, "uint32")), s.const(1, "int32"), s.const(0, "int32")
    )


multiply_high = define(
    "multiply_high", "x y 2^-31 rounded to the nearest, ties up; saturates", _multiply_high, *_INT32
)
shift_right_rounding = define(
    "shift_right_rounding",
    "x 2^-y rounded to the nearest, ties away from zero",
    _shift_right_rounding,
    *_INT32,
)
shift_left_saturating = define("shift_left_saturating", "x 2^y, saturating", _shift_left_saturating, *_INT32)
leading_zeros = define("leading_zeros", "zero bits before the first one; 32 for 0", _leading_zeros, "int32")


def _right(x: Scalar, places: int) -> Scalar:
    return shift_right_rounding(x, s.const(places, "int32"))


def _left(x: Scalar, places: int) -> Scalar:
    return shift_left_saturating(x, s.const(places, "int32"))


def _exp_near_zero(x: Scalar) -> Scalar:
    """e^x of a Q0.31 in [-1/4, 0): the series around -1/8."""
    t = x + (1 << 28)
    t2 = multiply_high(t, t)
    t3, t4 = multiply_high(t2, t), multiply_high(t2, t2)
    third = s.const(715827883, "int32")
    tail = _right(multiply_high(_right(t4, 2) + t3, third) + t2, 1)
    centre = s.const(1895147668, "int32")
    return centre + multiply_high(centre, t + tail)


_EXP_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""e^-(1/4), e^-(1/2), e^-1, ... e^-16 as Q0.31."""


def exp_of_negative(x: Scalar, whole_bits: int) -> Scalar:
    """e^x as Q0.31 of an x <= 0 with `whole_bits` whole bits."""
    fraction_bits = 31 - whole_bits
    quarter = 1 << (fraction_bits - 2)
    within = s.bit_and(x, s.const(quarter - 1, "int32")) - quarter
    result = _exp_near_zero(_left(within, whole_bits) if whole_bits else within)
    remainder = within - x
    for exponent, power in zip(range(-2, 5), _EXP_POWERS, strict=True):
        if exponent < whole_bits:
            bit = s.bit_and(remainder, s.const(1 << (fraction_bits + exponent), "int32"))
            scaled = multiply_high(result, s.const(power, "int32"))
            result = s.select(s.equal(bit, 0), result, scaled)
    if whole_bits > 5:
        too_low = s.less(x, s.const(-(1 << (fraction_bits + 5)), "int32"))
        result = s.select(too_low, s.const(0, "int32"), result)
    return s.select(s.equal(x, 0), s.const(INT32_MAX, "int32"), result)


def _inverse(x: Scalar) -> Scalar:
    """1 / (1 + x) of a Q0.31 in [0, 1]."""
    return _left(_newton(x), 1)


def _newton(x: Scalar) -> Scalar:
    """2 / (1 + x) as Q2.29: Newton steps from 48/17 - 32/17 d for the inverse of d = (1 + x) / 2."""
    total = s.cast(x, "int64") + INT32_MAX
    half = s.cast(s.divide(total + 1, s.const(2, "int64")), "int32")
    estimate = s.const(1515870810, "int32") + multiply_high(half, s.const(-1010580540, "int32"))
    for _ in range(3):
        error = s.const(1 << 29, "int32") - multiply_high(half, estimate)
        estimate = estimate + _left(multiply_high(estimate, error), 2)
    return estimate


exp_of_negative_5 = define(
    "exp_of_negative_q5",
    "e^x as Q0.31 of a Q5.26 that is not positive",
    lambda x: exp_of_negative(x, 5),
    "int32",
)


def _logistic(x: Scalar) -> Scalar:
    """1 / (1 + e^-x) as Q0.31 of a Q4.27."""
    magnitude = s.select(s.less(0, x), x, s.negative(x))
    value = inverse_of_one_plus(exp_of_negative(s.negative(magnitude), 4))
    signed = s.select(s.less(0, x), value, s.const(INT32_MAX, "int32") - value)
    return s.select(s.equal(x, 0), s.const(1 << 30, "int32"), signed)


def _inverse_minus(x: Scalar) -> Scalar:
    """(1 - x) / (1 + x) of a Q0.31 in [0, 1]: 2 / (1 + x) - 1."""
    estimate = _newton(x)
    return _left(estimate - (1 << 29), 2)


def _tanh(x: Scalar) -> Scalar:
    """As Q0.31 of a Q4.27: (1 - e^-2|x|) / (1 + e^-2|x|)."""
    negative = s.select(s.less(x, 0), x, s.negative(x))
    value = _inverse_minus(exp_of_negative(negative, 5))
    signed = s.select(s.less(0, x), value, s.negative(value))
    return s.select(s.equal(x, 0), s.const(0, "int32"), signed)


def _inverse_square_root(x: Scalar) -> Scalar:
    """1 / sqrt(x) as Q0.31 of a Q3.28: five Newton steps from 1, then sqrt(2) / 2."""
    half = _right(x, 1)
    estimate = s.const(1 << 28, "int32")
    for _ in range(5):
        cube = _left(multiply_high(multiply_high(estimate, estimate), estimate), 6)
        three_halves = multiply_high(s.const((1 << 28) + (1 << 27), "int32"), estimate)
        estimate = _left(three_halves - multiply_high(half, cube), 3)
    return multiply_high(estimate, s.const(1518500250, "int32"))


def _log(x: Scalar) -> Scalar:
    """log(x) as Q5.26 of a Q12.19 that is 1 or more.

    x = z 2^k with z near 2^-1/4: k, in steps of 1/2, comes from the leading zeros of x or of x / sqrt(2),
    whichever leaves the smaller z. log(z) is a quotient of polynomials.
    """
    centre, half_root = s.const(1805811301, "int32"), s.const(1518500250, "int32")
    first_zeros = leading_zeros(x)
    first = _left(multiply_high(shift_left_saturating(x, first_zeros - 1), half_root), 1)
    second_zeros = leading_zeros(multiply_high(x, half_root)) - 1
    second = shift_left_saturating(x, second_zeros)
    quarter = 1 << 23
    exponents = _left(12 - first_zeros, 25) + quarter, _left(12 - second_zeros, 25) - quarter
    z = s.select(s.less(second, first), second, first)
    exponent = s.select(s.less(exponents[0], exponents[1]), exponents[1], exponents[0])
    mean = s.cast(s.divide(s.cast(z, "int64") + 1805811302, s.const(2, "int64")), "int32")
    half_gap = z - centre
    gap = half_gap + half_gap
    square = multiply_high(gap, gap)
    cubic = multiply_high(multiply_high(gap, square), s.const(117049297, "int32"))
    numerator = multiply_high(gap, z) + cubic
    inner = s.const(1057819769, "int32") + gap + multiply_high(s.const(127690142, "int32"), square)
    denominator = multiply_high(mean, inner) + multiply_high(s.const(638450708, "int32"), gap)
    log_z = multiply_high(_right(numerator, 6), inverse_of_one_plus(denominator))
    return _left(multiply_high(exponent, s.const(1488522236, "int32")) + log_z, 1)


def _square_root(x: Scalar) -> Scalar:
    """Digit by digit: what is left is compared with twice the root so far and the next bit."""
    rest, root = x, s.const(0, "uint64")
    for place in range(62, -2, -2):
        bit = s.const(1 << place, "uint64")
        trial, half = root + bit, s.shift_right(root, s.const(1, "uint64"))
        fits = s.logical_not(s.less(rest, trial))
        rest, root = s.select(fits, rest - trial, rest), s.select(fits, half + bit, half)
    limit = s.select(
        s.less(x, s.const(1 << 32, "uint64")), s.const(0xFFFF, "uint64"), s.const(0xFFFFFFFF, "uint64")
    )
    up = s.logical_and(s.less(root, rest), s.not_equal(root, limit))
    return s.cast(root + s.cast(up, "uint64"), "uint32")


square_root = define(
    "square_root",
    "the integer nearest to the square root; at most 2^16 - 1 below 2^32",
    _square_root,
    "uint64",
)
inverse_of_one_plus = define("inverse_of_one_plus", "1 / (1 + x) of a Q0.31 in [0, 1]", _inverse, "int32")
logistic_4 = define("logistic_q4", "1 / (1 + e^-x) as Q0.31 of a Q4.27", _logistic, "int32")
tanh_4 = define("tanh_q4", "tanh(x) as Q0.31 of a Q4.27", _tanh, "int32")
inverse_square_root = define(
    "inverse_square_root", "1 / sqrt(x) / sqrt(2) as Q0.31 of a Q3.28", _inverse_square_root, "int32"
)
log_12 = define("log_q12", "log(x) as Q5.26 of a Q12.19 that is 1 or more", _log, "int32")
