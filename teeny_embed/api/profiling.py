"""`profile`: what a build costs on its target, measured on compiled code."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from teeny_embed.api.building import Build
from teeny_embed.api.running import call, expect_ok
from teeny_embed.api.samples import draw, generator
from teeny_embed.deploy import firmware, measure, stack, toolchain
from teeny_embed.deploy.qemu import QemuBoard
from teeny_embed.emit_c.interface import EntryPoint
from teeny_embed.errors import DataError

CYCLES_FOR = "cortex-m4f"
"""The core that `measure.m4_cycles` is an estimate for."""


@dataclass(frozen=True)
class _Counted:
    """Instructions by address of one entry point: a histogram per node, and the rest of the entry point."""

    elf: Path
    nodes: tuple[measure.Histogram, ...]
    rest: measure.Histogram
    calls: int

    def mean(self, *histograms: measure.Histogram) -> int:
        """Instructions of one call, the mean over all."""
        return round(sum(map(measure.instruction_total, histograms)) / self.calls)

    def total(self) -> int:
        return self.mean(*self.nodes, self.rest)

    def cycles(self) -> int:
        cycles = sum(measure.m4_cycles(self.elf, each) for each in (*self.nodes, self.rest))
        return round(cycles / self.calls)


def profile(build: Build, samples: int = 1, seed: int = 0) -> dict[str, Any]:
    """Measured costs, ready for JSON. Bytes are totals; what depends on the entry point is by its name.

    `instructions` are the mean of `samples` calls with random inputs, per node and in total (null on the
    host), `cycles_estimate` a rough estimate from them (null but for cortex-m4f), `stack_bytes` the worst
    case over all paths of calls. Raises DataError, ToolError, DeviceError.
    """
    if samples < 1:
        raise DataError(f"samples={samples} is no number of calls", hint="give 1 or more")
    rng = generator(seed)
    with tempfile.TemporaryDirectory(prefix="teeny_embed_") as folder:
        costs = _sizes(build, Path(folder) / "size")
        counted = _count(build, Path(folder) / "count", samples, rng) if build.target.board else {}
        return costs | _steps(build) | _dynamic(build, counted)


# ---- Sizes ------------------------------------------------------------------------------------------------


def _sizes(build: Build, folder: Path) -> dict[str, Any]:
    objects = _compile(build, folder / "code")
    prefix = measure.PREFIX if build.target.board else ""
    sections = measure.section_sizes(objects, prefix)
    routines = measure.undefined_symbols(objects, prefix)
    return {
        "name": build.program.name,
        "target": build.target.name,
        "compiler": build.target.compiler,
        "flags": [*toolchain.LANGUAGE_FLAGS, *build.target.flags, build.target.optimize],
        "arena_bytes": build.interface.arena_bytes,
        "arena_lower_bound_bytes": build.plan.lower_bound_bytes,
        "state_bytes": build.interface.state_bytes,
        "constant_bytes": sections.constant_bytes,
        "code_bytes": sections.code_bytes,
        "stack_bytes": _stacks(build, folder / "stack", routines),
        "runtime_symbols": list(routines),
    }


def _compile(build: Build, folder: Path, extra_flags: Sequence[str] = ()) -> list[Path]:
    """Objects of the model."""
    if build.target.board:
        toolchain.build_firmware(
            build.target, build.interface, build.directory, folder, extra_flags=extra_flags
        )
        return sorted(folder.glob("model/*.o"))
    folder.mkdir(parents=True)
    sources = [build.directory.resolve() / name for name in build.interface.sources]
    flags = [*toolchain.LANGUAGE_FLAGS, *build.target.flags, build.target.optimize, *extra_flags]
    toolchain.run(build.target.compiler, [*flags, "-c", *sources], cwd=folder)
    return sorted(folder.glob("*.o"))


def _stacks(build: Build, folder: Path, routines: Sequence[str]) -> dict[str, int]:
    """Worst case of each entry point. On the host the C library's routines are not counted."""
    # gcc gives equal functions one body, and says of one of the two names alone what stack it needs
    objects = _compile(build, folder, ("-fcallgraph-info=su", "-fno-ipa-icf"))
    graphs = [path.with_suffix(".ci") for path in objects]
    if build.target.board:
        known = stack.runtime_stack(routines, (build.target.compiler, *build.target.flags))
        known |= stack.assembly_stack(graphs, folder / "firmware.elf")
    else:
        known = dict.fromkeys(routines, 0)
    name = build.program.name
    return {
        entry.name: stack.worst_case_stack(graphs, f"{name}_{entry.name}", known)
        for entry in build.interface.entry_points
    }


# ---- Work -------------------------------------------------------------------------------------------------


def _steps(build: Build) -> dict[str, Any]:
    macs = {e.schedule.name: [step.macs for step in e.schedule.steps] for e in build.plan.entries}
    return {
        "macs": {name: sum(each) for name, each in macs.items()},
        "longest_node_macs": {name: max(each, default=0) for name, each in macs.items()},
    }


def _dynamic(build: Build, counted: Mapping[str, _Counted]) -> dict[str, Any]:
    if not counted:
        return {"instructions": None, "cycles_estimate": None}
    has_cycles = build.target.cpu == CYCLES_FOR
    return {
        "instructions": {
            entry.name: {"total": counted[entry.name].total(), "nodes": _nodes(entry, counted[entry.name])}
            for entry in build.interface.entry_points
        },
        "cycles_estimate": {name: each.cycles() for name, each in counted.items()} if has_cycles else None,
    }


def _nodes(entry: EntryPoint, counted: _Counted) -> list[dict[str, Any]]:
    """In the order in which they run; what an entry point does itself before a node counts with it."""
    return [
        {"node": name, "instructions": counted.mean(histogram)}
        for name, histogram in zip(entry.node_names, counted.nodes, strict=True)
    ]


def _count(build: Build, folder: Path, samples: int, rng: np.random.Generator) -> dict[str, _Counted]:
    """Runs each entry point `samples` times under the counting plugin."""
    elf = toolchain.build_firmware(build.target, build.interface, build.directory, folder, measure=True)
    out = folder / "counts"
    board = toolchain.board_of(build.target)
    arguments = measure.plugin_arguments(elf, out)
    with QemuBoard(elf, board, build.interface, extra_arguments=arguments) as runner:
        expect_ok(runner.reset(), "reset")
        for _ in range(samples):
            _call_each(build, runner, rng)
    segments = measure.read_counts(out)
    first = firmware.first_marks(build.interface)
    return {
        entry.name: _counted(elf, segments, first[entry.name], len(entry.node_names), samples)
        for entry in build.interface.entry_points
    }


def _call_each(build: Build, runner: QemuBoard, rng: np.random.Generator) -> None:
    for entry in build.interface.entry_points:
        call(runner, entry.name, draw(entry, build.program.entry_points[entry.name], rng, lr=0.01))


def _counted(
    elf: Path, segments: Mapping[int, measure.Histogram], first: int, node_count: int, calls: int
) -> _Counted:
    found = [segments.get(first + i, {}) for i in range(node_count + 1)]
    return _Counted(elf, tuple(found[:-1]), found[-1], calls)
