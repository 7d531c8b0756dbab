"""`load`: models that other tools made."""

from __future__ import annotations

from pathlib import Path

from teeny_embed.errors import DataError
from teeny_embed.graph.node import Graph


def load(path: str | Path, *, rounding: str = "tflite") -> Graph:
    """The graph of a model file, by its suffix: `.tflite`. Give it to `te.Program(name, infer=graph)`.

    `rounding` says whose bits a quantised model has: "tflite" those of TFLite Micro, "litert" those of
    LiteRT's reference kernels, which round once in FULLY_CONNECTED. Raises DataError, and ToolError if the
    package that reads the file is missing.
    """
    path = Path(path)
    if path.suffix != ".tflite":
        hint = "models are read from .tflite files"
        raise DataError(f"{path.suffix or path.name!r} is no known kind of model", str(path), hint)
    from teeny_embed.frontends import tflite

    return tflite.load(path, rounding)
