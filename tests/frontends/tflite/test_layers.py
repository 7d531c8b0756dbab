"""Layer by layer: the result of every operator, under the number that the file gives its tensor."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from support.tflite import INTEGER_MODELS, Runner, SharedModel, every_layer, micro_tensors
from teeny_embed.frontends.tflite import import_model


@pytest.mark.parametrize("name", INTEGER_MODELS)
def test_every_layer_equals_the_interpreter(shared: Path, name: str) -> None:
    model = SharedModel(shared, name)
    graph, inputs = every_layer(model.imported), model.feeds()[0]
    indices = [int(name[1:]) for name, _ in graph.outputs]
    wanted = micro_tensors(model.path.read_bytes(), inputs, indices)
    for index, got in zip(indices, Runner(graph)(*inputs), strict=True):
        np.testing.assert_array_equal(got, wanted[index].reshape(got.shape), err_msg=f"tensor {index}")


@pytest.mark.parametrize("name", INTEGER_MODELS)
def test_every_layer_rounded_as_litert_equals_its_stored_checksum(shared: Path, name: str) -> None:
    model = SharedModel(shared, name)
    imported = import_model(model.path.read_bytes(), model.path.name, rounding="litert")
    graph = every_layer(imported)
    results = zip(graph.outputs, Runner(graph)(*model.feeds()[0]), strict=True)
    found = {name: crc32(np.ascontiguousarray(got).tobytes()) for (name, _), got in results}
    assert found == {f"t{layer['tensor']}": layer["crc32"] for layer in model.layers_sample0}


@pytest.mark.parametrize("name", INTEGER_MODELS)
def test_rounding_as_litert_gives_the_stored_outputs_of_its_reference_kernels(
    shared: Path, name: str
) -> None:
    model = SharedModel(shared, name)
    run = Runner(import_model(model.path.read_bytes(), model.path.name, rounding="litert").graph)
    for inputs, wanted in zip(model.feeds(), model.vectors["out0"], strict=True):
        np.testing.assert_array_equal(run(*inputs)[0].reshape(wanted.shape), wanted)
