"""MODEL on the command line: `file.tflite`, or `file.py:name`, a `Program` or a function that returns one."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from teeny_embed.api import Build, Program, build, load
from teeny_embed.emit_c.names import identifier
from teeny_embed.errors import DataError, TeenyError

QEMU_TARGET = "cortex-m4f"
"""What `--on qemu` takes if no target is given."""
MODULE_NAME = "__model__"
"""What the file is imported as: its own name may be that of another module."""


@dataclass(frozen=True)
class Model:
    """MODEL and the options that say how it is built."""

    model: str
    target: str | None
    name: str | None
    dims: Mapping[str, int]
    init: str
    rounding: str = "tflite"
    float: str = "exact"
    io: str = "caller"
    optimize: str = "speed"

    def build(self, out: Path | None, on: str = "host", selftest: bool = False) -> Build:
        """The C files in the directory `out`."""
        program = load_program(self.model, self.rounding)
        program = program.renamed(self.name) if self.name else program
        target = self.target or (QEMU_TARGET if on == "qemu" else "host")
        return build(
            program, target, out, dims=self.dims, init=self.init, float=self.float, io=self.io,
            optimize=self.optimize, selftest=selftest,
        )  # fmt: skip


def extents(dims: Sequence[str]) -> dict[str, int]:
    """N=8 as {"N": 8}. Raises DataError."""
    found = {}
    for text in dims:
        name, _, number = text.partition("=")
        if not number.isdecimal():
            raise DataError(f"--dim {text} gives no extent", hint="write --dim N=8")
        found[name] = int(number)
    return found


def load_program(model: str, rounding: str = "tflite") -> Program:
    """The program that MODEL means. Raises DataError."""
    if model.endswith((".tflite", ".onnx")):
        path = Path(model)
        return Program(identifier(path.stem.lower()), infer=load(path, rounding=rounding))
    file, colon, name = model.rpartition(":")
    if not colon or not file.endswith(".py"):
        hint = "give file.tflite, file.onnx, or file.py:name, name a Program or a function that returns one"
        raise DataError(f"{model!r} is no model", hint=hint)
    found = _attribute(_module(Path(file)), name, model)
    program = found if isinstance(found, Program) or not callable(found) else _run(found, model)
    if not isinstance(program, Program):
        hint = "make it te.Program(name, infer=...), or a function without arguments that returns one"
        raise DataError(f"{name} is no Program but {type(program).__name__}", where=model, hint=hint)
    return program


def _module(path: Path) -> ModuleType:
    """The executed file; what stands beside it can be imported, but hides no installed module."""
    if not path.is_file():
        raise DataError("there is no such file", where=str(path))
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.append(str(path.resolve().parent))
    sys.modules[MODULE_NAME] = module
    _run(lambda: spec.loader.exec_module(module) if spec.loader else None, str(path))
    return module


def _attribute(module: ModuleType, name: str, model: str) -> Any:
    if not hasattr(module, name):
        programs = [key for key, value in vars(module).items() if isinstance(value, Program)]
        hint = "it has " + ", ".join(programs) if programs else None
        raise DataError(f"the file has no {name!r}", where=model, hint=hint)
    return getattr(module, name)


def _run(function: Any, where: str) -> Any:
    """Calls the user's code. Its own errors become one message; `--debug` shows where they come from."""
    try:
        return function()
    except TeenyError:
        raise
    except (Exception, SystemExit) as error:
        raise DataError(f"the model fails: {type(error).__name__}: {error}", where=where) from error
