"""Time inference of the shared float models here: generated C and LiteRT, side by side, one thread.

    python benchmarks/host_inference.py [--rounds N] [--json] [MODEL ...]

Both read the same `.tflite` files (TEENY_EMBED_SHARED, else ../shared, has them) and see the same inputs;
their outputs must agree. LiteRT runs with XNNPACK. The two take turns, some calls each; a round's time is its
mean, and the median over rounds is what counts.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

import teeny_embed as te
from teeny_embed.deploy import declarations
from teeny_embed.deploy.toolchain import build_host_library

REPOSITORY = Path(__file__).resolve().parents[1]
FLAGS = ("-O3", "-march=native")  # and -ffp-contract=off, which every build gets
WANTED = {"ad_autoencoder": 1.0, "ic_resnet8": 3.0, "vww_mobilenetv1": 3.0}
"""Greatest wanted ratio of our time to LiteRT's."""
ALIGNMENT_BYTES = 64
TURN_S = 0.02
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Times:
    """Microseconds of an inference: medians of the rounds, and the least."""

    model: str
    ours_us: float
    litert_us: float
    ratio: float
    """Ours to LiteRT's: median of the rounds' ratios."""
    ours_least_us: float
    litert_least_us: float


class Compiled:
    """Generated C, called through ctypes with arguments prepared beforehand."""

    def __init__(self, model: Path, name: str, x: Any, folder: Path) -> None:
        build = te.build(te.Program(name, infer=te.load(model)), "host", folder / name)
        sources = [build.directory / source for source in build.interface.sources]
        library = ctypes.CDLL(str(build_host_library(sources, folder / f"lib{name}.so", flags=FLAGS)))
        self._context = declarations.read(build.directory / f"{name}.h").structure(f"{name}_ctx_t")()
        self._arena = _aligned(build.interface.arena_bytes)
        context = ctypes.byref(self._context)
        initialize = getattr(library, f"{name}_init")
        assert initialize(context, _address(self._arena), ctypes.c_size_t(self._arena.size)) == 0
        (_, output) = build.interface.entry_points[0].arguments
        self.y, self._x = np.zeros(output.shape, np.float32), x
        self._infer = getattr(library, f"{name}_infer")
        self._arguments = (context, _address(self._x), _address(self.y))

    def __call__(self) -> None:
        self._infer(*self._arguments)


class LiteRT:
    """The interpreter with XNNPACK; its input is written once."""

    def __init__(self, model: Path, x: Any) -> None:
        self._interpreter = Interpreter(model_path=str(model), num_threads=1)
        self._interpreter.allocate_tensors()
        self._interpreter.set_tensor(self._interpreter.get_input_details()[0]["index"], x)

    @property
    def y(self) -> Any:
        return self._interpreter.get_tensor(self._interpreter.get_output_details()[0]["index"])

    def __call__(self) -> None:
        self._interpreter.invoke()


def _aligned(byte_count: int) -> Any:
    whole = np.zeros(byte_count + ALIGNMENT_BYTES, np.uint8)
    start = -whole.ctypes.data % ALIGNMENT_BYTES
    return whole[start : start + byte_count]


def _address(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def microseconds(infer: Callable[[], None], count: int) -> float:
    """Mean of `count` calls."""
    started = time.perf_counter()
    for _ in range(count):
        infer()
    return (time.perf_counter() - started) / count * 1e6


def compare(name: str, rounds: int, folder: Path) -> Times:
    """Turn by turn, the first of a round alternating."""
    shared = Path(os.environ.get("TEENY_EMBED_SHARED") or REPOSITORY.parent / "shared")
    model = shared / "models" / "mlperf_tiny" / f"{name}_float.tflite"
    shape = Interpreter(model_path=str(model)).get_input_details()[0]["shape"]
    x = np.random.default_rng(0).random(shape, np.float32)
    ours, theirs = Compiled(model, name, x, folder), LiteRT(model, x)
    ours()
    theirs()
    if not np.max(np.abs(ours.y - theirs.y)) <= TOLERANCE * np.max(np.abs(theirs.y)):
        raise SystemExit(f"{name}: outputs {ours.y} and {theirs.y}")
    count = max(1, round(TURN_S * 1e6 / microseconds(theirs, 20)))
    times: dict[Any, list[float]] = {ours: [], theirs: []}
    for turn in range(rounds):
        for infer in (ours, theirs) if turn % 2 else (theirs, ours):
            times[infer].append(microseconds(infer, count))
    ratios = [a / b for a, b in zip(times[ours], times[theirs], strict=True)]
    return Times(
        name, statistics.median(times[ours]), statistics.median(times[theirs]), statistics.median(ratios),
        min(times[ours]), min(times[theirs]),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(WANTED), metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = [compare(name, options.rounds, Path(folder)) for name in options.models]
    if options.json:
        print(json.dumps([asdict(t) for t in found], indent=1))
        return
    for t in found:
        wanted = WANTED.get(t.model, max(WANTED.values()))
        print(f"{t.model:<16} {t.ours_us:8.1f} us, LiteRT {t.litert_us:8.1f} us", end="")
        print(f", least {t.ours_least_us:.1f} and {t.litert_least_us:.1f} us", end="")
        print(f", ratio {t.ratio:.2f} (wanted: at most {wanted:.1f})")


if __name__ == "__main__":
    main()
