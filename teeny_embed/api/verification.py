"""`verify`: compiled C and NumPy run side by side on the same inputs, every bit compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from teeny_embed.api.blame import first_differing_node
from teeny_embed.api.building import Build
from teeny_embed.api.running import differing_bits, open_runner
from teeny_embed.api.samples import Arrays, draw, generator, matching, samples
from teeny_embed.deploy.runner import Array, Runner
from teeny_embed.deploy.status import OK
from teeny_embed.emit_c.interface import EntryPoint
from teeny_embed.errors import DataError, VerificationError

RANDOM_STEPS = 20
"""Calls of each entry point with random inputs, if not given."""

FAST_TOLERANCE = 1e-4
"""How far a tensor of a build with float="fast" may be from NumPy's, relative to its largest number."""


@dataclass(frozen=True)
class Difference:
    """The first tensor that differs: an output, a state tensor, or the status of a call."""

    entry: str
    call: int
    """Number of the call of this entry point, from 0."""
    tensor: str
    bits: int
    index: tuple[int, ...]
    """Of the first element that differs."""
    expected: str
    found: str
    node: str
    """The first C function that computes other bits; empty if it is not one of the program's nodes."""

    def __str__(self) -> str:
        at = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        what = f"{self.tensor}{at} is {self.found}, NumPy says {self.expected}; {self.bits} bits differ"
        node = f"\nfirst differing node: {self.node}" if self.node else ""
        return f"{self.entry}, call {self.call}: {what}{node}"


@dataclass(frozen=True)
class VerificationReport:
    """What was compared; `difference` is the first one found, at which the run ends."""

    name: str
    target: str
    on: str
    seed: int
    calls: Mapping[str, int]
    """Calls by entry point."""
    refused: int
    """Calls that NumPy and C refuse alike, such as those with a loss that is not finite."""
    values: int
    """Elements compared, of outputs and state."""
    difference: Difference | None = None
    largest_error: Mapping[str, float] = field(default_factory=dict)
    """By output: the largest |difference| of NumPy's outputs from those in the vectors."""
    tolerance: float = 0.0
    """What `largest_error` may be."""
    nearness: float = 0.0
    """What numbers may be off by, relative to the largest of their tensor; 0 where bits are compared."""

    @property
    def ok(self) -> bool:
        return self.difference is None and not any(self._excess())

    def _equality(self) -> str:
        if self.nearness:
            return f"none off by more than {self.nearness:g} of the largest beside it"
        return "0 differing bits"

    def _excess(self) -> Iterator[str]:
        """Outputs that are farther from the vectors than the tolerance; NaN is."""
        return (name for name, error in self.largest_error.items() if not error <= self.tolerance)

    def __str__(self) -> str:
        calls = ", ".join(f"{count} x {name}" for name, count in self.calls.items())
        lines = [f"{self.name} for {self.target} on {self.on}: {calls}; {self.values:,} values compared"]
        lines[0] += f", {self.refused} calls refused" if self.refused else ""
        lines[0] += "" if self.difference else f", {self._equality()}"
        lines += [str(self.difference)] if self.difference else []
        lines += [f"{name}: at most {e:.3g} from the vectors" for name, e in self.largest_error.items()]
        lines += [f"{name}: farther from the vectors than {self.tolerance:g}" for name in self._excess()]
        return "\n".join(lines)


def verify(build: Build, on: str = "host", **options: Any) -> VerificationReport:
    """As `compare`; raises VerificationError that names the first differing node if one bit differs."""
    report = compare(build, on, **options)
    if not report.ok:
        raise VerificationError(str(report))
    return report


