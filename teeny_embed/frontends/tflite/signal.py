"""The operators of audio front ends: windows, Fourier transforms and filter banks in integers.

They are TFLite Micro's custom operators, each equal to it in every bit. The transforms round as KISS FFT
does with fixed-point numbers: every stage divides by its radix first, and products round to the nearest.
"""

from __future__ import annotations

from math import log2, pi

import numpy as np

from teeny_embed.frontends.tflite.model import Array
from teeny_embed.frontends.tflite.movement import gathered
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.quantization import clamp
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.graph.node import Variable, scoped
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.ops.movement import concat
from teeny_embed.graph.tensor import Tensor, assign, call, constant, read

Complex = tuple[Tensor, Tensor]
"""Real and imaginary parts."""


def _right(x: Tensor, places: int) -> Tensor:
    return call("shift_right", x, constant(places, x.dtype))


def _left(x: Tensor, places: int) -> Tensor:
    return call("shift_left", x, constant(places, x.dtype))


def _significant_bits(x: Tensor) -> Tensor:
    """int32: how many bits a uint32 or int32 takes, 0 for 0."""
    return 32 - call("leading_zeros", x.astype("int32"))


# ---- Samples ----------------------------------------------------------------------------------------------


@converter("SignalWindow", "int16")
def window(op: Operation) -> Tensor:
    """Samples times a window, of which `shift` bits are the fraction."""
    product = op.input(0).astype("int32") * op.input(1).astype("int32")
    return clamp(_right(product, int(op.option("shift"))), -(1 << 15), (1 << 15) - 1).astype("int16")


@converter("SignalFftAutoScale", "int16")
def fft_auto_scale(op: Operation) -> list[Tensor]:
    """Samples shifted to the left as far as the largest allows, and by how many bits; silence by none.

    -32768 is the largest of all. TFLite Micro forgets it when a sample comes after it.
    """
    x = op.input(0).astype("int32")
    largest = call("max", call("abs", x), axes=None, keepdims=False)
    places = call("maximum", 15 - _significant_bits(largest), constant(0, "int32"))
    places = where(largest == 0, 0, places)
    return [call("shift_left", x, places).astype("int16"), places]


@converter("SignalDelay", "int16")
def delay(op: Operation) -> Tensor:
    """Samples, `delay_length` later; zeros come first."""
    x, count = op.input(0), int(op.option("delay_length"))
    if count < 1:
        return x
    state = Variable(scoped("delayed"), np.zeros((*x.shape[:-1], count), x.dtype), kind="state")
    op.context.variables[state.name] = state
    both = concat(read(state), x, axis=-1)
    assign(state, both[..., x.shape[-1] :])
    return both[..., : x.shape[-1]]


# ---- Fourier transforms -----------------------------------------------------------------------------------


