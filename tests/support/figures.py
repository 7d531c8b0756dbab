"""What training steps cost on emulated cores, on real digits: measured, and recorded in docs/figures.json.

Counts are means over the first steps of a training run: they depend a little on data, as zeros are skipped.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import teeny_embed as te
from support.data import Array, Digits
from support.nets import Case
from support.runners import CORES
from teeny_embed.api.running import call, expect_ok
from teeny_embed.deploy import firmware, measure, toolchain
from teeny_embed.deploy.qemu import QemuBoard
from teeny_embed.target import Figure

REPOSITORY = Path(__file__).resolve().parents[2]
RECORD = REPOSITORY / "docs" / "figures.json"

COMPILER = "arm-none-eabi-gcc 12.2.1"
"""The compiler whose counts are recorded."""

M4F = "cortex-m4f"
LEVELS = ("-O2", "-O3", "-Os")
COUNTED_STEPS = 8
_TIMEOUT_S = 300.0

MLP, MLP_32 = Case("mlp", "momentum", 1), Case("mlp", "momentum", 32)
LENET = Case("lenet5", "sgd", 1)
LENET_OTHERS = tuple(Case("lenet5", *at) for at in (("momentum", 1), ("adam", 1), ("sgd", 8), ("sgd", 32)))

LEVEL_CASES = (MLP, LENET)
"""What decides on the optimisation level of a core, both alike."""
CASES = (MLP, MLP_32, LENET)
"""Measured on every core; LENET_OTHERS on the Cortex-M4F only."""


# ---- Data ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SmallDigits:
    """scikit-learn's 8x8 digits, in the demo's order."""

    images: Mapping[int, Array]
    labels: Array


@cache
def small_digits() -> SmallDigits:
    """Raises DataError if scikit-learn is not installed."""
    from teeny_embed.cli.demo import load_digits

    digits = load_digits()
    return SmallDigits({8: digits.images}, digits.labels)


@cache
def mnist() -> Digits:
    """For programs; tests have a fixture."""
    shared = Path(os.environ.get("TEENY_EMBED_SHARED") or REPOSITORY.parent / "shared")
    return Digits(shared / "datasets" / "mnist_10k_2k.npz")


def digits_for(case: Case) -> Any:
    """The MLP has 64 inputs; LeNet-5 sees MNIST."""
    return small_digits() if case.net == "mlp" else mnist()


# ---- Measuring ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Of one training step; bytes are those of the whole program, which can infer, too."""

    optimize: str
    instructions: int
    m4_cycles: int | None
    arena_bytes: int
    state_bytes: int
    """Parameters and moments."""
    code_bytes: int
    stack_bytes: int
    """Worst case over all paths of calls."""
    painted_stack_bytes: int
    """What the board has used, the frame of its caller included."""


@dataclass(frozen=True)
class Counts:
    """Means of a step."""

    instructions: int
    m4_cycles: int | None
    painted_stack_bytes: int


def found_compiler() -> str:
    """Name and version."""
    name = COMPILER.split()[0]
    return f"{name} {toolchain.run(name, ['-dumpfullversion']).strip()}"


def build(case: Case, core: str, folder: Path) -> te.Build:
    return te.build(case.program(case.net), core, folder / f"{case}-{core}")


def count(build: te.Build, case: Case, optimize: str | None = None) -> Counts:
    """Trains on the board under the counting plugin, compiled at `optimize` or as the target says."""
    board = toolchain.board_of(build.target)
    with tempfile.TemporaryDirectory(prefix="teeny_embed_") as folder:
        elf = toolchain.build_firmware(
            build.target, build.interface, build.directory, Path(folder), optimize=optimize, measure=True
        )
        out = Path(folder) / "counts"
        plugin = measure.plugin_arguments(elf, out)
        with QemuBoard(elf, board, build.interface, timeout_s=_TIMEOUT_S, extra_arguments=plugin) as runner:
            expect_ok(runner.reset(), "reset")
            for step in range(COUNTED_STEPS):
                call(runner, "train_step", case.feed(digits_for(case), step))
            painted = runner.stack_bytes()
        histograms = list(_histograms(build, out))
        instructions = sum(map(measure.instruction_total, histograms))
        cycles = sum(measure.m4_cycles(elf, each) for each in histograms)
    has_cycles = build.target.cpu == M4F
    return Counts(_mean(instructions), _mean(cycles) if has_cycles else None, painted)


def _mean(total: int) -> int:
    return round(total / COUNTED_STEPS)


