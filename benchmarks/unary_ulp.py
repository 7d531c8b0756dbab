"""Measure the worst error of every scalar function of one float over all 2^32 arguments.

    python benchmarks/unary_ulp.py [--stride N] [--write docs/unary_functions.md] [--compiler gcc] [NAME ...]

An ulp is the distance between neighbours at the correctly rounded result (2^-149 for subnormals). The
references are binary64 functions of NumPy and SciPy, whose own error is below 1e-8 of that. A NaN, an
infinity or a sign of zero that differs from the rounded reference counts as an infinite error. The functions
run as compiled C, which is checked against NumPy on a sample; `--compiler ""` runs NumPy alone.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import teeny_embed.graph.functions  # noqa: F401  registers them
from teeny_embed.emit_c.scalar_printer import function_definition
from teeny_embed.graph.scalar import FUNCTIONS, ScalarFunction, evaluate, functions_used, walk

CHUNK = 1 << 15  # a chunk and its temporaries stay in the cache
ALL = 1 << 32
Evaluate = Callable[[Any], Any]


def _erf(x: Any) -> Any:
    from scipy.special import erf  # type: ignore[import-untyped]

    return erf(x)


REFERENCES: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x), "tanh": np.tanh, "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "erf": _erf, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
}  # fmt: skip


@dataclass
class Worst:
    """The greatest error so far, and where."""

    ulp: float = 0.0
    x: float = 0.0


def run(function: ScalarFunction, *arguments: Any) -> Any:
    """`function` of NumPy arrays."""
    return evaluate(function.body, dict(zip(function.parameters, arguments, strict=True)))


C_FILE = """#include <stdint.h>
#include <string.h>
#define TE_SCALAR
#define TE_INFINITY te_from_bits(0x7f800000u)
#define TE_NAN te_from_bits(0x7fc00000u)
static uint32_t te_bits(float x) { uint32_t y; memcpy(&y, &x, 4); return y; }
static float te_from_bits(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
%s
void run(const float *x, float *y, long count) { for (long i = 0; i < count; ++i) y[i] = te_%s(x[i]); }
"""


def compiled(function: ScalarFunction, compiler: str, folder: Path) -> Evaluate:
    """`function` as C, for contiguous arrays."""
    definitions = [function_definition("te", f) for f in (*functions_used([function.body]), function)]
    source, library = folder / f"{function.name}.c", folder / f"{function.name}.so"
    source.write_text(C_FILE % ("\n".join(definitions), function.name), encoding="utf-8")
    flags = ["-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", str(library), str(source)], check=True)
    entry = ctypes.CDLL(str(library)).run

    def evaluate_in_c(x: Any) -> Any:
        y = np.empty_like(x)
        entry(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_long(x.size))
        return y

    sample = np.arange(0, ALL, 65521).astype(np.uint32).view(np.float32)
    same = evaluate_in_c(sample).view(np.uint32) == run(function, sample).view(np.uint32)
    if not np.all(same | np.isnan(run(function, sample))):
        raise SystemExit(f"{function.name}: C and NumPy differ")
    return evaluate_in_c


def error_in_ulp(value: Any, exact: Any) -> Any:
    """|value - exact| for binary32 `value` and binary64 `exact`."""
    rounded = exact.astype(np.float32)
    word, exact_word = value.view(np.uint32), rounded.view(np.uint32)
    exponent = np.maximum((exact_word >> 23) & 0xFF, 1).astype(np.int32)
    error = np.ldexp(np.abs(value.astype(np.float64) - exact), 150 - exponent)
    same_kind = np.isfinite(value) & np.isfinite(rounded) & ((word ^ exact_word) >> 31 == 0)
    equal = (word == exact_word) | (np.isnan(value) & np.isnan(rounded))
    return np.where(same_kind, error, np.where(equal, 0.0, np.inf))


def measure(name: str, stride: int = 1, function: Evaluate | None = None) -> Worst:
    """The worst error over the arguments whose bits are multiples of `stride`."""
    function = function or partial(run, FUNCTIONS[name])
    worst = Worst()
    steps = np.arange(0, CHUNK, dtype=np.uint64) * np.uint64(stride)
    with np.errstate(all="ignore"):
        for start in range(0, ALL, CHUNK * stride):
            words = start + steps
            x = words[words < ALL].astype(np.uint32).view(np.float32)
            value, exact = function(x), REFERENCES[name](x.astype(np.float64))
            # Most results are the rounded ones; only the others are worth an error computation.
            differs = np.flatnonzero(value.view(np.uint32) != exact.astype(np.float32).view(np.uint32))
            if differs.size:
                errors = error_in_ulp(value[differs], exact[differs])
                k = int(errors.argmax())
                if errors[k] > worst.ulp:
                    worst = Worst(float(errors[k]), float(x[differs[k]]))
    return worst


def operations(function: ScalarFunction) -> tuple[int, int, int]:
    """Float operations but divisions, float divisions, integer operations; those of callees included."""
    floats = divisions = integers = 0
    for body in [f.body for f in functions_used([function.body])] + [function.body]:
        for node in walk([body]):
            if not node.args or node.op in ("call", "bits", "from_bits", "select"):
                continue
            if node.op == "cast" or node.args[0].dtype != "float32":
                integers += 1
            elif node.op == "divide":
                divisions += 1
            else:
                floats += 1
    return floats, divisions, integers


HEADER = """# Scalar functions of one float

Worst error over {count} binary32 arguments, measured by `benchmarks/unary_ulp.py`, in units in the
last place of the correctly rounded result. NaN, infinities, subnormals and the signs of zeros are included.
Operations count every path of an expression and of the functions it calls; C runs one path.

| function | meaning | worst error (ulp) | at x | float operations | divisions | integer operations |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
"""


def table_row(name: str, worst: Worst) -> str:
    function = FUNCTIONS[name]
    counts = " | ".join(map(str, operations(function)))
    error = f"{worst.ulp:.3f} | {np.float32(worst.x)!s}" if worst.ulp else "correctly rounded | "
    return f"| {name} | {function.summary} | {error} | {counts} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="functions to measure (all)")
    parser.add_argument("--stride", type=int, default=1, help="measure every N-th argument")
    parser.add_argument("--write", type=Path, help="write the table to this file")
    parser.add_argument("--compiler", default="gcc", help="C compiler; empty: NumPy evaluates, much slower")
    options = parser.parse_args()
    count = "all 2^32" if options.stride == 1 else f"every {options.stride}th of the 2^32"
    text = HEADER.format(count=count)
    print(text, end="")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or REFERENCES:
            started = time.monotonic()
            function = compiled(FUNCTIONS[name], options.compiler, Path(folder)) if options.compiler else None
            row = table_row(name, measure(name, options.stride, function))
            text += row
            print(row.rstrip(), f" {time.monotonic() - started:.0f} s", flush=True)
    if options.write:
        options.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
