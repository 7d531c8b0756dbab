"""`build`: a program to C files."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from teeny_embed import target as targets
from teeny_embed.api.initial import Init, drawn_by_reset, seeds
from teeny_embed.api.program import Program, check_finite
from teeny_embed.api.selftest import self_test
from teeny_embed.deploy.runner import state_from_bytes, state_into_bytes
from teeny_embed.emit_c.interface import Interface
from teeny_embed.emit_c.module import Module, NodeFunction, build_module
from teeny_embed.emit_c.render import VERSION, Identity, render, signature
from teeny_embed.emit_c.store import Form, forms, from_stored, stored
from teeny_embed.errors import DataError, GraphError, PlanError
from teeny_embed.graph.fuse import fuse
from teeny_embed.graph.interval import check_accumulators
from teeny_embed.graph.lower import VariableBuffers, lower
from teeny_embed.kernels.choose import choose, prepare
from teeny_embed.planner.plan import EntryPlan, Plan, plan
from teeny_embed.planner.report import memory_map
from teeny_embed.target import Target

FLOATS = ("exact", "fast")
"""How float results are rounded."""
IO = ("caller", "arena")
"""Where inputs and outputs lie."""
OPTIMIZE = ("speed", "size")
"""What is preferred where both cannot be had."""


@dataclass(frozen=True, eq=False)
class Build:
    """An emitted program. `directory` holds the C files and `manifest.json`."""

    program: Program
    target: Target
    plan: Plan
    module: Module
    directory: Path
    float: str = "exact"
    """Or fast: products and sums may be fused, and results be near those of NumPy."""

    @property
    def interface(self) -> Interface:
        return self.module.interface

    def report(self) -> str:
        """Sizes, and for each entry point the map of the arena."""
        return _report(self.target, self.plan, self.module)

    def pack(self, state: Mapping[str, Any], sequence: int = 0, what: str = "parameters") -> bytes:
        """What NAME_load_parameters reads, or for `what` "state" NAME_load.

        `state` has tensors by name, such as FitReport.state; the initial value stands for what it lacks.
        Raises DataError.
        """
        form = self._form(what)
        raw = bytearray(self.interface.state_bytes)
        raw[:4] = struct.pack("<I", self._signature)
        initial = {v.name: v.initial for v in self.program.variables()}
        values = {f.name: initial[f.name] for f in self.interface.state} | dict(state)
        return stored(form, self._signature, state_into_bytes(self.interface, bytes(raw), values), sequence)

    def unpack(self, content: bytes, what: str = "parameters") -> dict[str, Any]:
        """Tensors by name of what NAME_save_parameters, or for `what` "state" NAME_save, has written.

        Raises DataError for what is damaged or another model's.
        """
        form = self._form(what)
        raw = from_stored(form, self._signature, content, bytes(self.interface.state_bytes))
        held = {f.name for f in self.interface.state if what == "state" or f.kind == "parameter"}
        return {n: v for n, v in state_from_bytes(self.interface, raw).items() if n in held}

    @property
    def _signature(self) -> int:
        return int(signature(self.module), 16)

    def _form(self, what: str) -> Form:
        known = {form.name: form for form in forms(self.interface.state)}
        if what not in known:
            hint = "stored are " + " and ".join(known) if known else "it has no state"
            raise DataError(f"{self.program.name} stores no {what!r}", hint=hint)
        return known[what]


def build(
    program: Program,
    target: str = "host",
    out: str | Path | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    init: Init = "const",
    float: str = "exact",
    io: str = "caller",
    optimize: str = "speed",
    selftest: bool = False,
) -> Build:
    """Emits C for `target` (a CPU or board name) into the directory `out` (`build/NAME` if not given).

    `dims` gives named extents a number: {"N": 8}. `init` says how `reset` sets parameters: "const" copies
    them from flash, "seed" draws those that were drawn here on the device; or one of both by name.
    `float` is "exact" (the bits of NumPy) or "fast": a product may be added without being rounded.
    `io` is "caller" (inputs and outputs are passed) or "arena": those of rank > 0 lie in the arena, where
    they share memory with what is live at other times.
    `optimize` is "speed", or "size": less code, compiled by -Os, whose results are the same bits.
    `selftest` writes NAME_selftest.c, too: calls whose results NumPy has hashed here.
    Files are written only after everything succeeded; an existing directory is replaced file by file.
    Raises TargetError, PlanError (the model is too large for the target's memories), DataError, GraphError
    (also where an accumulator of quantised operands could overflow).
    """
    if not isinstance(program, Program):
        hint = "te.Program(name, infer=te.trace(net, x))"
        raise GraphError(f"a {type(program).__name__} is no Program", hint=hint)
    if float not in FLOATS:
        raise GraphError(f"float={float!r} is none of {', '.join(FLOATS)}")
    if io not in IO:
        raise GraphError(f"io={io!r} is none of {', '.join(IO)}")
    if optimize not in OPTIMIZE:
        raise GraphError(f"optimize={optimize!r} is none of {', '.join(OPTIMIZE)}")
    if selftest and float != "exact":
        hint = 'float="exact", or no self-test'
        raise GraphError("a self-test compares bits, and fast floats have other bits than NumPy's", hint=hint)
    found = targets.load(target)
    found = found.for_size() if optimize == "size" else found
    program = program.bind(dims or {})
    check_finite(program)
    drawn = drawn_by_reset(program, init)
    variables: VariableBuffers = {}
    schedules = [fuse(lower(g, n, variables)) for n, g in program.entry_points.items()]
    for schedule in schedules:
        check_accumulators(schedule)
    kernel = functools.cache(lambda step: choose(step, found))
    planned = plan([prepare(schedule, found) for schedule in schedules], kernel, io)
    module = build_module(program.name, planned, kernel, drawn)
    _check_fit(found, planned, module)
    identity = _identity(program, found, float)
    files = render(module, identity, self_test(program, planned, module) if selftest else None)
    files["manifest.json"] = _manifest(program, found, planned, module, identity, seeds(program, drawn))
    directory = Path(out) if out is not None else Path("build") / program.name
    _write(directory, files)
    return Build(program, found, planned, module, directory, float)


def _report(target: Target, planned: Plan, module: Module) -> str:
    lines = [
        f"{module.name} for {target.name}: arena {module.interface.arena_bytes:,} B (lower bound "
        f"{planned.lower_bound_bytes:,} B), state {module.interface.state_bytes:,} B, "
        f"constants {module.constant_bytes:,} B"
    ]
    for entry in planned.entries:
        lines += [f"\n{entry.schedule.name}", memory_map(entry.problem, entry.placement)]
    return "\n".join(lines)


def _check_fit(target: Target, planned: Plan, module: Module) -> None:
    """Refuses what cannot fit the target's memories, with the table of who takes what."""
    stack_bytes = target.board.stack_bytes if target.board else 0
    needed = {
        "constants": module.constant_bytes,
        "data": stack_bytes + module.interface.state_bytes + module.interface.arena_bytes,
    }
    for role, byte_count in needed.items():
        memory = target.board.memory(role) if target.board and target.memories else None
        if memory is not None and byte_count > memory.length:
            raise PlanError(
                f"{module.name} needs {byte_count:,} bytes of {memory.name} and {target.name} has "
                f"{memory.length:,} (stack {stack_bytes:,})\n{_report(target, planned, module)}",
                hint="make the model, or the batch of its training step, smaller",
            )


def _identity(program: Program, target: Target, float: str) -> Identity:
    weights = hashlib.sha256()
    for variable in program.variables():
        weights.update(variable.name.encode() + variable.initial.tobytes())
    graph = hashlib.sha256(program.text().encode()).hexdigest()
    entries = ", ".join(program.entry_points)
    return Identity(graph[:16], weights.hexdigest()[:16], target.name, f"entry points {entries}", float)


def _manifest(
    program: Program,
    target: Target,
    planned: Plan,
    module: Module,
    identity: Identity,
    seeds: Mapping[str, Any],
) -> str:
    """Everything that identifies and measures a build. No date, user or path: equal input, equal bytes."""
    content: dict[str, Any] = {
        "teeny_embed": VERSION,
        "abi_version": 1,
        "graph_hash": identity.graph_hash,
        "weights_hash": identity.weights_hash,
        "target": target.name,
        "optimize": "size" if target.small else "speed",
        "flags": [target.optimize, *target.flags],
        "float": identity.float,
        "canonicalizations": list(program.changes),
        "seeds": seeds,
        "interface": asdict(module.interface),
        "arena_bytes": planned.arena_bytes,
        "arena_lower_bound_bytes": planned.lower_bound_bytes,
        "state_bytes": module.interface.state_bytes,
        "constant_bytes": module.constant_bytes,
        "memory": {entry.schedule.name: _memory(entry) for entry in planned.entries},
        "nodes": [_node_row(node) for node in module.nodes],
    }
    return json.dumps(content, indent=1) + "\n"


def _memory(entry: EntryPlan) -> dict[str, Any]:
    """Bytes of one entry point, and its buffers with lifetimes [lower, upper) in nodes."""
    return {
        "arena_bytes": entry.arena_bytes,
        "arena_lower_bound_bytes": entry.lower_bound_bytes,
        "buffers": [
            {
                "name": buffer.name,
                "offset": entry.placement.offsets[buffer.name],
                "size_bytes": buffer.size_bytes,
                "lower": buffer.lower,
                "upper": buffer.upper,
            }
            for buffer in entry.problem.buffers
        ],
    }


def _node_row(node: NodeFunction) -> dict[str, Any]:
    row = {
        "function": node.name,
        "title": node.title,
        "layers": list(node.layers),
        "macs": node.macs,
        "uses": list(node.uses),
    }
    return row | ({} if node.accumulator is None else {"accumulator": asdict(node.accumulator)})


def _write(directory: Path, files: Mapping[str, str]) -> None:
    """All files or none: they are written beside the directory first."""
    if blocked := [name for name in files if (directory / name).is_dir()]:
        where = str(directory / blocked[0])
        raise DataError("the files cannot be written: this is a directory", where=where)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    except OSError as error:
        raise DataError(f"the output directory cannot be made: {error}", where=str(directory)) from None
    try:
        for name, text in files.items():
            (staging / name).write_text(text, encoding="utf-8")
        directory.mkdir(exist_ok=True)
        for name in files:
            (staging / name).replace(directory / name)
    except OSError as error:
        raise DataError(f"the files cannot be written: {error}", where=str(directory)) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