class _Fixed:
    """Fractions with 15 bits in 16, or 31 in 32; sums wrap, products round to the nearest, ties up."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.wide = dtype, {"int16": "int32", "int32": "int64"}[dtype]
        self.bits = np.iinfo(dtype).bits - 1

    def rounded(self, x: Tensor) -> Tensor:
        return _right(x + (1 << (self.bits - 1)), self.bits).astype(self.dtype)

    def divided(self, z: Complex, divisor: int) -> Complex:
        factor = ((1 << self.bits) - 1) // divisor
        real, imaginary = (self.rounded(part.astype(self.wide) * factor) for part in z)
        return real, imaginary

    def turned(self, z: Complex, angles: Array) -> Complex:
        """Times e^(i angle)."""
        scale = (1 << self.bits) - 1
        if not angles.any():
            return z  # what was divided is small enough for the largest fraction to leave it as it is
        cosine, sine = (np.floor(0.5 + scale * f(angles)).astype(self.dtype) for f in (np.cos, np.sin))
        c, s = (constant(factor).astype(self.wide) for factor in (cosine, sine))
        real, imaginary = (part.astype(self.wide) for part in z)
        return self.rounded(real * c - imaginary * s), self.rounded(real * s + imaginary * c)


def _sum(a: Complex, b: Complex) -> Complex:
    return a[0] + b[0], a[1] + b[1]


def _difference(a: Complex, b: Complex) -> Complex:
    return a[0] - b[0], a[1] - b[1]


def _turned_right(z: Complex) -> Complex:
    """Times -i."""
    return z[1], -z[0]


def _conjugate(z: Complex) -> Complex:
    return z[0], -z[1]


def _factors(op: Operation, length: int) -> list[int]:
    """Radix 4 while it divides, then 2."""
    if length < 2 or length & (length - 1):
        raise op.error(f"a transform of {2 * length} numbers: only powers of two from 4 are supported")
    fours, twos = divmod(length.bit_length() - 1, 2)
    return [4] * fours + [2] * twos


def _transformed(z: Complex, factors: list[int], fixed: _Fixed, sign: int) -> Complex:
    """The transform by e^(sign 2 pi i j k / n), over n: digits reversed, then stage by stage."""
    length = z[0].shape[0]
    real, imaginary = (
        x.reshape(*reversed(factors)).transpose(*reversed(range(len(factors)))).reshape(length) for x in z
    )
    z, width = (real, imaginary), 1
    for radix in reversed(factors):
        z = _stage(z, radix, width, fixed, sign)
        width *= radix
    return z


def _stage(z: Complex, radix: int, width: int, fixed: _Fixed, sign: int) -> Complex:
    """Groups of `radix` transforms of `width` points become transforms of radix * width points."""
    length = z[0].shape[0]
    groups = length // (radix * width)
    real, imaginary = (x.reshape(groups, radix, width) for x in fixed.divided(z, radix))
    parts = []
    for q in range(radix):
        angles = sign * 2 * pi * (q * groups * np.arange(width)) / length
        parts.append(fixed.turned((real[:, q], imaginary[:, q]), angles))
    if radix == 2:
        results = [_sum(*parts), _difference(*parts)]
    else:
        even, odd = _sum(parts[0], parts[2]), _sum(parts[1], parts[3])
        cross = _difference(parts[0], parts[2])
        turned = _turned_right(_difference(parts[1], parts[3]))
        first, third = _sum(cross, turned), _difference(cross, turned)
        if sign > 0:
            first, third = third, first
        results = [_sum(even, odd), first, _difference(even, odd), third]
    return _joined(
        [(r.reshape(groups, 1, width), i.reshape(groups, 1, width)) for r, i in results], 1, length
    )


def _joined(parts: list[Complex], axis: int, length: int) -> Complex:
    real, imaginary = (concat(*(p[n] for p in parts), axis=axis).reshape(length) for n in (0, 1))
    return real, imaginary


def _backwards(z: Complex) -> Complex:
    order = np.arange(z[0].shape[0])[::-1]
    return gathered(z[0], order, 0), gathered(z[1], order, 0)


def _part(z: Complex, start: int, stop: int) -> Complex:
    return z[0][start:stop], z[1][start:stop]


def _interleaved(z: Complex) -> Tensor:
    return concat(z[0].reshape(-1, 1), z[1].reshape(-1, 1), axis=1).reshape(-1)


def _split(x: Tensor) -> Complex:
    pairs = x.reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _half_turns(half: int) -> Array:
    """Angles between the transform of pairs and that of their numbers, of the first half."""
    return np.asarray(pi * (np.arange(1, half // 2 + 1) / half + 0.5))


@converter("SignalRfft", "int16 int32", "lengths that are powers of two")
def rfft(op: Operation) -> Tensor:
    """The transform of real numbers, over its length: real and imaginary parts by turns.

    Zeros fill the input up. Even and odd samples are one complex transform of half the length.
    """
    x, length = op.input(0), int(op.option("fft_length"))
    if x.type.count != x.shape[-1] or x.shape[-1] > length:
        raise op.error(f"input {x.type} for a transform of {length} numbers")
    half = length // 2
    factors, fixed = _factors(op, half), _Fixed(x.dtype)
    samples = call("pad", x.reshape(-1), starts=(0,), shape=(length,))
    z = _transformed(_split(samples), factors, fixed, -1)
    first = fixed.divided(_part(z, 0, 1), 2)
    low = fixed.divided(_part(z, 1, half // 2 + 1), 2)
    high = fixed.divided(_conjugate(_backwards(_part(z, half // 2, half))), 2)
    total = _sum(low, high)
    turned = fixed.turned(_difference(low, high), -_half_turns(half))
    zero = constant(np.zeros(1, x.dtype))
    ends = [(first[0] + first[1], zero), (first[0] - first[1], zero)]
    lower = _halved(fixed, total, turned)
    upper = _conjugate_halved(fixed, total, turned)
    inner = [_part(lower, 0, half // 2 - 1)] if half > 2 else []
    whole = _joined([ends[0], *inner, _backwards(upper), ends[1]], 0, half + 1)
    return _interleaved(whole).reshape(op.output_info().shape)


def _halved(fixed: _Fixed, a: Complex, b: Complex) -> Complex:
    """(a + b) / 2, rounded down."""
    wide = [(x.astype(fixed.wide), y.astype(fixed.wide)) for x, y in zip(a, b, strict=True)]
    real, imaginary = (_right(x + y, 1).astype(fixed.dtype) for x, y in wide)
    return real, imaginary


def _conjugate_halved(fixed: _Fixed, a: Complex, b: Complex) -> Complex:
    """The conjugate of (a - b) / 2, rounded down after the sign is changed."""
    (a_real, a_imaginary), (b_real, b_imaginary) = ([x.astype(fixed.wide) for x in z] for z in (a, b))
    return (
        _right(a_real - b_real, 1).astype(fixed.dtype),
        _right(b_imaginary - a_imaginary, 1).astype(fixed.dtype),
    )


@converter("SignalIrfft", "int16 int32", "lengths that are powers of two")
def irfft(op: Operation) -> Tensor:
    """The real numbers whose transform is given, over half their count."""
    x, length = op.input(0), int(op.option("fft_length"))
    half = length // 2
    if x.type.count != length + 2:
        raise op.error(f"input {x.type} for a transform of {length} numbers")
    factors, fixed = _factors(op, half), _Fixed(x.dtype)
    spectrum = _split(x)
    (first, _), (last, _) = _part(spectrum, 0, 1), _part(spectrum, half, half + 1)
    start = fixed.divided((first + last, first - last), 2)
    low = fixed.divided(_part(spectrum, 1, half // 2 + 1), 2)
    high = fixed.divided(_conjugate(_backwards(_part(spectrum, half // 2, half))), 2)
    even, odd = _sum(low, high), fixed.turned(_difference(low, high), _half_turns(half))
    lower, upper = _sum(even, odd), _conjugate(_difference(even, odd))
    inner = [_part(lower, 0, half // 2 - 1)] if half > 2 else []
    z = _joined([start, *inner, _backwards(upper)], 0, half)
    return _interleaved(_transformed(z, factors, fixed, 1)).reshape(op.output_info().shape)


@converter("SignalEnergy", "int16")
def energy(op: Operation) -> Tensor:
    """uint32: squared magnitudes from `start_index` to `end_index`; 0 elsewhere, where they mean nothing."""
    real, imaginary = (part.astype("int32") for part in _split(op.input(0)))
    start, stop = int(op.option("start_index")), int(op.option("end_index"))
    count = real.shape[0]
    if not 0 <= start < stop <= count:
        raise op.error(f"indices {start} to {stop} of {count}")
    squares = (real * real + imaginary * imaginary)[start:stop].astype("uint32")
    return call("pad", squares, starts=(start,), shape=(count,))


# ---- Filter banks -----------------------------------------------------------------------------------------


@converter("SignalFilterBank", "uint32")
def filter_bank(op: Operation) -> Tensor:
    """uint64 [channels]: sums of energies under triangles, which overlap with their neighbours.

    A frequency counts by its weight for one channel and by its "unweight" for the next. Here each channel is
    a row of weights over as many frequencies as the widest has.
    """
    x, channels = op.input(0), int(op.option("num_channels"))
    weights, unweights, frequencies, places, widths = (op.constant(i) for i in range(1, 6))
    dense = np.zeros((channels, x.shape[0]), np.int64)
    for i in range(channels + 1):
        at, frequency, width = int(places[i]), int(frequencies[i]), int(widths[i])
        if min(at, frequency, width) < 0 or at + width > weights.size or frequency + width > x.shape[0]:
            raise op.error(f"channel {i} reads outside of the weights or the input")
        if i > 0:
            dense[i - 1, frequency : frequency + width] += weights[at : at + width]
        if i < channels:
            dense[i, frequency : frequency + width] += unweights[at : at + width]
    used = dense != 0
    starts = np.where(used.any(1), used.argmax(1), 0)
    stops = np.where(used.any(1), x.shape[0] - used[:, ::-1].argmax(1), 1)
    width = int((stops - starts).max())
    starts = np.minimum(starts, x.shape[0] - width)
    columns = starts[:, None] + np.arange(width)
    rows = constant(np.take_along_axis(dense, columns, 1).astype(np.int16)).astype("uint64")
    positions = constant(starts[:, None], "int32") + call("iota", shape=(channels, width), axis=1)
    return (call("take", x, positions).astype("uint64") * rows).sum(1)


@converter("SignalFilterBankSquareRoot", "uint64")
def filter_bank_square_root(op: Operation) -> Tensor:
    """uint32: square roots, rounded to the nearest, then shifted right by the scale of the transform."""
    root = call("square_root", op.input(0))
    return call("shift_right", root, op.input(1).astype("uint32"))


@converter("SignalFilterBankSpectralSubtraction", "uint32")
def spectral_subtraction(op: Operation) -> list[Tensor]:
    """What is above a running estimate of the noise, at least a part of the signal; and that estimate."""
    x = op.input(0)
    bits, extra_bits = int(op.option("spectral_subtraction_bits")), int(op.option("smoothing_bits"))
    odd = np.arange(x.shape[0]) % 2 == 1

    def alternating(name: str) -> Tensor:
        """The option for even channels and its alternate for odd ones."""
        return constant(np.where(odd, op.option(f"alternate_{name}"), op.option(name)), "uint64")

    noise = Variable(scoped("noise"), np.zeros(x.shape, "uint32"), kind="state")
    op.context.variables[noise.name] = noise
    signal = _left(x, extra_bits)
    kept = read(noise).astype("uint64") * alternating("one_minus_smoothing")
    estimate = _right(signal.astype("uint64") * alternating("smoothing") + kept, bits).astype("uint32")
    within = call("minimum", estimate, signal)
    estimate = within if op.option("clamping") else estimate
    assign(noise, estimate)
    least = _right(x.astype("uint64") * int(op.option("min_signal_remaining")), bits).astype("uint32")
    return [call("maximum", _right(signal - within, extra_bits), least), estimate]


SNR_BITS, PCAN_BITS = 12, 6
"""Fraction bits of the ratio of signal to noise, and of what is made of it."""


@converter("SignalPCAN", "uint32")
def pcan(op: Operation) -> Tensor:
    """Per-channel gain by the noise estimate: a table of parabolas, one for each power of two."""
    x, noise, table = op.input(0), op.input(1), op.input(2)
    bits = _significant_bits(noise)
    base = call("maximum", bits * 4 - 6, constant(0, "int32"))

    def entry(at: Tensor) -> Tensor:
        return call("take", table, at).astype("int32")

    up, down = (call("maximum", n, constant(0, "int32")).astype("uint32") for n in (11 - bits, bits - 11))
    fraction = call("shift_right", call("shift_left", noise, up), down).astype("int32")
    fraction = call("bitwise_and", fraction, constant(0x3FF, "int32"))
    slope = _right(entry(base + 2) * fraction, 5) + _left(entry(base + 1), 5)
    curve = _right(slope * fraction + (1 << 14), 15) + entry(base)
    small = noise.astype("int32")
    few = call("less_equal", noise, constant(2, "uint32"))
    gain = where(few, entry(where(few, small, 0)), curve).astype("int16")
    product = x.astype("uint64") * gain.astype("uint32").astype("uint64")
    ratio = _right(product, int(op.option("snr_shift"))).astype("uint32")
    parabola = _right(ratio * ratio, 2 + 2 * SNR_BITS - PCAN_BITS)
    line = _right(ratio, SNR_BITS - PCAN_BITS) - (1 << PCAN_BITS)
    return where(call("less", ratio, constant(2 << SNR_BITS, "uint32")), parabola, line)


_LOG_SEGMENT_BITS = 7


def _log_table() -> Array:
    """uint16: 2^16 (log2(1 + i / 128) - i / 128)."""
    at = np.arange((1 << _LOG_SEGMENT_BITS) + 1) / (1 << _LOG_SEGMENT_BITS)
    return np.asarray(np.floor(65536 * (np.log2(1 + at) - at) + 0.5)).astype(np.uint16)


@converter("SignalFilterBankLog", "uint32")
def filter_bank_log(op: Operation) -> Tensor:
    """int16: `output_scale` times the natural logarithm; 0 of what is below 2."""
    x = _left(op.input(0), int(op.option("input_correction_bits")))
    power = call("maximum", _significant_bits(x) - 1, constant(0, "int32"))
    up, down = (call("maximum", n, constant(0, "int32")).astype("uint32") for n in (16 - power, power - 16))
    mantissa = call("shift_right", call("shift_left", x, up), down)
    fraction = call("bitwise_and", mantissa.astype("int32"), constant(0xFFFF, "int32"))
    segment = _right(fraction, 16 - _LOG_SEGMENT_BITS)
    table = constant(_log_table())
    low, high = (call("take", table, segment + n).astype("int32") for n in (0, 1))
    within = fraction - _left(segment, 16 - _LOG_SEGMENT_BITS)
    binary = (_left(power, 16) + fraction + low + _right((high - low) * within, 16)).astype("uint32")
    half, ln_2 = 1 << 15, round(65536 / log2(np.e))
    natural = _right(binary.astype("uint64") * ln_2 + half, 16).astype("uint32")
    scaled = _right(natural * int(op.option("output_scale")) + half, 16)
    result = call("minimum", scaled, constant((1 << 15) - 1, "uint32")).astype("int16")
    return where(call("less", x, constant(2, "uint32")), constant(0, "int16"), result)
