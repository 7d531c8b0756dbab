"""MODEL on the command line: `file.py:name`, a `Program` or a function that returns one."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from teeny_embed.api import Program
from teeny_embed.errors import DataError, TeenyError


def load_program(model: str) -> Program:
    """The program that MODEL means. Raises DataError."""
    file, colon, name = model.rpartition(":")
    if not colon or not file.endswith(".py"):
        hint = "give file.py:name, name being a Program or a function that returns one"
        raise DataError(f"{model!r} is no model", hint=hint)
    found = _attribute(_module(Path(file)), name, model)
    program = found if isinstance(found, Program) or not callable(found) else _run(found, model)
    if not isinstance(program, Program):
        hint = "make it te.Program(name, infer=...), or a function without arguments that returns one"
        raise DataError(f"{name} is no Program but {type(program).__name__}", where=model, hint=hint)
    return program


def _module(path: Path) -> ModuleType:
    """The executed file; what stands beside it can be imported."""
    if not path.is_file():
        raise DataError("there is no such file", where=str(path))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
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
    except Exception as error:
        raise DataError(f"the model fails: {type(error).__name__}: {error}", where=where) from error
