"""Inferences of int8 models cost what docs/int8_figures.json records.

Counts are those of one compiler; where another is installed they are printed. After a change of the generated
code `python benchmarks/int8_figures.py --write` measures anew and writes the record and its document.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import int8_figures as figures
from support.figures import COMPILER, found_compiler
from support.runners import CORES

MISSED = {
    "cortex-m0": {("kws_dscnn", "flash"), ("ic_resnet8", "stack"), ("ic_resnet8", "flash"),
                  ("vww_mobilenetv1", "stack"), ("mnist_lstm", "stack")},
    "cortex-m3": {("kws_dscnn", "flash"), ("ic_resnet8", "flash"), ("mnist_lstm", "stack")},
    "cortex-m4f": set(),
    "cortex-m7": set(),
    "cortex-m33": set(),
    "cortex-m55": set(),
}  # fmt: skip
"""(model, what) of the recorded costs that are above their limits, by core."""

NOT_ON_M0 = {"__aeabi_idiv", "__aeabi_uidiv", "__aeabi_lmul"}
"""Armv6-M divides, and multiplies to 64 bits, by calls."""

QUICK = {(core, "ad_autoencoder") for core in CORES}
ALL = [(core, name) for core in CORES for name in figures.MODELS]


def above_limits(core: str) -> Iterator[tuple[str, str]]:
    for name, cost in figures.read_record().costs[core].items():
        limit = figures.LIMITS[name]
        pairs = {
            "instructions": (cost.instructions, limit.instructions.get(core)),
            "cycles": (cost.m4_cycles or 0, limit.m4_cycles),
            "stack": (cost.stack_bytes, limit.stack_bytes),
            "flash": (cost.flash_bytes, limit.flash_bytes),
        }
        for what, (measured, most) in pairs.items():
            if most is not None and measured > most:
                yield name, what


@pytest.mark.parametrize("core", CORES)
def test_recorded_costs_keep_their_limits_but_where_it_is_said(core: str) -> None:
    assert set(above_limits(core)) == MISSED[core]


@pytest.mark.parametrize("core", CORES)
def test_few_routines_of_the_runtime_and_less_memory_than_tflite_micro(core: str) -> None:
    record = figures.read_record()
    for name, cost in record.costs[core].items():
        assert set(cost.runtime_symbols) <= (NOT_ON_M0 if core == "cortex-m0" else set())
        assert cost.arena_bytes < record.micro[name].total_bytes


def test_the_document_tells_the_record() -> None:
    assert figures.DOCUMENT.read_text(encoding="utf-8") == figures.document(figures.read_record())


@pytest.mark.usefixtures("emulator")
@pytest.mark.parametrize(
    ("core", "name"),
    [pytest.param(*each, marks=() if each in QUICK else pytest.mark.full) for each in ALL],
)
def test_costs_are_those_recorded(core: str, name: str, shared: Path, tmp_path: Path) -> None:
    measured = figures.cost(figures.model(shared, name), core, tmp_path)
    if (compiler := found_compiler()) != COMPILER:
        pytest.skip(f"counts are recorded for {COMPILER}, this is {compiler}: {measured}")
    assert measured == figures.read_record().costs[core][name]
