"""Time `import teeny_embed` and `te.build` of LeNet-5, each in a fresh process: what a user waits for.

    python benchmarks/build_time.py [--runs N] [--json] [--write]

--write refreshes the section of docs/figures.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.figures_text import DOCUMENT, table, write_section

OPTIMIZERS = ("sgd", "adam")
TARGETS = ("host", "cortex-m4f")

IMPORT = """
import time
started = time.perf_counter()
import teeny_embed
{use}
print(time.perf_counter() - started)
"""

BUILD = """
import sys, tempfile, time
sys.path.insert(0, {tests!r})
from support.nets import Case
import teeny_embed as te
program = Case("lenet5", {optimizer!r}, 1).program()
with tempfile.TemporaryDirectory() as folder:
    started = time.perf_counter()
    te.build(program, {target!r}, folder)
    print(time.perf_counter() - started)
"""


@dataclass(frozen=True)
class Times:
    """Seconds."""

    what: str
    median_s: float
    greatest_s: float
    wanted_s: float | None


def measure(what: str, program: str, runs: int, wanted_s: float | None = None) -> Times:
    """The program prints its time."""
    command = [sys.executable, "-c", program]
    printed = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(runs)
    ]
    seconds = list(map(float, printed))
    return Times(what, statistics.median(seconds), max(seconds), wanted_s)


def measure_all(runs: int) -> list[Times]:
    found = [
        measure("import teeny_embed", IMPORT.format(use=""), runs, 0.3),
        measure("the same and all that te.build needs", IMPORT.format(use="teeny_embed.build"), runs),
    ]
    for optimizer in OPTIMIZERS:
        for target in TARGETS:
            program = BUILD.format(tests=sys.path[0], optimizer=optimizer, target=target)
            found.append(measure(f"build LeNet-5 with {optimizer} for {target}", program, runs, 2.0))
    return found


def text(found: list[Times]) -> str:
    rows = [(t.what, t.median_s, t.greatest_s, t.wanted_s and f"< {t.wanted_s}") for t in found]
    return table(("", "median s", "greatest s", "wanted"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="refresh docs/figures.md")
    options = parser.parse_args()
    found = measure_all(options.runs)
    print(json.dumps([asdict(each) for each in found], indent=1) if options.json else text(found))
    if options.write:
        write_section(DOCUMENT, "build_time", text(found))


if __name__ == "__main__":
    main()
