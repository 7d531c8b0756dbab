"""Measure what training steps cost on the emulated cores: instructions, cycles, bytes.

    python benchmarks/device_figures.py [--json] [--core CORE ...]
    python benchmarks/device_figures.py --write

Without --write it measures each core at its target's optimisation level and prints. With --write it measures
every core at each level, too, and refreshes `optimize` and the figures in targets/cpus/*.toml,
docs/figures.json and the section of docs/figures.md. The MLP sees scikit-learn's 8x8 digits, LeNet-5 MNIST
(TEENY_EMBED_SHARED, else ../shared, has the file).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from support import figures, figures_text
from support.data import Digits
from support.runners import CORES


def mnist() -> Digits:
    shared = Path(os.environ.get("TEENY_EMBED_SHARED") or REPOSITORY.parent / "shared")
    return Digits(shared / "datasets" / "mnist_10k_2k.npz")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--core", action="append", choices=CORES, help="cores to measure (all)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="refresh what is committed, all cores")
    options = parser.parse_args()
    if options.write:
        figures_text.update(mnist())
        return
    with tempfile.TemporaryDirectory() as folder:
        record = {
            core: figures.measure_core(core, mnist(), Path(folder)) for core in options.core or CORES
        }
    print(figures.as_json(record) if options.json else figures_text.costs_table(record))


if __name__ == "__main__":
    main()
