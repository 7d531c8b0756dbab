"""What benchmarks on this host share: generated C as a library, and two programs that take turns."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import teeny_embed as te
from teeny_embed.deploy import declarations
from teeny_embed.deploy.toolchain import build_host_library

FLAGS = ("-O3", "-march=native")  # and -ffp-contract=off, which every build gets
ALIGNMENT_BYTES = 64


@dataclass(frozen=True)
class Times:
    """Microseconds of one call: medians of the rounds, and the least."""

    ours_us: float
    theirs_us: float
    ratio: float
    """Ours to theirs: median of the rounds' ratios."""
    ours_least_us: float
    theirs_least_us: float


class Library:
    """A build as a shared library with a context that is ready for calls."""

    def __init__(self, build: te.Build, folder: Path) -> None:
        interface = build.interface
        sources = [build.directory / name for name in interface.sources]
        file = build_host_library(sources, folder / f"lib{interface.name}.so", flags=FLAGS)
        self.functions, self._name = ctypes.CDLL(str(file)), interface.name
        header = declarations.read(build.directory / f"{interface.name}.h")
        self._context = header.structure(f"{interface.name}_ctx_t")()
        self.context = ctypes.byref(self._context)
        self.state, self._arena = _aligned(interface.state_bytes), _aligned(interface.arena_bytes)
        memories = [self.state, self._arena] if interface.state_bytes else [self._arena]
        sized = [v for m in memories for v in (address(m), ctypes.c_size_t(m.size))]
        assert self.function("init")(self.context, *sized) == 0
        assert not interface.state_bytes or self.function("reset")(self.context) == 0

    def function(self, name: str) -> Any:
        return getattr(self.functions, f"{self._name}_{name}")


def _aligned(byte_count: int) -> Any:
    whole = np.zeros(byte_count + ALIGNMENT_BYTES, np.uint8)
    start = -whole.ctypes.data % ALIGNMENT_BYTES
    return whole[start : start + byte_count]


def address(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def microseconds(run: Callable[[int], None], first: int, count: int) -> float:
    """Mean of `count` calls, numbered from `first`."""
    started = time.perf_counter()
    for number in range(first, first + count):
        run(number)
    return (time.perf_counter() - started) / count * 1e6


def take_turns(ours: Callable[[int], None], theirs: Callable[[int], None], rounds: int, count: int) -> Times:
    """Rounds of `count` calls each, the first of a round alternating. Both get the number of the call."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds):
        order = ((ours, times[0]), (theirs, times[1]))
        for run, found in order if turn % 2 else order[::-1]:
            found.append(microseconds(run, turn * count, count))
    ratios = [a / b for a, b in zip(*times, strict=True)]
    medians = map(statistics.median, (*times, ratios))
    return Times(*medians, min(times[0]), min(times[1]))
