"""`load`: models that other tools made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from teeny_embed.errors import DataError
from teeny_embed.graph.deferred import DeferredGraph
from teeny_embed.graph.node import Graph


def load(
    path: str | Path, *, rounding: str = "tflite", constants: Mapping[str, npt.ArrayLike] | None = None
) -> Graph | DeferredGraph:
    """The graph of a model file, by its suffix: `.tflite` or `.onnx`.

    Give it to `te.Program(name, infer=graph)`, or call it on Tensors. Float initializers of .onnx files are
    parameters, under their names; extents that such a file leaves open are bound by `te.build(dims=...)`, and
    `constants` gives some of its inputs, such as shapes, a value once and for all.

    `rounding` says whose bits a quantised model has: "tflite" those of TFLite Micro, "litert" those of
    LiteRT's reference kernels, which round once in FULLY_CONNECTED. Raises DataError, and ToolError if the
    package that reads the file is missing.
    """
    path = Path(path)
    if path.suffix == ".onnx":
        from teeny_embed.frontends import onnx

        return onnx.load(path, {name: np.asarray(value) for name, value in (constants or {}).items()})
    if path.suffix != ".tflite":
        hint = "models are read from .tflite and .onnx files"
        raise DataError(f"{path.suffix or path.name!r} is no known kind of model", str(path), hint)
    from teeny_embed.frontends import tflite

    return tflite.load(path, rounding)
