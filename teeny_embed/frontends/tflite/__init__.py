"""TensorFlow Lite models: `load` reads a file and gives its graph, equal in every bit to TFLite Micro."""

from __future__ import annotations

from pathlib import Path

from teeny_embed.errors import DataError
from teeny_embed.frontends.tflite.importing import Imported, import_model
from teeny_embed.graph.node import Graph

__all__ = ["Imported", "import_model", "load"]


def load(path: Path, rounding: str = "tflite") -> Graph:
    """The graph of a `.tflite` file; see `import_model`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"the model cannot be read: {error.strerror}", where=str(path)) from None
    return import_model(content, path.name, rounding).graph
