"""What a module's self-test expects: its calls, made in NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from teeny_embed.api.program import Program
from teeny_embed.api.samples import rates
from teeny_embed.deploy.reference import ReferenceRunner
from teeny_embed.deploy.status import OK
from teeny_embed.emit_c.module import Module
from teeny_embed.emit_c.selftest import FIRST_HASH, SelfTest, call_of, hashed, inputs
from teeny_embed.planner.plan import Plan

ROUNDS = 2
"""The first one on subnormals; the second reads moments that the first one wrote."""


def self_test(program: Program, planned: Plan, module: Module) -> SelfTest:
    """All entry points in turn, twice; once where there are no floats."""
    interface = module.interface
    calls = []
    for number, entry in enumerate(interface.entry_points):
        graph = program.entry_points[entry.name]
        bounds = {check.node.name: check.bound for check in graph.checks if check.kind == "range"}
        members = {a.name: _member(module, entry.name, a.name) for a in entry.arguments}
        calls.append(call_of(entry, number, bounds, rates(graph), members))
    floats = any(b.type.dtype == "float32" for e in planned.entries for b in e.schedule.buffers())
    test = SelfTest(tuple(calls), ROUNDS if floats or interface.state else 1, floats)
    return replace(test, hash=_expected(test, program, module))


def _member(module: Module, entry: str, argument: str) -> str:
    """The arena's member for an argument; "" if that does not lie there."""
    macros = {f"{module.name}_{name}_offset".upper() for name in (argument, f"{entry}_{argument}")}
    return next((slot.member for slot in module.slots if slot.macro in macros), "")


def _expected(test: SelfTest, program: Program, module: Module) -> int:
    found = FIRST_HASH
    with ReferenceRunner(module.interface, program.entry_points) as runner:
        runner.reset()
        for number in range(test.rounds):
            for call in test.calls:
                status, outputs = runner.call(call.entry.name, inputs(call, number))
                found = hashed(found, np.array(status, np.int32))
                if status == OK:
                    for operand in call.operands:
                        if operand.fill is None:
                            found = hashed(found, outputs[operand.argument.name])
            for tensor in runner.read_state().values():
                found = hashed(found, tensor)
    return found
