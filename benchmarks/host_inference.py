"""Time inference of the shared float models here: generated C and LiteRT, side by side, one thread.

    python benchmarks/host_inference.py [--rounds N] [--json] [--write] [MODEL ...]

Needs the extra `oracles`. Both read the same `.tflite` files (TEENY_EMBED_SHARED, else ../shared, has them)
and see the same inputs; their outputs must agree. LiteRT runs with XNNPACK. The two take turns, some calls
each; a round's time is its mean, and the median over rounds is what counts. --write refreshes the section of
docs/figures.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from side_by_side import FLAGS, Library, Times, address, microseconds, take_turns

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import teeny_embed as te
from support.figures_text import DOCUMENT, table, write_section
from teeny_embed.deploy import toolchain

REPOSITORY = Path(__file__).resolve().parents[1]
WANTED = {"ad_autoencoder": 1.0, "ic_resnet8": 3.0, "vww_mobilenetv1": 3.0}
"""Greatest wanted ratio of our time to LiteRT's."""
TURN_S = 0.02
TOLERANCE = 1e-4


class Compiled:
    """Generated C, called through ctypes with arguments prepared beforehand."""

    def __init__(self, model: Path, name: str, x: Any, folder: Path) -> None:
        build = te.build(te.Program(name, infer=te.load(model)), "host", folder / name)
        self._library = Library(build, folder)
        (_, output) = build.interface.entry_points[0].arguments
        self.y, self._x = np.zeros(output.shape, np.float32), x
        self._infer = self._library.function("infer")
        self._arguments = (self._library.context, address(self._x), address(self.y))

    def __call__(self, _: int = 0) -> None:
        self._infer(*self._arguments)


class LiteRT:
    """The interpreter with XNNPACK; its input is written once."""

    def __init__(self, model: Path, x: Any) -> None:
        self._interpreter = Interpreter(model_path=str(model), num_threads=1)
        self._interpreter.allocate_tensors()
        self._interpreter.set_tensor(self._interpreter.get_input_details()[0]["index"], x)

    @property
    def y(self) -> Any:
        return self._interpreter.get_tensor(self._interpreter.get_output_details()[0]["index"])

    def __call__(self, _: int = 0) -> None:
        self._interpreter.invoke()


def compare(name: str, rounds: int, folder: Path) -> Times:
    """A model's times. Raises SystemExit where the outputs differ."""
    shared = Path(os.environ.get("TEENY_EMBED_SHARED") or REPOSITORY.parent / "shared")
    model = shared / "models" / "mlperf_tiny" / f"{name}_float.tflite"
    shape = Interpreter(model_path=str(model)).get_input_details()[0]["shape"]
    x = np.random.default_rng(0).random(shape, np.float32)
    ours, theirs = Compiled(model, name, x, folder), LiteRT(model, x)
    ours()
    theirs()
    if not np.max(np.abs(ours.y - theirs.y)) <= TOLERANCE * np.max(np.abs(theirs.y)):
        raise SystemExit(f"{name}: outputs {ours.y} and {theirs.y}")
    count = max(1, round(TURN_S * 1e6 / microseconds(theirs, 0, 20)))
    return take_turns(ours, theirs, rounds, count)


def text(found: dict[str, Times]) -> str:
    header = ("model", "us", "LiteRT us", "ratio", "wanted at most", "least us", "least LiteRT us")
    rows = [
        (name, t.ours_us, t.theirs_us, t.ratio, WANTED.get(name), t.ours_least_us, t.theirs_least_us)
        for name, t in found.items()
    ]
    return table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(WANTED), metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="refresh docs/figures.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {name: compare(name, options.rounds, Path(folder)) for name in options.models}
    rows = [{"model": name, **asdict(t)} for name, t in found.items()]
    print(json.dumps(rows, indent=1) if options.json else text(found))
    if options.write:
        gcc = toolchain.run("gcc", ["-dumpfullversion"]).strip()
        litert = version("ai-edge-litert")
        heading = f"gcc {gcc}, `{' '.join(FLAGS)} -ffp-contract=off`; ai-edge-litert {litert}:"
        write_section(DOCUMENT, "host_inference", f"{heading}\n\n{text(found)}")


if __name__ == "__main__":
    main()