def _histograms(build: te.Build, out: Path) -> Iterator[measure.Histogram]:
    """Of each node of `train_step`, and of what it does itself."""
    segments = measure.read_counts(out)
    first = firmware.first_marks(build.interface)["train_step"]
    names = next(e.node_names for e in build.interface.entry_points if e.name == "train_step")
    return (segments.get(first + i, {}) for i in range(len(names) + 1))


def cost(case: Case, core: str, folder: Path) -> Cost:
    """All that is recorded of a case on a core, compiled as the target says."""
    built = build(case, core, folder)
    sizes, counts = te.profile(built), count(built, case)
    return Cost(
        optimize=built.target.optimize,
        instructions=counts.instructions,
        m4_cycles=counts.m4_cycles,
        arena_bytes=sizes["arena_bytes"],
        state_bytes=sizes["state_bytes"],
        code_bytes=sizes["code_bytes"],
        stack_bytes=sizes["stack_bytes"]["train_step"],
        painted_stack_bytes=counts.painted_stack_bytes,
    )


# ---- Optimisation levels ------------------------------------------------------------------------------


def level_figures(core: str, folder: Path) -> tuple[Figure, ...]:
    """Each of LEVEL_CASES at each of LEVELS."""
    return tuple(
        Figure(str(case), level, counts.instructions, counts.m4_cycles)
        for case in LEVEL_CASES
        for built in (build(case, core, folder),)
        for level in LEVELS
        for counts in (count(built, case, level),)
    )


def best_level(figures: tuple[Figure, ...]) -> str:
    """Fewest cycles, or instructions where cycles are not estimated: the least product over the steps."""

    def measured(level: str) -> int:
        at_level = [f for f in figures if f.optimize == level]
        return math.prod(f.instructions if f.m4_cycles is None else f.m4_cycles for f in at_level)

    return min(LEVELS, key=measured)


_FIGURES_COMMENT = "# One training step at each level, which `optimize` was chosen by: docs/figures.md"


def write_levels(core: str, figures: tuple[Figure, ...]) -> None:
    """Sets `optimize` in the core's TOML file, and its figures, which are the end of the file."""
    path = REPOSITORY / "targets" / "cpus" / f"{core}.toml"
    head = path.read_text(encoding="utf-8").split(f"\n{_FIGURES_COMMENT}")[0].rstrip()
    head = re.sub(r"^optimize = .*$", f'optimize = "{best_level(figures)}"', head, flags=re.M)
    lines = [head, "", _FIGURES_COMMENT, f'figures_compiler = "{COMPILER}"', "figures = ["]
    lines += [f"    {_toml(figure)}," for figure in figures]
    path.write_text("\n".join([*lines, "]", ""]), encoding="utf-8")


def _toml(figure: Figure) -> str:
    cycles = "" if figure.m4_cycles is None else f", m4_cycles = {figure.m4_cycles:_}"
    return (
        f'{{ step = "{figure.step}", optimize = "{figure.optimize}", '
        f"instructions = {figure.instructions:_}{cycles} }}"
    )


# ---- The record ---------------------------------------------------------------------------------------

Record = dict[str, dict[str, Cost]]
"""Core to (case to cost)."""


def cases_of(core: str) -> tuple[Case, ...]:
    return (*CASES, *LENET_OTHERS) if core == M4F else CASES


def measure_core(core: str, folder: Path) -> dict[str, Cost]:
    return {str(case): cost(case, core, folder) for case in cases_of(core)}


def read_record() -> Record:
    """As committed."""
    costs = json.loads(RECORD.read_text(encoding="utf-8"))["costs"]
    return {core: {case: Cost(**each) for case, each in rows.items()} for core, rows in costs.items()}


def as_json(record: Record) -> str:
    costs = {core: {case: asdict(each) for case, each in rows.items()} for core, rows in record.items()}
    return json.dumps({"compiler": COMPILER, "costs": costs}, indent=1) + "\n"


def update(cores: Sequence[str] = CORES) -> Record:
    """Measures cores anew; writes their levels into the targets, and docs/figures.json."""
    if (found := found_compiler()) != COMPILER:
        raise SystemExit(f"the figures are those of {COMPILER}, this is {found}")
    record = read_record()
    with tempfile.TemporaryDirectory(prefix="teeny_embed_") as folder:
        for core in cores:
            write_levels(core, level_figures(core, Path(folder)))
            record[core] = measure_core(core, Path(folder))
    RECORD.write_text(as_json(record), encoding="utf-8")
    return record
