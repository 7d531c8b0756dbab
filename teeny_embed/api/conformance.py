"""ONNX's own backend tests, as the package onnx brings them: each case in NumPy, and compiled for the host.

Left out are what no static program is: strings, sequences, optional values, subgraphs, random numbers, empty
tensors, and types that the graph does not have.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from teeny_embed.api.building import build
from teeny_embed.api.program import Program
from teeny_embed.api.running import open_runner
from teeny_embed.deploy.status import OK
from teeny_embed.errors import DataError, TeenyError
from teeny_embed.frontends.onnx import import_model
from teeny_embed.frontends.onnx.model import Array, narrowed
from teeny_embed.frontends.onnx.reader import onnx_package
from teeny_embed.graph.deferred import DeferredGraph, UnboundInput
from teeny_embed.graph.node import Graph

KINDS = ("node", "pytorch-converted", "pytorch-operator", "simple")
ABSOLUTE = 1e-6
"""Least absolute tolerance: a sum that should be 0 is one unit in the last place of its largest term."""
_DTYPES = ("float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "bool")
_NOT_KNOWN = "is not known before"


@dataclass(frozen=True)
class Case:
    """One test: a model, what it is given and what it must give."""

    kind: str
    name: str
    content: bytes
    names: tuple[str, ...]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Outcome:
    """`reason` is empty where the case passed."""

    kind: str
    name: str
    reason: str


def cases(kinds: Sequence[str] = KINDS) -> Iterator[Case]:
    """Those that a static program can be, in the suite's order."""
    onnx = onnx_package()
    from onnx.backend.test.loader import load_model_tests

    for kind in kinds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the suite, which makes infinities and NaN
            found = load_model_tests(kind=kind)
        for test in found:
            case = _case(onnx, test)
            if case is not None:
                yield case


def _case(onnx: Any, test: Any) -> Case | None:
    if test.model is not None:
        proto, (inputs, outputs) = test.model, test.data_sets[0]
    elif test.model_dir and Path(test.model_dir).exists():
        folder = Path(test.model_dir)
        proto = onnx.load_model(folder / "model.onnx")
        data = folder / "test_data_set_0"
        try:
            inputs, outputs = (
                [onnx.numpy_helper.to_array(onnx.load_tensor(p)) for p in _numbered(data, what)]
                for what in ("input", "output")
            )
        except Exception:  # no tensors
            return None
    else:
        return None
    if any(isinstance(a, list | dict) or a is None for a in (*inputs, *outputs)) or not _is_static(proto):
        return None
    arrays = [np.asarray(a) for a in (*inputs, *outputs)]
    if any(a.dtype.name not in _DTYPES or (a.size == 0 and a.ndim != 1) for a in arrays):
        return None
    stored = {t.name for t in proto.graph.initializer}
    names = tuple(i.name for i in proto.graph.input if i.name not in stored)
    ins, outs = arrays[: len(inputs)], arrays[len(inputs) :]
    return Case(
        test.kind, test.name, proto.SerializeToString(), names, tuple(ins), tuple(outs), test.rtol, test.atol
    )


def _numbered(folder: Path, what: str) -> list[Path]:
    return sorted(folder.glob(f"{what}_*.pb"), key=lambda p: int(p.stem.partition("_")[2]))


def _is_static(proto: Any) -> bool:
    graph_attribute = (5, 10)  # AttributeProto.GRAPH and GRAPHS
    nodes = proto.graph.node
    return not (
        any(a.type in graph_attribute for n in nodes for a in n.attribute)
        or any(o.domain.startswith("ai.onnx.") for o in proto.opset_import)
        or any(n.op_type.startswith(("Random", "Bernoulli", "Multinomial")) for n in nodes)
    )


def run_case(case: Case, compiled: bool = True) -> Outcome:
    """The case in NumPy, compared within the suite's tolerance, and if `compiled` in C with equal bits."""
    try:
        return Outcome(case.kind, case.name, _reason(case, compiled))
    except TeenyError as error:
        first, *more = error.what.splitlines()
        return Outcome(case.kind, case.name, more[0].strip() if first.endswith("supported:") else first)


def _reason(case: Case, compiled: bool) -> str:
    graph, given = _imported(case)
    program = Program("net", infer=graph)
    with tempfile.TemporaryDirectory(prefix="teeny_embed_") as folder:
        built = build(program, "host", folder)
        feed = {name: narrowed(a) for (name, _), a in zip(graph.inputs, given, strict=True)}
        found = _call(built, "numpy", feed)
        if reason := _difference(case, list(found.values())):
            return reason
        if compiled:
            in_c = _call(built, "host", feed)
            if any(
                not np.array_equal(_bits(a), _bits(b))
                for a, b in zip(found.values(), in_c.values(), strict=True)
            ):
                return "C and NumPy differ"
    return ""


def _call(built: Any, on: str, feed: Mapping[str, Array]) -> Mapping[str, Array]:
    with open_runner(built, on) as runner:
        runner.reset()
        status, outputs = runner.call("infer", feed)
    if status != OK:
        raise DataError(f"status {status} on {on}")
    return outputs


def _bits(values: Array) -> Array:
    """All NaN are one."""
    flat = np.ascontiguousarray(values)
    return (
        np.where(np.isnan(flat), np.float32(np.nan), flat).view(np.uint32)
        if flat.dtype == np.float32
        else flat
    )


def _difference(case: Case, found: Sequence[Array]) -> str:
    for ours, theirs in zip(found, case.outputs, strict=True):
        if ours.shape != theirs.shape:
            return f"shape {ours.shape}, expected {theirs.shape}"
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        if not np.allclose(a, b, rtol=case.rtol, atol=max(case.atol, ABSOLUTE), equal_nan=True):
            return "another result"
    return ""


def _imported(case: Case) -> tuple[Graph, list[Array]]:
    """The graph, and its inputs: what must be known before, such as a shape, is given as a constant."""
    by_name = dict(zip(case.names, case.inputs, strict=False))
    constants = {name: a for name, a in by_name.items() if a.size == 0}
    while True:
        try:
            return _bound(import_model(case.content, case.name, constants), by_name, constants)
        except DataError as error:
            more = _needed(error, by_name, constants)
            if not more:
                raise
            constants |= more


def _needed(
    error: DataError, by_name: Mapping[str, Array], constants: Mapping[str, Array]
) -> dict[str, Array]:
    """The input that was asked for; if that is computed from others, all integers."""
    if _NOT_KNOWN not in error.what:
        return {}
    asked = error.what.split("'")[1]
    if asked in by_name:
        return {asked: by_name[asked]}
    return {n: a for n, a in by_name.items() if n not in constants and a.dtype.kind in "iub"}


def _bound(
    graph: Graph | DeferredGraph, by_name: Mapping[str, Array], constants: Mapping[str, Array]
) -> tuple[Graph, list[Array]]:
    given = [a for name, a in by_name.items() if name not in constants]
    if isinstance(graph, Graph):
        return graph, given
    dims = {
        extent: a.shape[axis]
        for each, a in zip(graph.inputs, given, strict=True)
        if isinstance(each, UnboundInput)
        for axis, extent in enumerate(each.extents)
        if isinstance(extent, str)
    }
    return graph.bind(dims), given
