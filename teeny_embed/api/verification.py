"""`verify`: compiled C and NumPy run side by side on the same inputs, every bit compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from teeny_embed.api.blame import first_differing_node
from teeny_embed.api.building import Build
from teeny_embed.api.running import differing_bits, expect_ok, open_runner
from teeny_embed.api.samples import Arrays, draw, inputs_of, rates, select
from teeny_embed.deploy.runner import Array, Runner
from teeny_embed.emit_c.interface import EntryPoint
from teeny_embed.errors import DataError, VerificationError


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
        text = f"{self.entry}, call {self.call}: {self.tensor}{at} is {self.found}, NumPy says {self.expected}"
        return text + f"; {self.bits} bits differ" + (f"; first differing node: {self.node}" if self.node else "")


@dataclass(frozen=True)
class VerificationReport:
    """What was compared; `difference` is the first one found, at which the run ends."""

    name: str
    target: str
    on: str
    seed: int
    calls: Mapping[str, int]
    """Calls by entry point."""
    values: int
    """Elements compared, of outputs and state."""
    difference: Difference | None = None
    largest_error: Mapping[str, float] = field(default_factory=dict)
    """By output: the largest |difference| from the outputs that the vectors hold."""

    @property
    def ok(self) -> bool:
        return self.difference is None

    def __str__(self) -> str:
        calls = ", ".join(f"{count} x {name}" for name, count in self.calls.items())
        head = f"{self.name} for {self.target} on {self.on}: {calls}; {self.values:,} values compared"
        errors = "".join(f"\n{name}: at most {e:.3g} from the vectors" for name, e in self.largest_error.items())
        return head + (", 0 differing bits" if self.ok else f"\n{self.difference}") + errors


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
    steps: int = 20,
    lr: float = 0.01,
    vectors: Arrays | None = None,
    tolerance: float = 0.0,
    seed: int = 0,
    compiler: str | None = None,
    flags: Sequence[str] | None = None,
) -> VerificationReport:
    """Runs all entry points in turn, `steps` times, in NumPy and on "host" or "qemu", from the initial state.

    Compared are each status, each output, and after a call that may change it the whole state. Inputs
    are random (from `seed`), or `vectors` (see `samples.select`), as many as there are. Outputs in the
    vectors may be off by `tolerance`. `compiler` and `flags` are those of `open_runner`.
    """
    feeds = _drawn(build, steps, lr, seed) if vectors is None else _given(build, vectors, lr)
    report = VerificationReport(build.program.name, build.target.name, on, seed, {}, 0)
    with (
        open_runner(build, on, compiler, flags) as device,
        open_runner(build, "numpy") as reference,
    ):
        run = _Comparison(build, device, reference, tolerance)
        for entry, inputs, expected in feeds:
            before = reference.read_state()
            difference = run.call(entry, inputs, expected)
            if difference is not None:
                if difference.tensor not in expected or not run.is_beyond:
                    node = first_differing_node(
                        build, on, entry.name, inputs, before, difference.tensor, compiler, flags
                    )
                    difference = replace(difference, node=node)
                report = replace(report, difference=difference)
                break
    if not run.counts:
        raise DataError("there is nothing to compare", hint="give at least one step or sample")
    return replace(report, calls=run.counts, values=run.values, largest_error=run.largest_error)
