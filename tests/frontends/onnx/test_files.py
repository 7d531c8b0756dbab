"""Files made here: open extents, constants for inputs, what is refused, and what is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed.errors import DataError, TeenyError
from teeny_embed.frontends.onnx import import_model
from teeny_embed.graph.deferred import DeferredGraph
from teeny_embed.graph.lower import Evaluator
from teeny_embed.graph.node import Graph

onnx = pytest.importorskip("onnx")
FLOAT, INT64, BOOL = 1, 7, 9


def model_of(nodes: list[Any], inputs: dict[str, Any], outputs: list[str], **stored: Any) -> bytes:
    """`inputs` are shapes of floats, or (type, shape)."""
    helper = onnx.helper
    pairs = {n: s if isinstance(s, tuple) else (FLOAT, s) for n, s in inputs.items()}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in pairs.items()],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs],
        [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in stored.items()],
    )
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    return content


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return onnx.helper.make_node(kind, inputs.split(), outputs.split(), name=f"own_{kind}", **attributes)


def evaluated(graph: Graph | DeferredGraph, **feed: Any) -> Any:
    assert isinstance(graph, Graph)
    found, _ = Evaluator(graph)({n: np.asarray(v, np.float32) for n, v in feed.items()})
    return next(iter(found.values()))


def test_open_extents_are_bound_when_the_graph_is_built() -> None:
    content = model_of([node("Relu", "x", "y")], {"x": ["N", 3]}, ["y"])
    graph = import_model(content, "file")
    assert isinstance(graph, DeferredGraph) and list(graph.unbound) == ["N"]
    assert graph.bind({"N": 2}).outputs[0][1].type.shape == (2, 3)


def test_chains_of_shapes_are_folded() -> None:
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Unsqueeze", "n axes", "m"),
        node("Concat", "m rest", "to", axis=0), node("Reshape", "x to", "y"),
    ]  # fmt: skip
    content = model_of(
        nodes, {"x": [2, 3, 4]}, ["y"], zero=np.int64(0), axes=np.int64([0]), rest=np.int64([12])
    )
    assert evaluated(import_model(content, "file"), x=np.zeros((2, 3, 4))).shape == (2, 12)


def test_an_input_that_is_a_shape_is_asked_for_and_taken_as_a_constant() -> None:
    content = model_of([node("Reshape", "x to", "y")], {"x": [6], "to": (INT64, [2])}, ["y"])
    with pytest.raises(DataError, match="'to' is not known"):
        import_model(content, "file")
    graph = import_model(content, "file", {"to": np.int64([2, 3])})
    assert evaluated(graph, x=np.arange(6)).shape == (2, 3)
    with pytest.raises(DataError, match="no input 'other'"):
        import_model(content, "file", {"other": np.int64(1)})


def test_what_is_empty_adds_nothing() -> None:
    nodes = [
        node("Slice", "x at at axes", "none"), node("Concat", "none x", "y", axis=1),
    ]  # fmt: skip
    content = model_of(nodes, {"x": [2, 3]}, ["y"], at=np.int64([3]), axes=np.int64([1]))
    x = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(evaluated(import_model(content, "file"), x=x), x)


def test_old_versions_are_read_where_no_operator_was_another() -> None:
    for kind, readable in (("Sigmoid", False), ("Not", True)):
        content = model_of([node(kind, "x", "y")], {"x": (BOOL if readable else FLOAT, [1])}, ["y"])
        model = onnx.load_model_from_string(content)
        model.opset_import[0].version = 5
        if readable:
            import_model(model.SerializeToString(), "file")
        else:
            with pytest.raises(DataError, match="version 5"):
                import_model(model.SerializeToString(), "file")


def test_initializers_are_parameters_under_their_names() -> None:
    content = model_of([node("MatMul", "x weight", "y")], {"x": [1, 2]}, ["y"], weight=np.float32([[1], [2]]))
    graph = import_model(content, "file")
    assert isinstance(graph, Graph)
    assert [(v.name, v.kind) for v in graph.variables()] == [("weight", "parameter")]


def test_all_operators_that_are_not_supported_are_listed() -> None:
    nodes = [node("NonZero", "x", "a"), node("Det", "x", "b"), node("Relu", "x", "c")]
    with pytest.raises(DataError) as caught:
        import_model(model_of(nodes, {"x": [2, 2]}, ["a", "b", "c"]), "net.onnx")
    assert "NonZero (own_NonZero)" in caught.value.what and "Det (own_Det)" in caught.value.what
    assert "Relu" not in caught.value.what


def test_a_cycle_is_refused() -> None:
    nodes = [node("Add", "x b", "a"), node("Relu", "a", "b")]
    with pytest.raises(DataError, match="'b', which nothing before it computes"):
        import_model(model_of(nodes, {"x": [1]}, ["b"]), "file")


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"nonsense", bytes(100)):
        path = tmp_path / "net.onnx"
        path.write_bytes(content)
        with pytest.raises(DataError):
            te.load(path)
    with pytest.raises(DataError, match="cannot be read"):
        te.load(tmp_path / "none.onnx")


def mutations(content: bytes, count: int) -> list[bytes]:
    """Flipped bits, cut ends, and runs overwritten."""
    rng = np.random.default_rng(11)
    found = []
    for number in range(count):
        changed = bytearray(content)
        at = int(rng.integers(len(changed)))
        if number % 3 == 0:
            changed[at] ^= 1 << int(rng.integers(8))
        elif number % 3 == 1:
            del changed[at:]
        else:
            changed[at : at + 8] = rng.bytes(8)
        found.append(bytes(changed))
    return found


@pytest.mark.filterwarnings("ignore")  # of onnx and NumPy, about what the damaged numbers give
@pytest.mark.parametrize("count", [20, pytest.param(170, marks=pytest.mark.full)])
@pytest.mark.parametrize("model", ["tfl_helloworld", "mnist14_cnn", "lstm_keras_tiny"])
def test_a_damaged_file_is_a_clear_error_or_a_model(model: str, count: int, shared: Path) -> None:
    content = (shared / "models" / "onnx" / f"{model}.onnx").read_bytes()
    for changed in mutations(content, count):
        try:
            import_model(changed, "damaged.onnx")
        except TeenyError as error:
            assert error.what
