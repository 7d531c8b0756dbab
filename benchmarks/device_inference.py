"""Measure what an inference of the shared float models costs on the emulated Cortex-M4F.

    python benchmarks/device_inference.py [--write]

Each is built with exact bits and with --float fast. TEENY_EMBED_SHARED, else ../shared, has the models;
--write refreshes the section of docs/figures.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import teeny_embed as te
from support.figures import REPOSITORY
from support.figures_text import DOCUMENT, table, write_section

MODELS = ("ad_autoencoder", "kws_dscnn", "ic_resnet8", "vww_mobilenetv1")
HEADER = (
    "cortex-m4f, -O3", "float", "MAC", "instructions", "per MAC", "m4cycles", "arena B", "code B", "stack B",
)  # fmt: skip


def row(name: str, rounding: str, folder: Path) -> tuple[str | int | float, ...]:
    shared = Path(os.environ.get("TEENY_EMBED_SHARED") or REPOSITORY.parent / "shared")
    model = te.load(shared / "models" / "mlperf_tiny" / f"{name}_float.tflite")
    build = te.build(te.Program(name, infer=model), "cortex-m4f", folder / rounding / name, float=rounding)
    cost = te.profile(build)
    macs, instructions = cost["macs"]["infer"], cost["instructions"]["infer"]["total"]
    return (
        name, rounding, macs, instructions, instructions / macs, cost["cycles_estimate"]["infer"],
        cost["arena_bytes"], cost["code_bytes"], cost["stack_bytes"]["infer"],
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="refresh docs/figures.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(name, rounding, Path(folder)) for rounding in ("exact", "fast") for name in MODELS]
    text = table(HEADER, rows)
    if options.write:
        write_section(DOCUMENT, "device_inference", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
