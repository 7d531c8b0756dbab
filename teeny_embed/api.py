"""What a user calls: a `Program` of entry points, `build`, `verify`."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from teeny_embed import target as targets
from teeny_embed.emit_c.interface import Interface
from teeny_embed.emit_c.module import Module, build_module
from teeny_embed.emit_c.names import identifier
from teeny_embed.emit_c.render import VERSION, Identity, render
from teeny_embed.errors import DataError, GraphError
from teeny_embed.graph.canonicalize import canonicalize
from teeny_embed.graph.fuse import fuse
from teeny_embed.graph.lower import VariableBuffers, lower
from teeny_embed.graph.node import Graph, Variable, print_graph
from teeny_embed.graph.node import verify as verify_graph
from teeny_embed.kernels.choose import choose
from teeny_embed.planner.plan import Plan, plan
from teeny_embed.planner.report import memory_map
from teeny_embed.target import Target


class Program:
    """Entry points that share parameters, state and one arena: `Program("digits", infer=..., train_step=...)`."""

    def __init__(self, name: str, **entry_points: Graph) -> None:
        if identifier(name) != name or name != name.lower():
            raise GraphError(f"program name {name!r} is no lower-case C identifier", hint=f"try {identifier(name.lower())!r}")
        if not entry_points:
            raise GraphError(f"program {name} has no entry points", hint="Program(name, infer=te.trace(net, x))")
        reserved = {"init", "reset", "save", "load", "check", "selftest"} & set(entry_points)
        if reserved:
            raise GraphError(f"entry point {min(reserved)!r} is a name that every module uses itself")
        self.name = name
        self.entry_points: dict[str, Graph] = {}
        self.changes: tuple[str, ...] = ()
        for entry, graph in entry_points.items():
            reference, changes = canonicalize(verify_graph(graph))
            self.entry_points[entry] = reference
            self.changes += changes

    def variables(self) -> list[Variable]:
        """Variables of all entry points, in order of first use."""
        return list(dict.fromkeys(v for g in self.entry_points.values() for v in g.variables()))

    def text(self) -> str:
        """The reference graphs, printed."""
        return "\n".join(f"{n}:\n{print_graph(g)}" for n, g in self.entry_points.items())


@dataclass(frozen=True, eq=False)
class Build:
    """An emitted program. `directory` holds the C files and `manifest.json`."""

    program: Program
    target: Target
    plan: Plan
    module: Module
    directory: Path

    @property
    def interface(self) -> Interface:
        return self.module.interface

    def report(self) -> str:
        """Sizes, and for each entry point the map of the arena."""
        m = self.module
        lines = [
            f"{m.name} for {self.target.name}: arena {self.interface.arena_bytes:,} B (lower bound "
            f"{self.plan.lower_bound_bytes:,} B), state {self.interface.state_bytes:,} B, constants {m.constant_bytes:,} B"
        ]
        for e in self.plan.entries:
            lines += [f"\n{e.schedule.name}", memory_map(e.problem, e.placement)]
        return "\n".join(lines)


def build(program: Program, target: str = "host", out: str | Path | None = None) -> Build:
    """Emits C for `target` (a CPU or board name) into the directory `out` (`build/NAME` if not given).

    Files are written only after everything succeeded; an existing directory is replaced file by file.
    Raises TargetError, PlanError (the model is too large for the target's memories), DataError.
    """
    found = targets.load(target)
    _check_finite(program)
    variables: VariableBuffers = {}
    schedules = [fuse(lower(g, n, variables)) for n, g in program.entry_points.items()]
    planned = plan(schedules)
    module = build_module(program.name, planned, lambda step: choose(step, found))
    identity = _identity(program, found)
    files = render(module, identity)
    files["manifest.json"] = _manifest(program, found, planned, module, identity)
    directory = Path(out) if out is not None else Path("build") / program.name
    _write(directory, files)
    return Build(program, found, planned, module, directory)


def _check_finite(program: Program) -> None:
    for variable in program.variables():
        if not np.isfinite(variable.initial).all():
            raise DataError(
                f"parameter {variable.name} holds NaN or infinity", hint="train again, or load finite values"
            )


def _identity(program: Program, target: Target) -> Identity:
    weights = hashlib.sha256()
    for variable in program.variables():
        weights.update(variable.name.encode() + variable.initial.tobytes())
    graph = hashlib.sha256(program.text().encode()).hexdigest()
    entries = ", ".join(program.entry_points)
    return Identity(graph[:16], weights.hexdigest()[:16], target.name, f"entry points {entries}")


def _manifest(program: Program, target: Target, planned: Plan, module: Module, identity: Identity) -> str:
    """Everything that identifies and measures a build. No date, user or path: equal input, equal bytes."""
    from dataclasses import asdict

    content: dict[str, Any] = {
        "teeny_embed": VERSION,
        "abi_version": 1,
        "graph_hash": identity.graph_hash,
        "weights_hash": identity.weights_hash,
        "target": target.name,
        "float": "exact",
        "canonicalizations": list(program.changes),
        "interface": asdict(module.interface),
        "arena_bytes": planned.arena_bytes,
        "arena_lower_bound_bytes": planned.lower_bound_bytes,
        "state_bytes": module.interface.state_bytes,
        "constant_bytes": module.constant_bytes,
        "nodes": [
            {"function": n.name, "title": n.title, "layers": list(n.layers), "macs": n.macs, "uses": list(n.uses)}
            for n in module.nodes
        ],
    }
    return json.dumps(content, indent=1) + "\n"


def _write(directory: Path, files: Mapping[str, str]) -> None:
    """All files or none: they are written beside the directory first."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        for name, text in files.items():
            (staging / name).write_text(text)
        directory.mkdir(exist_ok=True)
        for name in files:
            (staging / name).replace(directory / name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
