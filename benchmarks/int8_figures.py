"""Measure what an inference of the int8 MLPerf Tiny models costs on the emulated cores.

    python benchmarks/int8_figures.py [--core CORE ...] [--model NAME ...] [--json | --nodes]
    python benchmarks/int8_figures.py --write

The last measures everything and refreshes docs/int8_figures.json and docs/int8_figures.md. The models are
found by --shared, by TEENY_EMBED_SHARED, else in ../shared.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support import int8_figures as figures
from support.figures import REPOSITORY
from support.figures_text import table
from support.runners import CORES


def nodes_table(shared: Path, core: str, name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        nodes = list(figures.nodes(figures.model(shared, name), core, Path(folder)))
    rows = [(n.name, n.macs, n.instructions, n.instructions / n.macs if n.macs else None) for n in nodes]
    return table((f"{core}: {name}", "MAC", "instructions", "per MAC"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shared", type=Path, help="folder that holds models/mlperf_tiny")
    parser.add_argument("--core", action="append", choices=CORES, help="cores to measure (all)")
    parser.add_argument("--model", action="append", choices=figures.MODELS, help="models (all)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--nodes", action="store_true", help="print instructions of each node")
    parser.add_argument("--write", action="store_true", help="refresh what is committed")
    options = parser.parse_args()
    shared = options.shared or Path(os.environ.get("TEENY_EMBED_SHARED") or REPOSITORY.parent / "shared")
    cores, names = options.core or CORES, options.model or figures.MODELS
    if options.write:
        figures.update(shared)
    elif options.nodes:
        print("\n\n".join(nodes_table(shared, core, name) for core in cores for name in names))
    else:
        record = figures.measure(shared, cores, names)
        print(figures.as_json(record) if options.json else figures.tables(record))


if __name__ == "__main__":
    main()
