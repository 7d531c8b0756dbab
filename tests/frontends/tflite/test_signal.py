"""The operators of audio front ends, equal to TFLite Micro's in every bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from support.tflite import (
    Array,
    Runner,
    SharedModel,
    assert_equals_micro,
    every_layer,
    micro_outputs,
    micro_tensors,
    random_inputs,
)
from support.tflite_files import Op, T, constant, model
from teeny_embed.errors import DataError
from teeny_embed.frontends.tflite import import_model

PREPROCESSORS = ("tflm/audio_preprocessor_int8", "tflm/audio_preprocessor_float")


@pytest.mark.parametrize("name", PREPROCESSORS)
def test_preprocessors_equal_the_interpreter_over_many_calls(shared: Path, name: str) -> None:
    stored = SharedModel(shared, name)
    quiet = [(np.zeros((1, 480), np.int16),), (np.full((1, 480), -32768, np.int16),)]
    samples = [*stored.feeds(), *random_inputs(stored.imported, seed=2, count=4), *quiet]
    run = Runner(stored.imported.graph)
    for inputs, (wanted,) in zip(samples, micro_outputs(stored.path.read_bytes(), samples), strict=True):
        np.testing.assert_array_equal(run(*inputs)[0].reshape(wanted.shape), wanted)


def test_every_layer_of_the_preprocessor_equals_the_interpreter(shared: Path) -> None:
    stored = SharedModel(shared, PREPROCESSORS[0])
    inputs = stored.feeds()[0]
    graph = every_layer(stored.imported)
    indices = [int(name.removeprefix("t")) for name, _ in graph.outputs]
    wanted = micro_tensors(stored.path.read_bytes(), inputs, indices)
    parts = _written_parts(stored)
    for index, found in zip(indices, Runner(graph)(*inputs), strict=True):
        part = parts.get(index, slice(None))
        ours, theirs = found.reshape(-1)[part], wanted[index].reshape(-1)[part]
        np.testing.assert_array_equal(ours, theirs, f"tensor {index}")


def _written_parts(stored: SharedModel) -> dict[int, slice]:
    """What the interpreter writes of the energies and of their cast: outside, old memory shows through."""
    parts: dict[int, slice] = {}
    for op in stored.imported.model.subgraphs[0].operators:
        if op.name == "SignalEnergy":
            parts[op.outputs[0]] = slice(op.options["start_index"], op.options["end_index"])
        elif op.name == "CAST" and op.inputs[0] in parts:
            parts[op.outputs[0]] = parts[op.inputs[0]]
    return parts


# ---- Operators of their own -------------------------------------------------------------------------------


def _single(
    name: str, operands: Sequence[T], results: Sequence[T], options: dict[str, Any] | None = None
) -> bytes:
    count = len(operands)
    outputs = list(range(count, count + len(results)))
    inputs = [i for i, t in enumerate(operands) if t.data is None]
    operator = Op(name, list(range(count)), outputs, options or {})
    return model([*operands, *results], [operator], inputs, outputs)


def _check(content: bytes, samples: Sequence[Sequence[Array]] | None = None) -> None:
    if samples is None:
        samples = random_inputs(import_model(content, "small.tflite"), seed=5, count=4)
    assert_equals_micro(content, samples)


TYPE_NUMBERS = {"int16": 7, "int32": 2}
LENGTHS = (4, 8, 16, 32, 64, 256)


def _rfft(dtype: str, length: int, given: int) -> bytes:
    options = {"T": TYPE_NUMBERS[dtype], "fft_length": length}
    return _single("SignalRfft", [T((given,), dtype)], [T((length + 2,), dtype)], options)


def _irfft(dtype: str, length: int) -> bytes:
    options = {"T": TYPE_NUMBERS[dtype], "fft_length": length}
    return _single("SignalIrfft", [T((length + 2,), dtype)], [T((length,), dtype)], options)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", TYPE_NUMBERS)
def test_transforms_of_real_numbers(dtype: str, length: int) -> None:
    _check(_rfft(dtype, length, length))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", TYPE_NUMBERS)
def test_inverse_transforms(dtype: str, length: int) -> None:
    _check(_irfft(dtype, length))


def test_transforms_fill_up_with_zeros() -> None:
    _check(_rfft("int16", 32, 21))


def test_lengths_that_are_no_power_of_two_are_refused() -> None:
    with pytest.raises(DataError, match="powers of two"):
        import_model(_rfft("int16", 24, 24), "small.tflite")


def test_windows_clamp() -> None:
    table = constant([4096, -4096, 32767, 5, -1, 0], "int16")
    _check(_single("SignalWindow", [T((1, 6), "int16"), table], [T((1, 6), "int16")], {"shift": 12}))


def test_scale_of_the_transform_by_the_largest_sample() -> None:
    content = _single("SignalFftAutoScale", [T((5,), "int16")], [T((5,), "int16"), T((), "int32")])
    peaks = (0, 1, 2, 255, 256, 16383, 16384, 32767)
    samples = [(np.array([0, -peak, peak // 2, 0, -1 if peak else 0], np.int16),) for peak in peaks]
    _check(content, samples)


def test_delays_start_with_zeros() -> None:
    _check(_single("SignalDelay", [T((4,), "int16")], [T((4,), "int16")], {"delay_length": 6}))


ROOTS = [0, 1, 2, 3, 6, 7, 0xFFFE0001, 0xFFFFFFFF, 1 << 32, (1 << 64) - 1, 1 << 63, 12345678901234567]


def test_square_roots() -> None:
    x = np.array(ROOTS, np.uint64)
    operands = [T((x.size,), "uint64"), T((), "int32")]
    content = _single("SignalFilterBankSquareRoot", operands, [T((x.size,), "uint32")])
    _check(content, [(x, np.array(n, np.int32)) for n in (0, 3)])


SUBTRACTION = {
    "alternate_one_minus_smoothing": 15401, "alternate_smoothing": 983, "min_signal_remaining": 819,
    "num_channels": 6, "one_minus_smoothing": 15975, "smoothing": 409, "smoothing_bits": 10,
    "spectral_subtraction_bits": 14,
}  # fmt: skip


@pytest.mark.parametrize("clamping", [False, True])
def test_noise_is_estimated_from_call_to_call(clamping: bool) -> None:
    results = [T((6,), "uint32"), T((6,), "uint32")]
    options = SUBTRACTION | {"clamping": clamping}
    content = _single("SignalFilterBankSpectralSubtraction", [T((6,), "uint32")], results, options)
    rng = np.random.default_rng(1)
    _check(content, [(rng.integers(0, 1 << 22, 6).astype(np.uint32),) for _ in range(8)])


EDGES = np.array(
    [0, 1, 2, 3, 4, 1023, 1024, 1025, 2047, 2048, 65535, 65536, 1 << 31, (1 << 32) - 1], np.uint32
)


def test_gain_by_the_noise() -> None:
    table = constant(np.random.default_rng(4).integers(0, 32767, 125), "int16")
    shape = (EDGES.size,)
    operands = [T(shape, "uint32"), T(shape, "uint32"), table]
    content = _single("SignalPCAN", operands, [T(shape, "uint32")], {"snr_shift": 6})
    _check(content, [(EDGES, EDGES[::-1].copy()), (EDGES[::-1].copy(), EDGES)])


@pytest.mark.parametrize("bits", [0, 3])
def test_logarithms(bits: int) -> None:
    rng = np.random.default_rng(6)
    x = np.concatenate([EDGES, rng.integers(0, 1 << 32, 500), rng.integers(0, 1 << 12, 500)]).astype(
        np.uint32
    )
    options = {"input_correction_bits": bits, "output_scale": 64}
    _check(_single("SignalFilterBankLog", [T(x.shape, "uint32")], [T(x.shape, "int16")], options), [(x,)])


@pytest.mark.parametrize("content", [_rfft("int16", 16, 13), _irfft("int32", 8)], ids=["rfft", "irfft"])
def test_host_c_of_transforms(content: bytes, tmp_path: Path) -> None:
    graph = import_model(content, "small.tflite").graph
    assert te.verify(te.build(te.Program("small", infer=graph), target="host", out=tmp_path)).ok


@pytest.mark.full
def test_host_c_of_the_preprocessor(shared: Path, tmp_path: Path) -> None:
    graph = te.load(shared / "models" / "tflm" / "audio_preprocessor_int8.tflite")
    assert te.verify(te.build(te.Program("audio", infer=graph), target="host", out=tmp_path), steps=3).ok
