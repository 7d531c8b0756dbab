"""Extents with a name: traced when they are bound, refused by name when they are not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import teeny_embed as te
from teeny_embed import nn
from teeny_embed.api.samples import inputs_of
from teeny_embed.cli import main
from teeny_embed.graph.deferred import DeferredGraph, named_extents
from teeny_embed.graph.tensor import Tensor


def program(model: nn.Module | None = None) -> te.Program:
    model = model or nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    image, label = te.input("image", (None, 4, 4, 1)), te.input("label", ("N",), "int32")
    step = te.train_step(model, nn.cross_entropy, nn.SGD(momentum=0.9), image, label)
    return te.Program("net", infer=te.trace(model, image), train_step=step)


def shapes(build: te.Build, entry: str) -> dict[str, tuple[int, ...]]:
    found = next(e for e in build.interface.entry_points if e.name == entry)
    return {argument.name: argument.shape for argument in inputs_of(found)}


def test_none_is_named_by_its_position() -> None:
    assert named_extents((None, 28, 28, 1)) == ("N", 28, 28, 1)
    assert named_extents((3, None, None)) == (3, "N", "D2")
    assert named_extents(("batch", None)) == ("batch", "N")
    assert named_extents(()) == ()


@pytest.mark.parametrize("batch", [1, 5])
def test_one_program_is_built_for_any_batch(batch: int, tmp_path: Path) -> None:
    build = te.build(program(), out=tmp_path, dims={"N": batch})
    assert shapes(build, "infer") == {"image": (batch, 4, 4, 1)}
    assert shapes(build, "train_step") == {
        "image": (batch, 4, 4, 1), "label": (batch,), "learning_rate": (),
    }  # fmt: skip
    te.verify(build, steps=3)


def test_a_bound_program_is_the_one_that_fixed_shapes_give() -> None:
    model = nn.Linear(3, 2)
    deferred = te.Program("net", infer=te.trace(model, te.input("x", (None, 3)))).bind({"N": 4})
    fixed = te.Program("net", infer=te.trace(model, te.input("x", (4, 3))))
    assert deferred.text() == fixed.text() and not deferred.dims


def test_dims_are_shared_by_name(tmp_path: Path) -> None:
    a, b = te.input("a", ("N", "K")), te.input("b", ("K", 2))
    product = te.Program("product", infer=te.trace(lambda a, b: a @ b, a, b))
    assert product.dims == ("N", "K")
    with te.open_runner(te.build(product, out=tmp_path, dims={"N": 2, "K": 3})) as runner:
        _, outputs = runner.call(
            "infer", {"a": np.ones((2, 3), np.float32), "b": np.ones((3, 2), np.float32)}
        )
    assert np.array_equal(outputs["output"], np.full((2, 2), 3))


def test_unbound_dims_are_refused_by_name_at_the_line_of_the_input(tmp_path: Path) -> None:
    with pytest.raises(te.GraphError, match=r"dim 'N' of input 'image'") as caught:
        te.build(program(), out=tmp_path)
    assert caught.value.where and caught.value.where.startswith("test_dims.py:")
    assert caught.value.hint and "--dim N=8" in caught.value.hint
    with pytest.raises(te.GraphError, match="dim 'N'"):
        program().text()
    assert not list(tmp_path.iterdir())


def test_unknown_dims_are_refused(tmp_path: Path) -> None:
    with pytest.raises(te.GraphError, match="no dim 'M'") as caught:
        te.build(program(), out=tmp_path, dims={"N": 2, "M": 3})
    assert caught.value.hint == "its dims are N"
    with pytest.raises(te.GraphError, match="no dim 'N'"):
        program().bind({"N": 2}).bind({"N": 3})


@pytest.mark.parametrize("extent", [0, -1, 2.5])
def test_only_extents_of_1_or_more_are_bound(extent: int, tmp_path: Path) -> None:
    with pytest.raises(te.ShapeError, match="extent") as caught:
        te.build(program(), out=tmp_path, dims={"N": extent})
    assert caught.value.where and caught.value.where.startswith("test_dims.py:")


def test_an_unbound_input_is_no_tensor_yet() -> None:
    x = te.input("x", (None, 3))
    for use in (lambda: x + 1, lambda: x.shape, lambda: x.numpy(), lambda: nn.Linear(3, 2)(x)):
        with pytest.raises(te.GraphError, match="no shape before dim 'N' is bound"):
            use()


def test_errors_in_a_deferred_graph_name_the_line_of_the_trace() -> None:
    wrong = te.Program("wrong", infer=te.trace(nn.Linear(5, 2), te.input("x", (None, 3))))
    with pytest.raises(te.ShapeError, match="3 channels") as caught:
        wrong.bind({"N": 4})
    line = next(n for n, text in enumerate(Path(__file__).read_text().split("\n"), 1) if "wrong = te" in text)
    assert caught.value.where == f"test_dims.py:{line}"


def test_name_scopes_of_the_trace_hold_when_dims_are_bound() -> None:
    with te.name_scope("outer"):
        graph = te.trace(lambda x: x * x, te.input("x", (None,)))
    assert isinstance(graph, DeferredGraph)
    (product,) = (n for n in graph.bind({"N": 2}).nodes() if n.inputs)
    assert product.name == "outer/multiply"


def test_binding_again_uses_the_same_parameters_and_moments() -> None:
    unbound = program()
    names = [[v.name for v in unbound.bind({"N": n}).variables()] for n in (1, 2)]
    first, second = (unbound.bind({"N": n}).variables() for n in (1, 2))
    assert names[0] == names[1] and first == second


def test_a_deferred_graph_computes_with_tensors_of_any_shape() -> None:
    graph = te.trace(lambda x: x * 2.0, te.input("x", (None,)))
    assert np.array_equal(graph(te.constant(np.float32([1, 2, 3]))).numpy(), [2, 4, 6])


def test_the_command_line_binds_dims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "import teeny_embed as te\nfrom teeny_embed import nn\n"
    text += 'program = te.Program("net", infer=te.trace(nn.Linear(3, 2), te.input("x", (None, 3))))\n'
    Path("model.py").write_text(text)
    result = CliRunner().invoke(main, ["compile", "model.py:program", "--dim", "N=6", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["interface"]["entry_points"][0]["arguments"][0]["shape"] == [6, 3]
    for words in ([], ["--dim", "N"], ["--dim", "N=x"], ["--dim", "M=2"]):
        refused = CliRunner().invoke(main, ["compile", "model.py:program", *words])
        assert refused.exit_code == 2 and "hint" in refused.output


def test_the_counter_of_random_layers_is_shared_by_all_bindings() -> None:
    def forward(x: Tensor) -> Tensor:
        return model(x)

    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 2))
    x, y = te.input("x", (None, 3)), te.input("y", (None, 2))
    net = te.Program("net", train_step=te.train_step(forward, nn.mse, nn.SGD(), x, y))
    counters = [{v for v in net.bind({"N": n}).variables() if v.name == "random.calls"} for n in (1, 2)]
    assert counters[0] == counters[1] and len(counters[0]) == 1
