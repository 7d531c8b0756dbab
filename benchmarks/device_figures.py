"""Measure what training steps cost on the emulated cores: instructions, cycles, bytes.

    python benchmarks/device_figures.py [--core CORE ...] [--json]
    python benchmarks/device_figures.py [--core CORE ...] --write

The first measures at the optimisation level of each core's target, and prints. The second measures every
level, too, and refreshes `optimize` and the figures in targets/cpus/*.toml, docs/figures.json and its section
of docs/figures.md. The MLP sees scikit-learn's 8x8 digits, LeNet-5 MNIST (TEENY_EMBED_SHARED, else ../shared,
has the file).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support import figures, figures_text
from support.runners import CORES


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--core", action="append", choices=CORES, help="cores to measure (all)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="refresh what is committed")
    options = parser.parse_args()
    cores = options.core or CORES
    if options.write:
        figures_text.update(cores)
        return
    with tempfile.TemporaryDirectory() as folder:
        record = {core: figures.measure_core(core, Path(folder)) for core in cores}
    print(figures.as_json(record) if options.json else figures_text.costs_table(record))


if __name__ == "__main__":
    main()
