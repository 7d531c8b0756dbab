"""Quantise and dequantise functions of the header: the bits of NumPy, and of the graph's own operators."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from support.tflite_files import Op, T, model
from teeny_embed.deploy.toolchain import build_host_library
from teeny_embed.frontends.tflite import import_model
from teeny_embed.graph.quantization import Quantization

CASES = (
    Quantization(float(np.float32(0.584702909)), 83, "int8"),
    Quantization(0.00390625, -128, "int8"),
    Quantization(float(np.float32(0.1)), 127, "uint8"),
    Quantization(float(np.float32(1e-5)), 0, "int16"),
    Quantization(float(np.float32(3.0)), -3, "int16"),
)
CASE = pytest.mark.parametrize("q", CASES, ids=lambda q: f"{q.dtype} {q.scale:g}")

SHIM = """
#include "net.h"
void quantize(const float *real, {type} *stored, int32_t count);
void dequantize(const {type} *stored, float *real, int32_t count);
void quantize(const float *real, {type} *stored, int32_t count)
{{
    for (int32_t i = 0; i < count; ++i) {{ stored[i] = net_quantize_x(real[i]); }}
}}
void dequantize(const {type} *stored, float *real, int32_t count)
{{
    for (int32_t i = 0; i < count; ++i) {{ real[i] = net_dequantize_y(stored[i]); }}
}}
"""


def built(q: Quantization, folder: Path) -> te.Build:
    x = te.input("x", (4,), q.dtype)
    graph = te.trace(lambda x: {"y": te.maximum(x, x)}, x)
    return te.build(te.Program("net", infer=replace(graph, quantizations={"x": q, "y": q})), out=folder)


def real_numbers(q: Quantization) -> np.ndarray:
    """Ties, their neighbours, both ends, and what is no number."""
    low, high = q.limits
    steps = np.arange(low - q.zero_point - 2, high - q.zero_point + 3, dtype=np.float32)
    ties = ((steps + np.float32(0.5)) * np.float32(q.scale)).astype(np.float32)
    around = [ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))]
    special = np.float32([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3e38, -3e38, 0.49999997 * q.scale])
    return np.concatenate([*around, special, steps * np.float32(q.scale)])


def converted(function: Any, given: np.ndarray, dtype: str) -> np.ndarray:
    """`given` as the C function fills an array of `dtype` from it."""
    found = np.empty(given.size, dtype)
    pointers = [each.ctypes.data_as(ctypes.c_void_p) for each in (given, found)]
    function(*pointers, given.size)
    return found


@CASE
def test_functions_of_the_header_equal_numpy(q: Quantization, tmp_path: Path) -> None:
    build = built(q, tmp_path / "c")
    (tmp_path / "c" / "shim.c").write_text(SHIM.format(type=f"{q.dtype}_t"))
    sources = [tmp_path / "c" / name for name in (*build.interface.sources, "shim.c")]
    library = tmp_path / "shim.so"
    build_host_library(sources, library, "gcc", ("-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror"))
    functions = ctypes.CDLL(str(library))
    real = real_numbers(q)
    np.testing.assert_array_equal(converted(functions.quantize, real, q.dtype), q.quantize(real))
    stored = np.arange(q.limits[0], q.limits[1] + 1).astype(q.dtype)
    np.testing.assert_array_equal(converted(functions.dequantize, stored, "float32"), q.dequantize(stored))


@CASE
def test_they_are_what_the_quantising_operators_compute(q: Quantization) -> None:
    x = real_numbers(q)
    x = x[np.isfinite(x)][None]
    quantized = T(x.shape, q.dtype, scale=q.scale, zero_point=q.zero_point, name="q")
    real = T(x.shape, "float32", name="r")
    to_stored = import_model(model([real, quantized], [Op("QUANTIZE", [0], [1])], [0], [1]), "file").graph
    to_real = import_model(model([quantized, real], [Op("DEQUANTIZE", [0], [1])], [0], [1]), "file").graph
    assert to_stored.quantizations == {"q": q} == to_real.quantizations
    stored = q.quantize(x)
    np.testing.assert_array_equal(to_stored(te.constant(x)).numpy(), stored)
    np.testing.assert_array_equal(to_real(te.constant(stored)).numpy(), q.dequantize(stored))
