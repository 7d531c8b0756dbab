"""docs/figures.md: sections between marks, each written by a program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from support.figures import CASES, LENET, LEVELS, M4F, MLP, MLP_32, REPOSITORY, Cost, Record
from support.nets import Case
from support.runners import CORES
from teeny_embed import target as targets

DOCUMENT = REPOSITORY / "docs" / "figures.md"

TITLES = {
    "mlp-momentum-1": "MLP, momentum, batch 1",
    "mlp-momentum-32": "MLP, momentum, batch 32",
    "lenet5-sgd-1": "LeNet-5, SGD, batch 1",
    "lenet5-momentum-1": "LeNet-5, momentum, batch 1",
    "lenet5-adam-1": "LeNet-5, Adam, batch 1",
    "lenet5-sgd-8": "LeNet-5, SGD, batch 8",
    "lenet5-sgd-32": "LeNet-5, SGD, batch 32",
}

PARAMETER_BYTES = {"mlp": 4 * 2_410, "lenet5": 4 * 61_706}


# ---- Marks --------------------------------------------------------------------------------------------


def section(name: str, text: str) -> str:
    """The section `name` of docs/figures.md with its marks."""
    return f"<!-- {name} begins -->\n{text.strip()}\n<!-- {name} ends -->"


def write_section(path: Path, name: str, text: str) -> None:
    """Replaces what stands between the marks of `name`."""
    content = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} begins -->", f"<!-- {name} ends -->"
    before, after = content.split(begin)[0], content.split(end)[1]
    path.write_text(before + section(name, text) + after, encoding="utf-8")


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The first column is text, the others are numbers; None is an empty cell."""
    lines = [list(map(str, header)), ["---", *["---:"] * (len(header) - 1)]]
    lines += [[_cell(value) for value in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return f"{value:,}" if isinstance(value, int) else str("" if value is None else value)


# ---- Devices ------------------------------------------------------------------------------------------


def device_section(record: Record) -> str:
    parts = (_m4f_table(record[M4F]), _peer_tables(record[M4F]), _cores_table(record), _levels_table())
    return "\n\n".join(parts)
