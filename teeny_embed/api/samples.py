"""Inputs for an entry point: drawn at random, or the user's own, one sample after the other."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.deploy.runner import Array
from teeny_embed.emit_c.interface import Argument, EntryPoint, Interface
from teeny_embed.errors import DataError
from teeny_embed.graph.node import Graph

Arrays = Mapping[str, npt.NDArray[Any]]


def inputs_of(entry: EntryPoint) -> list[Argument]:
    """The inputs, in order."""
    return [argument for argument in entry.arguments if argument.direction == "in"]


def outputs_of(entry: EntryPoint) -> list[Argument]:
    """The outputs, in order."""
    return [argument for argument in entry.arguments if argument.direction == "out"]


def rates(graph: Graph) -> list[str]:
    """Names of inputs that are learning rates."""
    return [check.node.name for check in graph.checks if check.kind == "rate"]


# ---- Random -------------------------------------------------------------------------------------------


def generator(seed: int) -> np.random.Generator:
    """NumPy's generator. Raises DataError for a seed that it does not take."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise DataError(f"seed {seed!r}: {error}", hint="give an integer, at least 0") from None


def draw(entry: EntryPoint, graph: Graph, rng: np.random.Generator, lr: float) -> dict[str, Array]:
    """Inputs that the entry point accepts: normal floats, integers in range, `lr` for learning rates."""
    bounds = {check.node.name: check.bound for check in graph.checks if check.kind == "range"}
    drawn = {a.name: _draw(a, bounds.get(a.name), rng) for a in inputs_of(entry)}
    return drawn | {name: np.asarray(lr, np.float32) for name in rates(graph)}


def _draw(argument: Argument, bound: int | None, rng: np.random.Generator) -> Array:
    dtype = np.dtype(argument.dtype)
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(argument.shape), dtype)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, argument.shape), dtype)
    limits = np.iinfo(dtype)
    low, high = (0, bound) if bound is not None else (int(limits.min), int(limits.max) + 1)
    return np.asarray(rng.integers(low, high, argument.shape, dtype), dtype)


# ---- The user's -----------------------------------------------------------------------------------------


def read_vectors(path: Path) -> dict[str, Array]:
    """The arrays of an .npz file. Raises DataError."""
    try:
        with path.open("rb") as file:  # closed here also where np.load fails
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError("the file is no .npz archive", where=str(path))
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"the vectors cannot be read: {error}", where=str(path)) from None


def matching(interface: Interface, graphs: Mapping[str, Graph], vectors: Arrays) -> list[EntryPoint]:
    """The entry points whose inputs `vectors` hold, learning rates aside; the first if all go by position.

    An array is named after an input or output, or in0, in1, ..., out0, ... by position. Raises DataError.
    """
    found = [e for e in interface.entry_points if not _missing(e, graphs[e.name], vectors)]
    if not found:
        first = interface.entry_points[0]
        missing = _missing(first, graphs[first.name], vectors)[0]
        hint = (
            f"they hold {', '.join(vectors) or 'nothing'}; name it {missing!r}, or by position in0, in1, ..."
        )
        raise DataError(f"the vectors lack input {missing!r} of {first.name}", hint=hint)
    known = {name for entry in interface.entry_points for name in _names(entry)}
    if unknown := sorted(set(vectors) - known):
        hint = f"known are {', '.join(sorted(known))}"
        raise DataError(f"the vectors hold {unknown[0]!r}, which is no input or output", hint=hint)
    return found if set(vectors) & {a.name for e in found for a in inputs_of(e)} else found[:1]


def samples(
    entry: EntryPoint, graph: Graph, vectors: Arrays, lr: float
) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
    """Inputs and expected outputs of each call; samples are along the first axis. Raises DataError."""
    inputs, outputs = _pick(vectors, inputs_of(entry), "in"), _pick(vectors, outputs_of(entry), "out")
    counts = {name: len(array) for name, array in (inputs | outputs).items()}
    if len(set(counts.values())) != 1:
        raise DataError(f"the vectors differ in their number of samples: {counts}")
    if 0 in counts.values():
        raise DataError("the vectors hold no samples")
    fixed = {name: np.asarray(lr, np.float32) for name in rates(graph)}
    for i in range(min(counts.values())):
        yield fixed | {n: a[i] for n, a in inputs.items()}, {n: a[i] for n, a in outputs.items()}


def _names(entry: EntryPoint) -> Iterator[str]:
    """What an array in vectors for this entry point may be called."""
    for prefix, arguments in (("in", inputs_of(entry)), ("out", outputs_of(entry))):
        for position, argument in enumerate(arguments):
            yield from (argument.name, f"{prefix}{position}")


def _missing(entry: EntryPoint, graph: Graph, vectors: Arrays) -> list[str]:
    fixed, arguments = rates(graph), inputs_of(entry)
    names = [(a.name, f"in{position}") for position, a in enumerate(arguments) if a.name not in fixed]
    return [name for name, by_position in names if name not in vectors and by_position not in vectors]


def _pick(vectors: Arrays, arguments: list[Argument], prefix: str) -> dict[str, Array]:
    found = {}
    for position, argument in enumerate(arguments):
        name = argument.name if argument.name in vectors else f"{prefix}{position}"
        if name in vectors:
            found[argument.name] = as_samples(vectors[name], argument)
    return found


def as_array(value: npt.ArrayLike, name: str) -> Array:
    """`value` as an array of numbers. Raises DataError."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        hint = "give numbers, or a regular list of them"
        raise DataError(f"{name} is no array: {error}", hint=hint) from None
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} holds no numbers but {array.dtype}", hint="give numbers, or booleans")
    return array


def as_samples(array: npt.ArrayLike, argument: Argument) -> Array:
    """[samples, *shape] of the argument's dtype; a leading extent 1 of the shape may be left out."""
    given = as_array(array, argument.name)
    shapes = [argument.shape, argument.shape[1:]] if argument.shape[:1] == (1,) else [argument.shape]
    if given.ndim == 0 or given.shape[1:] not in shapes:
        raise DataError(
            f"{argument.name} has samples of shape {list(given.shape[1:])}, expected {list(argument.shape)}",
            hint="samples are along the first axis",
        )
    return cast(given, argument).reshape(len(given), *argument.shape)


def cast(array: Array, argument: Argument) -> Array:
    """`array` in the argument's dtype: floats are rounded, integers must keep their value."""
    wanted = np.dtype(argument.dtype)
    if array.dtype == wanted:
        return array
    with np.errstate(all="ignore"):
        converted = array.astype(wanted)
    if wanted.kind != "f" and (array.dtype.kind == "f" or not np.array_equal(converted, array)):
        hint = f'convert it with .astype("{wanted}")'
        raise DataError(f"{argument.name} is {array.dtype}: values would change as {wanted}", hint=hint)
    return converted


def batches(arrays: list[Array], arguments: list[Argument], batch: int) -> Iterator[dict[str, Array]]:
    """Whole batches of data along their first axis, in order; each in its argument's shape."""
    for start in range(0, len(arrays[0]) - batch + 1, batch):
        yield {
            argument.name: array[start : start + batch].reshape(argument.shape)
            for array, argument in zip(arrays, arguments, strict=True)
        }
