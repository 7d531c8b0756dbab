"""Problems and plans as CSV: minimalloc's `id,lower,upper,size[,alignment]`, to which a plan adds `offset`.

One row per buffer, sizes and offsets in bytes (https://github.com/google/minimalloc). An alignment that
is not given is 1, as there. `fixed_offset` and `memory` are ours and written only where they are needed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping

from teeny_embed.errors import PlanError
from teeny_embed.planner.problem import ARENA, Buffer, Placement, Problem

REQUIRED: dict[str, Callable[[Buffer], object]] = {
    "id": lambda b: b.name,
    "lower": lambda b: b.lower,
    "upper": lambda b: b.upper,
    "size": lambda b: b.size_bytes,
}
OPTIONAL: dict[str, Callable[[Buffer], object]] = {  # "" is the default and hides the column
    "alignment": lambda b: "" if b.alignment == 1 else b.alignment,
    "fixed_offset": lambda b: "" if b.fixed_offset is None else b.fixed_offset,
    "memory": lambda b: "" if b.memory == ARENA else b.memory,
}


def write_csv(problem: Problem, placement: Placement | None = None) -> str:
    """The problem as CSV text, with the column `offset` if it is placed."""
    columns = REQUIRED | {
        name: cell for name, cell in OPTIONAL.items() if any(cell(b) != "" for b in problem.buffers)
    }
    if placement:
        columns["offset"] = lambda b: placement.offsets[b.name]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(b) for cell in columns.values()] for b in problem.buffers)
    return text.getvalue()


def read_problem(text: str, capacities: Mapping[str, int | None] | None = None) -> Problem:
    """The problem in CSV text, without the plan. The format has no capacities: the caller knows the bytes."""
    buffers = tuple(_buffer(row, line) for line, row in enumerate(_rows(text), start=2))
    return Problem(buffers, capacities or dict.fromkeys([ARENA, *(b.memory for b in buffers)]))


def read_placement(text: str, problem: Problem) -> Placement:
    """The plan in CSV text, with heights and bounds derived anew."""
    offsets = {row["id"]: _number(row, "offset", line) for line, row in enumerate(_rows(text), start=2)}
    if missing := [b.name for b in problem.buffers if b.name not in offsets]:
        raise PlanError(f"the plan has no row for {', '.join(missing)}")
    return Placement.of(problem, offsets)


def _rows(text: str) -> list[dict[str, str]]:
    reader = csv.DictReader(io.StringIO(text), restval="")
    if missing := [name for name in REQUIRED if name not in (reader.fieldnames or ())]:
        raise PlanError(f"the CSV has no column {', '.join(missing)}")
    return list(reader)


def _buffer(row: Mapping[str, str], line: int) -> Buffer:
    return Buffer(
        name=row["id"],
        size_bytes=_number(row, "size", line),
        lower=_number(row, "lower", line),
        upper=_number(row, "upper", line),
        alignment=_number(row, "alignment", line) if row.get("alignment") else 1,
        fixed_offset=_number(row, "fixed_offset", line) if row.get("fixed_offset") else None,
        memory=row.get("memory") or ARENA,
    )


def _number(row: Mapping[str, str], column: str, line: int) -> int:
    try:
        return int(row[column])
    except (KeyError, ValueError):
        what = f"{column} is {row.get(column)!r}, not a whole number"
        raise PlanError(what, where=f"line {line}") from None
