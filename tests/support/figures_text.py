"""docs/figures.md: sections between marks, each written by a program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from support import figures
from support.figures import CASES, LENET, LEVELS, M4F, MLP, MLP_32, REPOSITORY, Cost, Record
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
    """What docs/figures.md says of the cores."""
    m4f = record[M4F]
    return "\n\n".join((costs_table({M4F: m4f}), _peer_tables(m4f), _cores_table(record), _levels_table()))


def update(cores: Sequence[str] = CORES) -> None:
    """Measures cores anew and writes what is found: targets, docs/figures.json, docs/figures.md."""
    write_section(DOCUMENT, "device_figures", device_section(figures.update(cores)))


def costs_table(record: Record) -> str:
    header = ("one step", "instructions", "m4cycles", "arena B", "state B", "code B", "stack B")
    rows = [
        (f"{core}: {TITLES[case]}", c.instructions, c.m4_cycles, c.arena_bytes, c.state_bytes,
         c.code_bytes, c.stack_bytes)
        for core, costs in record.items() for case, c in costs.items()
    ]  # fmt: skip
    return table(header, rows)


AIFES_STEPS = {MLP: (362_513, 585_000), MLP_32: (3_289_781, 5_620_000)}
AIFES_STACK_BYTES = 8_448
AIFES_MEMORY_BYTES = {
    "mlp-momentum-32": 28_224,
    "lenet5-sgd-1": 507_112, "lenet5-momentum-1": 754_336, "lenet5-adam-1": 1_001_560,
}  # fmt: skip


def _peer_tables(costs: dict[str, Cost]) -> str:
    ours = {case: costs[str(case)] for case in AIFES_STEPS}
    steps = [
        (TITLES[str(case)], c.instructions, AIFES_STEPS[case][0], AIFES_STEPS[case][0] / c.instructions,
         c.m4_cycles, AIFES_STEPS[case][1], c.stack_bytes, AIFES_STACK_BYTES)
        for case, c in ours.items()
    ]  # fmt: skip
    header = ("Cortex-M4F", "instructions", "AIfES", "ratio", "m4cycles", "AIfES", "stack B", "AIfES")
    memory = [
        (TITLES[case], costs[case].arena_bytes, beside, theirs, theirs / beside)
        for case, theirs in AIFES_MEMORY_BYTES.items()
        for beside in (memory_beside_parameters(case, costs[case]),)
    ]
    memory_header = ("memory beside the parameters", "arena B", "arena and moments B", "AIfES B", "ratio")
    return f"{_PEER_TEXT}\n\n{table(header, steps)}\n\n{table(memory_header, memory)}"


_PEER_TEXT = """Beside it AIfES 2.2 (commit 07a43821), another framework that trains on microcontrollers,
built by the same compiler at -O3:"""


def memory_beside_parameters(case: str, cost: Cost) -> int:
    """Arena and moments."""
    return cost.arena_bytes + cost.state_bytes - PARAMETER_BYTES[case.split("-")[0]]


def _cores_table(record: Record) -> str:
    cases = [str(case) for case in CASES]
    header = ("instructions", "level", *(TITLES[case] for case in cases), "stack B", "code B")
    rows = [
        (core, costs[cases[0]].optimize, *(costs[case].instructions for case in cases),
         max(costs[case].stack_bytes for case in cases), costs[str(LENET)].code_bytes)
        for core, costs in record.items()
    ]  # fmt: skip
    text = "All cores, each at its own level; the greatest stack of the three steps, and LeNet-5's code:"
    return f"{text}\n\n{table(header, rows)}"


def _levels_table() -> str:
    """From the targets' own descriptions."""
    rows = [
        (f"{core}, {TITLES[step]}", *(by_level[level] for level in LEVELS), found.optimize)
        for core in CORES
        for found in (targets.load(core),)
        for step in dict.fromkeys(figure.step for figure in found.figures)
        for by_level in ({f.optimize: f.instructions for f in found.figures if f.step == step},)
    ]
    cycles = {(f.step, f.optimize): f.m4_cycles for f in targets.load(M4F).figures}
    m4_rows = [
        (f"{M4F}, {TITLES[step]}, m4cycles", *(cycles[step, level] for level in LEVELS), "")
        for step in dict.fromkeys(step for step, _ in cycles)
    ]
    text = """A target's level is the one with the least product over these two steps: of m4cycles for the
Cortex-M4F, of instructions for the others. At -Os the compiler multiplies and adds in one instruction,
`vmla`, which rounds twice and so changes no bit, but takes three cycles instead of two:"""
    return f"{text}\n\n{table(('instructions', *LEVELS, 'chosen'), [*rows, *m4_rows])}"
