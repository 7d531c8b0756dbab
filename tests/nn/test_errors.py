"""Mistakes: each is refused with what is wrong, in which layer, at which line, and what to do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed import nn

Mistake = Callable[[], Any]


def x(*shape: int) -> te.Tensor:
    return te.constant(np.ones(shape, np.float32))


def image(*shape: int) -> te.Tensor:
    return te.input("image", shape)


def label(*shape: int, dtype: str = "int32") -> te.Tensor:
    return te.input("label", shape, dtype)


def weight() -> te.Variable:
    return te.Variable("weight", np.ones(3, np.float32))


def net(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), *layers)


GRAPH, SHAPE, DTYPE = te.GraphError, te.ShapeError, te.DTypeError
VALUE, DATA = te.AttributeValueError, te.DataError
MISTAKES: list[tuple[Mistake, type[te.TeenyError], str]] = [
    # Inputs
    (lambda: te.input("my image", (1, 3)), GRAPH, "'my image' is no C identifier"),
    (lambda: te.input("1st", (1, 3)), GRAPH, "'1st' is no C identifier"),
    (lambda: te.input("image", (0, 3)), SHAPE, r"'image': shape \(0, 3\)"),
    (lambda: te.input("image", 3), SHAPE, "'image': shape 3 is no tuple"),
    (lambda: te.input("image", (3,), "float"), DTYPE, "'image': unknown dtype 'float'"),
    # Tracing
    (lambda: te.trace(lambda a, b: a + b, image(3), image(3)), GRAPH, "two inputs are called 'image'"),
    (lambda: te.trace(net(), x(3)), GRAPH, "argument 1 is a Tensor, no input"),
    (lambda: te.trace(net(), np.ones(3)), GRAPH, "argument 1 is a ndarray, no input"),
    (lambda: te.trace("net", image(3)), GRAPH, "a str cannot be called"),
    (lambda: te.trace(lambda a: None, image(3)), GRAPH, "the function returned None"),
    (lambda: te.trace(lambda a: (a, a), image(3), names=("y",)), GRAPH, "1 names for 2 outputs"),
    (lambda: te.trace(lambda a: a + label(3, dtype="float32"), image(3)), GRAPH, "'label' is used but"),
    (lambda: te.trace(lambda a: a if a.sum() > 0 else -a, image(3)), GRAPH, "'image' has no value"),
    (lambda: image(3).numpy(), GRAPH, "'image' has no value"),
    # Tensors
    (lambda: x(2, 3) + x(4), SHAPE, r"add \(add\): shapes \[2, 3\] and \[4\]"),
    (lambda: x(2) + te.constant(np.ones(2, "i8")), DTYPE, "float32 and int64 promote to float64"),
    (lambda: te.constant(np.ones(2, "i1")) + 300, DTYPE, "300 is no tensor of int8"),
    (lambda: te.constant("text"), DTYPE, "constant: unknown dtype"),
    (lambda: te.constant([[1], [1, 2]]), DTYPE, "is no tensor of numbers"),
    (lambda: x(2, 3) @ x(2, 3), SHAPE, "do not multiply"),
    (lambda: x(2, 3).reshape(4, 2), SHAPE, "has 6 elements"),
    (lambda: x(2, 3).reshape(2.5, 3), VALUE, "integer"),
    (lambda: x(2, 3).transpose(0, 0), SHAPE, "do not reorder the 2 axes"),
    (lambda: x(2, 3).sum(axis=2), SHAPE, r"axes \(2,\) of a tensor of rank 2"),
    (lambda: x(2, 3)[2], SHAPE, r"indexing float32\[2,3\]: position 2 of 2"),
    (lambda: x(2, 3)[0, 1, 2], SHAPE, "3 entries for 2 axes"),
    (lambda: x(2, 3)[::-1], SHAPE, "runs backwards"),
    (lambda: x(2, 3)[1.5], SHAPE, "1.5 is no index"),
    (lambda: x(2, 3).astype("bfloat16"), VALUE, "'bfloat16': no dtype"),
    (lambda: te.softmax(x(2, 3), axes=1), VALUE, "unknown attribute 'axes'"),
    (lambda: te.softmax(x(2, 3), axis=2), SHAPE, r"axes \(2,\)"),
    (lambda: te.add(x(2)), GRAPH, "1 operands, expected 2"),
    (lambda: te.concat(x(2, 3), x(2, 3), axis=2), SHAPE, "axis 2 of"),
    (lambda: te.conv(x(1, 4, 4, 1), x(1, 2, 2, 1), stride=(1,)), SHAPE, "for 2 spatial dims"),
    (lambda: te.where(x(3), x(3), x(3)), DTYPE, "condition is float32, expected bool"),
    (lambda: te.exp(te.constant(1, "int32")), DTYPE, r"exp \(exp\): operand is int32"),
    # Variables
    (lambda: te.assign(weight(), x(4)), SHAPE, r"'weight' is float32\[3\], the value is float32\[4\]"),
    (lambda: te.assign(weight(), x(3).astype("int32")), DTYPE, r"the value is int32\[3\]"),
    (lambda: te.assign(x(3), x(3)), GRAPH, "a Tensor is no variable"),
    (lambda: te.read("weight"), GRAPH, "a str is no variable"),
    (lambda: te.Variable("weight", np.array(["a"])), DTYPE, "variable 'weight': unknown dtype"),
    (lambda: te.grad(x(3) * 2.0, [x(3)]), SHAPE, "expected rank 0"),
    # Layers when they are made
    (lambda: nn.Linear(0, 3), VALUE, "Linear: inputs = 0"),
    (lambda: nn.Linear(3, 2.5), VALUE, "Linear: outputs = 2.5"),
    (lambda: nn.Conv2d(3, 4, 3, groups=2), SHAPE, "Conv2d: 3 inputs and 4 outputs for 2 groups"),
    (lambda: nn.Conv2d(3, 4, (3, 3, 3)), VALUE, r"kernel = \(3, 3, 3\) has 3 entries"),
    (lambda: nn.Conv1d(3, 4, 3, stride=0), VALUE, "Conv1d: stride = 0"),
    (lambda: nn.MaxPool2d(0), VALUE, "MaxPool2d: kernel = 0"),
    (lambda: nn.Dropout(1.0), VALUE, "Dropout: rate = 1.0"),
    (lambda: nn.BatchNorm2d(3.0), VALUE, "channels = 3.0"),
    (lambda: nn.Sequential(nn.ReLU(), te.exp), GRAPH, "entry 1 is a function, no Module"),
    # Layers when they are called
    (lambda: net(nn.Linear(4, 2))(x(1, 3)), SHAPE, r"linear1/conv\): .* 3 channels, .* expects 4"),
    (lambda: net(nn.Linear(4, 2))(x(1, 2, 2)), SHAPE, r"Linear \(linear1\): .* is not \[N, inputs\]"),
    (lambda: net(nn.Conv2d(3, 4, 3))(x(8, 8, 3)), SHAPE, r"Conv2d \(conv1\): .* 2 spatial dims"),
    (lambda: net(nn.Conv2d(3, 4, 9))(x(1, 8, 8, 3)), SHAPE, r"conv1/conv\): window of 9"),
    (lambda: net(nn.Conv2d(1, 1, 3, padding="valid"))(x(1, 8, 8, 1)), VALUE, r"\(conv1\).*valid"),
    (lambda: net(nn.MaxPool2d(2))(x(1, 3)), SHAPE, r"MaxPool2d \(max_pool1\)"),
    (lambda: net(nn.BatchNorm2d(4))(x(1, 2, 2, 3)), SHAPE, r"\(batch_norm1\): .* has not 4 channels"),
    (lambda: net(nn.LayerNorm(4))(x(2, 3)), SHAPE, r"\(layer_norm1\): .* the extents \[4\]"),
    (lambda: net(nn.Embedding(4, 3))(x(1, 3)), DTYPE, r"embedding1/take\): index is float32"),
    (lambda: net(net(nn.Softmax(2)))(x(1, 3)), SHAPE, "sequential1/softmax1/softmax"),
    (lambda: nn.Module()(x(1)), GRAPH, "no method forward"),
    (lambda: nn.Linear(3, 2).load({"weight": [[0]], "bias": [0, 0]}), DATA, r"\[1, 1\] for 'weight'"),
    # Losses and training steps
    (lambda: step(nn.cross_entropy, label(3)), SHAPE, r"loss/cross_entropy\): label int32\[3\] must have"),
    (lambda: step(nn.cross_entropy, label(2, 4)), SHAPE, r"label int32\[2,4\] must have"),
    (lambda: step(nn.cross_entropy, label()), SHAPE, r"label int32\[\] must have"),
    (lambda: step(nn.cross_entropy, label(2, dtype="float32")), DTYPE, "label is float32"),
    (lambda: step(nn.mse, label(2, dtype="float32")), SHAPE, r"target float32\[2\] for a prediction"),
    (lambda: step(lambda p, t: p - t, label(2, 4, dtype="float32")), SHAPE, r"the loss is float32\[2,4\]"),
    (lambda: step(lambda p, t: None, label(2)), SHAPE, "the loss is None"),
    (lambda: te.train_step(nn.ReLU(), nn.mse, nn.SGD, image(1), label(1)), GRAPH, r"make one, SGD\(\)"),
    (lambda: te.train_step(nn.ReLU(), nn.mse, nn.SGD(), image(1)), GRAPH, "1 inputs are too few"),
    (lambda: te.train_step(nn.ReLU(), nn.l1, nn.SGD(), image(1), te.input("y", (1,))), GRAPH, "no train"),
    (lambda: nn.SGD(momentum=-0.1), VALUE, "SGD: momentum = -0.1"),
    (lambda: nn.SGD(nesterov=True), VALUE, "nesterov without momentum"),
    (lambda: nn.Adam(beta1=1.0), VALUE, "Adam: beta1 = 1.0"),
    (lambda: nn.clip_by_norm(-1.0), VALUE, "limit = -1.0"),
    # Programs
    (lambda: te.Program("Net", infer=te.trace(net(), image(3))), GRAPH, "'Net': .*no lower-case C"),
    (lambda: te.Program("net"), GRAPH, "no entry points"),
    (lambda: te.Program("net", infer=nn.ReLU()), GRAPH, "entry point 'infer' is a ReLU, no graph"),
    (lambda: te.Program("net", reset=te.trace(net(), image(3))), GRAPH, "'reset' is a name"),
    (lambda: te.Program("net", a=step_of(), b=step_of()), GRAPH, "two variables are called 'bias'"),
    (lambda: half(te.input("rate", (), "float16")), DTYPE, "'rate' of rank 0 is float16"),
]  # fmt: skip


def step(loss: Callable[..., Any], target: te.Tensor) -> Any:
    return te.train_step(nn.Linear(3, 4), loss, nn.SGD(), image(2, 3), target)


def step_of() -> Any:
    return te.train_step(nn.Linear(3, 4), nn.mse, nn.SGD(), image(2, 3), label(2, 4, dtype="float32"))


def half(rate: te.Tensor) -> te.Program:
    return te.Program("net", infer=te.trace(lambda r: r.astype("float32"), rate))


@pytest.mark.parametrize("mistake, kind, what", MISTAKES, ids=[what for _, _, what in MISTAKES])
def test_mistakes_are_explained(mistake: Mistake, kind: type[te.TeenyError], what: str) -> None:
    with pytest.raises(te.TeenyError) as caught:
        mistake()
    error = caught.value
    assert type(error) is kind and re.search(what, error.what), str(error)
    assert error.where is not None and re.fullmatch(r"test_errors\.py:\d+", error.where), error.where
    assert error.hint, "no advice"


def test_the_line_is_that_of_the_call() -> None:
    with pytest.raises(te.ShapeError) as caught:
        net(nn.Linear(4, 2))(x(1, 3))
    frame = inspect.currentframe()
    assert frame is not None and caught.value.where == f"test_errors.py:{frame.f_lineno - 2}"


def test_the_line_within_a_module_of_the_users_is_named() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.inner = nn.Sequential(nn.Linear(3, 4))

        def forward(self, x: te.Tensor) -> te.Tensor:
            return self.inner(x) + te.constant(np.ones(5, np.float32))  # here

    with pytest.raises(te.ShapeError, match=r"add \(add\)") as caught:
        Net()(x(1, 3))
    lines = Path(__file__).read_text().split("\n")
    assert caught.value.where == f"test_errors.py:{1 + next(i for i, t in enumerate(lines) if '# here' in t)}"


def test_errors_print_in_three_parts() -> None:
    with pytest.raises(te.ShapeError) as caught:
        net(nn.Linear(4, 2))(x(1, 3))
    first, second, third = str(caught.value).split("\n")
    assert first == "conv (linear1/conv): input has 3 channels, filter expects 4"
    assert second.startswith("  at test_errors.py:") and third == "  hint: filters are OHWI"


def test_gradients_of_a_layer_are_located_at_the_layer() -> None:
    """A vjp that fails would name the layer it belongs to: nodes of the backward pass carry its name."""
    graph = te.train_step(net(nn.Linear(3, 4)), nn.mse, nn.SGD(), image(2, 3), label(2, 4, dtype="float32"))
    names = {node.name: node.where for node in graph.nodes() if ".grad" in node.name}
    assert any(name.startswith("linear1/conv.grad") for name in names)
    assert all(where.startswith("test_errors.py:") for where in names.values())


def test_modules_take_arrays_and_tensors_can_be_iterated() -> None:
    layer, data = nn.Linear(3, 2), np.ones((2, 3), np.float32)
    assert np.array_equal(layer(data).numpy(), layer(te.constant(data)).numpy())
    rows = [row.numpy() for row in te.constant(data)]
    assert len(rows) == 2 and rows[1].shape == (3,)
