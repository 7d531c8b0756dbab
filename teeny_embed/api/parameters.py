"""Parameters as `.safetensors` files: tensors by name, in and out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.errors import DataError, ToolError
from teeny_embed.graph.node import expect_mapping, locating


def save_safetensors(path: str | Path, tensors: Mapping[str, Any]) -> None:
    """Writes tensors by name: `Module.state_dict()`, `FitReport.state`, `te.to_state_dict(...)`.

    Equal tensors give equal bytes. Raises DataError, and ToolError without the package safetensors.
    """
    save = _package().save
    with locating("save_safetensors", str(path)):
        expect_mapping(tensors)
        arrays = {name: _array(name, value) for name, value in tensors.items()}
        try:
            Path(path).write_bytes(save(arrays))
        except OSError as error:
            raise DataError(f"the file cannot be written: {error.strerror}") from None


def load_safetensors(path: str | Path) -> dict[str, npt.NDArray[Any]]:
    """The tensors of a file by name, for `Module.load` and `Program.load`.

    Raises DataError for what is no such file, and ToolError without the package safetensors.
    """
    package = _package()
    with locating("load_safetensors", str(path)):
        try:
            tensors: dict[str, npt.NDArray[Any]] = package.load(Path(path).read_bytes())
        except OSError as error:
            raise DataError(f"the file cannot be read: {error.strerror}") from None
        except Exception as error:  # a damaged file, or a dtype that NumPy does not have
            raise DataError(f"this is no file of tensors: {error}") from None
    return tensors


def _array(name: str, value: Any) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.array(value, order="C")
    except (TypeError, ValueError) as error:
        raise DataError(f"{name!r} is no tensor: {error}") from None
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name!r} is {array.dtype}, no tensor of numbers")
    return array


def _package() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        hint = 'pip install "teeny_embed[safetensors]"'
        raise ToolError(f".safetensors files need the package {error.name}", hint=hint) from None
    return safetensors.numpy
