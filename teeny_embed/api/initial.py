"""How `reset` sets a parameter: from a table in flash ("const"), or drawn on the device ("seed")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from teeny_embed.api.program import Program
from teeny_embed.errors import AttributeValueError, DataError
from teeny_embed.graph.node import Variable

Init = str | Mapping[str, str]
"""For all parameters, or by name; those that a mapping does not name are "const"."""

KINDS = ("const", "seed")


def drawn_by_reset(program: Program, init: Init) -> tuple[Variable, ...]:
    """The parameters that `reset` draws, bit for bit as they were drawn here; they need no flash.

    "seed" for all means all that can be: trained, and not loaded since they were drawn. Raises DataError for
    a name that cannot, AttributeValueError for another kind.
    """
    kinds = init if isinstance(init, Mapping) else {}
    for kind in kinds.values() if kinds else (init,):
        if kind not in KINDS:
            raise AttributeValueError(f"init {kind!r} is unknown", hint='"const" or "seed"')
    assigned = {v for graph in program.entry_points.values() for v, _ in graph.assigns}
    possible = {v.name: v for v in program.variables() if v in assigned and v.draw is not None}
    wanted = possible if init == "seed" else {name for name, kind in kinds.items() if kind == "seed"}
    for name in [*kinds, *wanted]:
        _check(program, name, possible if name in wanted else None)
    return tuple(v for name, v in possible.items() if name in wanted)


def _check(program: Program, name: str, possible: Mapping[str, Variable] | None) -> None:
    """The name exists, and is among `possible` if they are given."""
    names = [variable.name for variable in program.variables()]
    if name not in names:
        hint = "it has " + ", ".join(names)
        raise DataError(f"init: {program.name} has no variable {name!r}", hint=hint)
    if possible is not None and name not in possible:
        raise DataError(
            f"init: {name} cannot be drawn: it is not trained, starts with a fixed value, or was loaded",
            hint='leave it "const"; these can be drawn: ' + (", ".join(possible) or "none"),
        )


def seeds(program: Program, drawn: tuple[Variable, ...]) -> dict[str, dict[str, Any]]:
    """For the manifest: what initial values and random layers are drawn from, by name."""
    found: dict[str, dict[str, Any]] = {}
    for variable in drawn:
        assert variable.draw is not None
        key = {"seed": variable.draw.seed, "stream": variable.draw.stream}
        found[variable.name] = {**key, "bound": variable.draw.bound}
    for graph in program.entry_points.values():
        for node in graph.nodes():
            if node.op.name == "random_uniform":
                found[node.name] = {key: node.attributes[key] for key in ("seed", "stream")}
    return found
