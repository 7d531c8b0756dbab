"""The reference graph as a runner: NumPy behind the same interface as compiled C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.deploy.runner import Array, ClosingContext
from teeny_embed.deploy.status import ERR_ARGUMENT, ERR_NONFINITE, ERR_RANGE, ERR_STATE, OK
from teeny_embed.emit_c.interface import Interface
from teeny_embed.emit_c.names import argument_names
from teeny_embed.graph import evaluate
from teeny_embed.graph.lower import VariableBuffers, environment, lower
from teeny_embed.graph.node import Graph, Variable
from teeny_embed.graph.step import BufferCheck, Schedule


class ReferenceRunner(ClosingContext):
    """Runs the reference graphs in ordered NumPy, with the statuses that the C gives."""

    def __init__(self, interface: Interface, entry_points: Mapping[str, Graph]) -> None:
        self.interface = interface
        variables: VariableBuffers = {}
        self.schedules = {name: lower(graph, name, variables) for name, graph in entry_points.items()}
        self.values: dict[Variable, Array] = {v: v.initial.copy() for v in variables}
        self.ready = not interface.state

    def reset(self) -> int:
        self.values = {v: v.initial.copy() for v in self.values}
        self.ready = True
        return OK

    def call(self, entry: str, inputs: Mapping[str, npt.ArrayLike]) -> tuple[int, dict[str, Array]]:
        schedule = self.schedules[entry]
        names = argument_names(schedule)
        inputs = {b.name: inputs[names[b]] for b in schedule.inputs}
        outputs = {names[b]: np.zeros(b.type.shape, b.type.dtype) for b in schedule.outputs}
        refusal = self._refusal(schedule, inputs)
        if refusal != OK:
            return refusal, outputs
        env = environment(schedule, inputs, self.values)
        evaluate.run(schedule, env)
        for check in schedule.checks:
            if check.kind == "finite" and not np.isfinite(env[check.buffer]).all():
                return ERR_NONFINITE, {
                    names[b]: env[b] if b is check.buffer else outputs[names[b]] for b in schedule.outputs
                }
        for buffer, _ in schedule.assigns:
            assert buffer.variable is not None
            self.values[buffer.variable] = env[buffer]
        return OK, {names[b]: env[b] for b in schedule.outputs}

    def _refusal(self, schedule: Schedule, inputs: Mapping[str, Any]) -> int:
        """Checks come in the order in which the C makes them."""
        for check in schedule.checks:
            if check.kind == "rate" and not _is_rate(inputs[check.buffer.name]):
                return ERR_ARGUMENT
        if not self.ready:
            return ERR_STATE
        return ERR_RANGE if any(_out_of_range(c, inputs) for c in schedule.checks) else OK

    def read_state(self) -> dict[str, Array]:
        by_name = {v.name: value for v, value in self.values.items()}
        return {f.name: by_name[f.name].copy() for f in self.interface.state}

    def write_state(self, values: Mapping[str, npt.ArrayLike]) -> None:
        by_name = {v.name: v for v in self.values}
        for name, value in values.items():
            variable = by_name[name]
            self.values[variable] = np.array(value, variable.value.dtype).reshape(variable.value.shape)
        self.ready = True

    def close(self) -> None:
        """Holds nothing that needs freeing."""


def _is_rate(value: Any) -> bool:
    number = np.float32(value)
    return bool(np.isfinite(number) and number >= 0)


def _out_of_range(check: BufferCheck, inputs: Mapping[str, Any]) -> bool:
    if check.kind != "range":
        return False
    values = np.asarray(inputs[check.buffer.name])
    return bool(np.any((values < 0) | (values >= check.bound)))
