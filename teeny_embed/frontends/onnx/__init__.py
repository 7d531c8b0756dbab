"""ONNX models: `load` reads a file and traces what it computes.

`import onnx` in here means the package of that name; this one has the same last name, and is never imported
by it alone.
"""

from teeny_embed.frontends.onnx.importing import import_model, load

__all__ = ["import_model", "load"]
