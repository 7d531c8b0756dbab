"""Reading files: what they say, and refusals of what makes no sense, which name file, operator and tensor."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import pytest

import teeny_embed as te
from support.tflite import Runner, SharedModel
from support.tflite_files import Graph, Op, T, constant, file, model
from teeny_embed.errors import DataError, TeenyError, ToolError
from teeny_embed.frontends.tflite import import_model
from teeny_embed.frontends.tflite.reader import read_model


def dense(**changes: object) -> bytes:
    """A FULLY_CONNECTED net with some part of it changed."""
    parts = {
        "x": T((1, 4), "int8", scale=0.1, zero_point=1, name="x"),
        "w": constant(np.ones((3, 4)), "int8", scale=0.02, name="weights"),
        "b": constant(np.ones(3), "int32", scale=0.002, name="bias"),
        "y": T((1, 3), "int8", scale=0.1, zero_point=1, name="y"),
        "operator": Op("FULLY_CONNECTED", [0, 1, 2], [3], {}, "FullyConnectedOptions"),
        **changes,
    }
    operator = parts.pop("operator")
    return model(list(parts.values()), [operator], [0], [3])  # type: ignore[arg-type, list-item]


def refusal(content: bytes) -> TeenyError:
    with pytest.raises(TeenyError) as caught:
        import_model(content, "net.tflite")
    return caught.value


# ---- What a file says -------------------------------------------------------------------------------------


def test_a_model_is_read_as_plain_data() -> None:
    read = read_model(dense(), "net.tflite")
    (subgraph,) = read.subgraphs
    assert [t.name for t in subgraph.tensors] == ["x", "weights", "bias", "y"]
    (operator,) = subgraph.operators
    assert (operator.name, operator.inputs, operator.outputs) == ("FULLY_CONNECTED", (0, 1, 2), (3,))
    assert operator.options["keep_num_dims"] is False
    assert subgraph.tensors[0].zero_point == 1 and subgraph.tensors[1].data is not None


def test_weights_stay_as_small_as_they_are() -> None:
    imported = import_model(dense(), "net.tflite")
    constants = [n.attributes["value"] for n in imported.graph.nodes() if n.op.name == "constant"]
    assert [c.dtype.name for c in constants if c.shape == (3, 4)] == ["int8"]


def test_packed_4_bit_weights_are_unpacked() -> None:
    values = np.arange(-8, 7).reshape(3, 5)
    weights = constant(values, "int4", scale=0.02)
    read = read_model(dense(x=T((1, 5), "int8", scale=0.1), w=weights), "net.tflite")
    np.testing.assert_array_equal(read.subgraphs[0].tensors[1].data, values)


def test_nodes_are_named_after_the_layers_of_the_file(shared: Path) -> None:
    graph = SharedModel(shared, "mlperf_tiny/kws_dscnn_int8").imported.graph
    softmax = graph.nodes()[-1]
    assert softmax.name.startswith("Identity/") and softmax.where == "kws_dscnn_int8.tflite:op 12"


def test_arguments_have_the_names_of_the_signature() -> None:
    net = Graph(
        [T((4,), name="serving_default_x:0"), T((4,), name="Identity")], [Op("RELU", [0], [1])], [0], [1]
    )
    named = import_model(file([net], {"features": 0}, {"scores": 1}), "net.tflite").graph
    assert [named.inputs[0][0], named.outputs[0][0]] == ["features", "scores"]
    plain = import_model(file([net]), "net.tflite").graph
    assert [plain.inputs[0][0], plain.outputs[0][0]] == ["serving_default_x", "identity"]


def test_two_arguments_of_one_name_are_told_apart() -> None:
    tensors = [T((4,), name="a/x"), T((4,), name="b/x"), T((4,), name="y")]
    graph = import_model(
        model(tensors, [Op("ADD", [0, 1], [2], {}, "AddOptions")], [0, 1], [2]), "net.tflite"
    ).graph
    assert [name for name, _ in graph.inputs] == ["x", "x_1"]


def test_what_is_computed_from_constants_is_a_constant() -> None:
    tensors = [
        T((1, 4), name="x"),
        constant(np.arange(12).reshape(3, 4) / 8, "float16"),
        T((3, 4), name="weights"),
        T((1, 3), name="y"),
    ]
    operators = [
        Op("DEQUANTIZE", [1], [2], {}, "DequantizeOptions"),
        Op("FULLY_CONNECTED", [0, 2], [3], {}, "FullyConnectedOptions"),
    ]
    graph = import_model(model(tensors, operators, [0], [3]), "net.tflite").graph
    assert "cast" not in [node.op.name for node in graph.nodes()]
    (y,) = Runner(graph)(np.ones((1, 4), np.float32))
    np.testing.assert_array_equal(y, [[0.75, 2.75, 4.75]])


# ---- Refusals ---------------------------------------------------------------------------------------------


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"")
    with pytest.raises(DataError, match="onnx"):
        te.load(path)
    with pytest.raises(DataError, match="identifier TFL3"):
        import_model(b"PK" * 40, "net.tflite")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        te.load(tmp_path / "no.tflite")


def test_an_unknown_rounding_is_refused() -> None:
    with pytest.raises(DataError, match="xnnpack"):
        import_model(dense(), "net.tflite", rounding="xnnpack")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tflite", None)
    with pytest.raises(ToolError) as caught:
        import_model(dense(), "net.tflite")
    assert caught.value.hint == 'pip install "teeny_embed[tflite]"'


def test_an_unsupported_operator_is_named_with_its_place() -> None:
    error = refusal(dense(operator=Op("FFT_OF_OURS", [0], [3])))
    assert "FFT_OF_OURS" in str(error) and error.where == "net.tflite:op 0"


def test_an_unsupported_element_type_is_named() -> None:
    error = refusal(model([T((4,), "uint32"), T((4,), "uint32")], [Op("RELU", [0], [1])], [0], [1]))
    assert "uint32" in error.what and error.where == "net.tflite:op 0"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"w": constant(np.ones((3, 4)), "int8", name="weights")}, "weights"),
        ({"y": T((1, 3), "int8", name="y")}, "'y' is not quantised"),
        ({"y": T((1, 3), "int8", scale=0.0, name="y")}, "a scale is 0"),
        ({"y": T((1, 5), "int8", scale=0.1, name="y")}, "has 5"),
        ({"b": constant(np.ones(2), "int32", scale=0.002)}, "bias is int32"),
        ({"w": constant(np.ones((3, 4)), "int8", scale=[0.1, 0.2])}, "2 scales along axis 0"),
        ({"x": T((1, 4), "int8", scale=0.1, zero_point=300, name="x")}, "zero point is no int8"),
        ({"x": T((1, 4), "int8", scale=float("nan"), name="x")}, "not finite"),
        ({"w": constant(np.ones((3, 4)), "int8", scale=1e30)}, "rescaled by"),
        ({"x": T((1, 1 << 30, 1 << 30), "int8", scale=0.1)}, "more than 16777216 elements"),
        ({"x": T((1, -4), "int8", scale=0.1)}, "makes no tensor"),
        ({"w": T((3, 4), "int8", np.ones((3, 5), "int8"), scale=0.1, name="weights")}, "takes 12 bytes"),
        ({"operator": Op("FULLY_CONNECTED", [0, 9, 2], [3])}, "tensor 9 of 4 tensors"),
        ({"operator": Op("FULLY_CONNECTED", [0, -1, 2], [3])}, "operand 1 is missing"),
        ({"operator": Op("FULLY_CONNECTED", [3, 1, 2], [3])}, "before it is computed"),
        ({"operator": Op("FULLY_CONNECTED", [0, 1, 2], [3, 0])}, "results"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(changes: dict[str, object], message: str) -> None:
    error = refusal(dense(**changes))
    assert message in str(error) and str(error.where).startswith("net.tflite")


def test_a_scale_that_the_rule_of_wide_sums_does_not_define_is_refused() -> None:
    x, y = T((1, 4), "int16", scale=0.1), T((1, 3), "int16", scale=0.1)
    weights, bias = constant(np.ones((3, 4)), "int8", scale=1e3), constant(np.ones(3), "int64", scale=100)
    assert "rescaled by" in refusal(dense(x=x, w=weights, b=bias, y=y)).what


def test_a_tensor_has_one_value() -> None:
    for written in (0, 2):  # an input, a constant
        tensors = [T((4,), name="x"), T((4,), name="y"), constant(np.ones(4), "float32", name="ones")]
        operators = [Op("ADD", [0, 2], [1], {}, "AddOptions"), Op("RELU", [1], [written])]
        assert "has a value already" in refusal(model(tensors, operators, [0], [1])).what


# ---- Damage -----------------------------------------------------------------------------------------------

SMALL_MODELS = (
    "tflm/hello_world_int8",
    "tflm/simple_add",
    "tflm/seanet_int16x8/conv18",
    "tflm/hello_world_float",
)


def damaged(content: bytes, seed: int) -> bytes:
    """The file with one to three words changed, to something like an offset, extent or index, or cut off."""
    rng = random.Random(seed)
    data = bytearray(content)
    if rng.random() < 0.1:
        return bytes(data[: rng.randrange(len(data))])
    for _ in range(rng.randrange(1, 4)):
        width = rng.choice((1, 2, 4, 8))
        at = rng.randrange(0, len(data) - width)
        at -= at % min(width, 4)
        small, old = rng.randrange(-3, 300), int.from_bytes(data[at : at + width], "little")
        value = rng.choice(
            (0, small, old + rng.randrange(-9, 10), 1 << rng.randrange(8 * width), -1, old ^ 0x80)
        )
        data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(data)


def survives(content: bytes) -> bool:
    """Whether the file is read; a graph that comes of it can be evaluated."""
    try:
        graph = import_model(content, "net.tflite").graph
    except TeenyError as error:
        assert error.what and error.where, error
        return False
    sizes = [node.type.count for node in graph.nodes()]
    if max(sizes) < 1 << 16:
        Runner(graph)(*(np.zeros(node.type.shape, node.type.dtype) for _, node in graph.inputs))
    return True


@pytest.mark.parametrize("name", SMALL_MODELS)
def test_a_damaged_file_is_refused_or_is_a_model(shared: Path, name: str) -> None:
    content = SharedModel(shared, name).path.read_bytes()
    outcomes = [survives(damaged(content, seed)) for seed in range(125)]
    assert not all(outcomes)


@pytest.mark.full
@pytest.mark.parametrize("name", SMALL_MODELS)
def test_many_damaged_files_are_refused_or_are_models(shared: Path, name: str) -> None:
    content = SharedModel(shared, name).path.read_bytes()
    assert not all(survives(damaged(content, seed)) for seed in range(1000, 3000))