def compare(
    build: Build,
    on: str = "host",
    *,
    steps: int | None = None,
    lr: float = 0.01,
    vectors: Arrays | None = None,
    tolerance: float = 0.0,
    seed: int = 0,
    compiler: str | None = None,
    flags: Sequence[str] | None = None,
) -> VerificationReport:
    """Runs all entry points in turn, in NumPy and on "host" or "qemu", from the initial state.

    Compared are each status, each output, and after a call that may change it the whole state. Inputs
    are random (from `seed`), 20 times, or `vectors` (see `samples.matching`), all of them; or `steps` of
    either. Outputs in the vectors may be off by `tolerance`. `compiler` and `flags` are those of
    `open_runner`. Raises DataError, ToolError, DeviceError.
    """
    if not (np.isfinite(lr) and lr >= 0):
        raise DataError(f"a learning rate of {lr:g} is none", hint="give a finite number, at least 0")
    if not tolerance >= 0:
        raise DataError(f"a tolerance of {tolerance:g} is none", hint="give a number, at least 0")
    if steps is not None and steps < 1:
        raise DataError(f"{steps} steps compare nothing", hint="give at least 1")
    if vectors is None:
        feeds = _drawn(build, RANDOM_STEPS if steps is None else steps, lr, generator(seed))
    else:
        feeds = _given(build, vectors, steps, lr)
    nearness = FAST_TOLERANCE if build.float == "fast" else 0.0
    with (
        open_runner(build, on, compiler, flags) as device,
        open_runner(build, "numpy") as reference,
    ):
        run = _Comparison(device, reference, nearness)
        for entry, inputs, expected in feeds:
            before = reference.read_state()
            difference = run.call(entry, inputs, expected)
            if difference is not None:
                node = first_differing_node(
                    build, entry.name, inputs, before, difference.tensor, on, compiler, flags
                )
                run.difference = replace(difference, node=node)
                break
    names = build.program.name, build.target.name, on
    counts = run.counts, run.refused, run.values
    return VerificationReport(*names, seed, *counts, run.difference, run.errors, tolerance, nearness)


Feed = tuple[EntryPoint, dict[str, Array], dict[str, Array]]
"""An entry point, its inputs, and outputs that are expected, if known."""


def _drawn(build: Build, steps: int, lr: float, rng: np.random.Generator) -> Iterator[Feed]:
    for _ in range(steps):
        for entry in build.interface.entry_points:
            yield entry, draw(entry, build.program.entry_points[entry.name], rng, lr), {}


def _given(build: Build, vectors: Arrays, steps: int | None, lr: float) -> Iterator[Feed]:
    """The entry points whose inputs the vectors hold."""
    for entry in matching(build.interface, build.program.entry_points, vectors):
        calls = samples(entry, build.program.entry_points[entry.name], vectors, lr)
        for inputs, expected in islice(calls, steps):
            yield entry, inputs, expected


class _Comparison:
    """Two runners that get the same calls, and what was found so far."""

    def __init__(self, device: Runner, reference: Runner, nearness: float = 0.0) -> None:
        self.device, self.reference, self.nearness = device, reference, nearness
        self.counts: dict[str, int] = {}
        self.values = self.refused = 0
        self.errors: dict[str, float] = {}
        self.difference: Difference | None = None

    def call(self, entry: EntryPoint, inputs: dict[str, Array], given: Arrays) -> Difference | None:
        """Calls both; the first difference in status, outputs and state."""
        number = self.counts.get(entry.name, 0)
        self.counts[entry.name] = number + 1
        status, outputs = self.reference.call(entry.name, inputs)
        found_status, found = self.device.call(entry.name, inputs)
        expected = {"status": np.asarray(status), **outputs, **self.reference.read_state()}
        actual = {"status": np.asarray(found_status), **found, **self.device.read_state()}
        self.refused += status != OK
        for name, values in given.items():
            error = np.maximum(self.errors.get(name, 0.0), largest_error(outputs[name], values))
            self.errors[name] = float(error)
        for name, value in expected.items():
            self.values += np.size(value)
            if is_near(value, actual[name], self.nearness):
                continue
            if bits := differing_bits(value, actual[name]):
                return _difference(entry.name, number, name, bits, value, actual[name])
        return None


def _difference(entry: str, call: int, tensor: str, bits: int, expected: Any, found: Any) -> Difference:
    pairs = zip(np.ravel(expected), np.ravel(found), strict=True)
    flat = next(i for i, (a, b) in enumerate(pairs) if differing_bits(a, b))
    index = tuple(int(i) for i in np.unravel_index(flat, np.shape(expected)))
    values = str(np.ravel(expected)[flat]), str(np.ravel(found)[flat])
    return Difference(entry, call, tensor, bits, index, *values, node="")


def is_near(expected: Array, found: Array, nearness: float) -> bool:
    """Whether no float is off by more than `nearness` times the largest; False where nothing may be off."""
    if not nearness or np.asarray(expected).dtype.kind != "f":
        return False
    size = float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected)))
    return largest_error(expected, found) <= nearness * size


def largest_error(a: Array, b: Array) -> float:
    """The largest |a - b|, 0 where both are NaN or the same infinity; NaN where one is NaN."""
    with np.errstate(invalid="ignore"):
        error = np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64))
    same = (a == b) | ((a != a) & (b != b))
    return float(np.max(np.where(same, 0.0, error), initial=0.0))
