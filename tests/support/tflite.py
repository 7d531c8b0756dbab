"""TensorFlow Lite models: where they are, what TFLite Micro computes, and what the import of them does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.frontends.tflite import Imported, import_model
from teeny_embed.graph import evaluate
from teeny_embed.graph.lower import environment, lower
from teeny_embed.graph.node import Graph, Variable

Array = npt.NDArray[Any]
ARENA_BYTES = 1 << 21

INTEGER_MODELS = (
    "mlperf_tiny/ad_autoencoder_int8", "mlperf_tiny/ic_resnet8_int8", "mlperf_tiny/kws_dscnn_int8",
    "mlperf_tiny/sww_streaming_int8", "mlperf_tiny/vww_mobilenetv1_int8", "tflm/hello_world_int8",
    "tflm/micro_speech_int8", "tflm/person_detect_int8", "tflm/simple_add",
)  # fmt: skip
RECURRENT_MODELS = (
    "tflm/mnist_lstm_int8", "tflm/keyword_scrambled_int16act", "tflm/keyword_scrambled_int8",
)  # fmt: skip
WIDE_MODELS = tuple(
    f"tflm/seanet_int16x8/{name}"
    for name in (
        "add0", "add10", "conv0", "conv10", "conv13", "conv18", "conv2", "conv20", "conv21", "conv4",
        "leaky_relu0", "leaky_relu11", "pad1", "pad3", "quantize0", "quantize1", "strided_slice0",
        "strided_slice5", "sub0", "transpose_conv2", "transpose_conv3", "transpose_conv4",
    )
)  # fmt: skip
"""One operator each, with 16-bit activations."""
FLOAT_MODELS = (
    "mlperf_tiny/ad_autoencoder_float", "mlperf_tiny/ic_resnet8_float", "mlperf_tiny/vww_mobilenetv1_float",
    "tflm/hello_world_float",
)  # fmt: skip


class SharedModel:
    """A model of the shared folder with its vectors."""

    def __init__(self, shared: Path, name: str) -> None:
        self.path = shared / "models" / f"{name}.tflite"
        self._vectors = shared / "vectors" / f"{name}.npz"

    @cached_property
    def imported(self) -> Imported:
        return import_model(self.path.read_bytes(), self.path.name)

    @cached_property
    def vectors(self) -> dict[str, Array]:
        with np.load(self._vectors) as arrays:
            return dict(arrays)

    @property
    def layers_sample0(self) -> Any:
        return json.loads(str(self.vectors["meta"]))["layers_sample0"]

    def feeds(self) -> list[tuple[Array, ...]]:
        """The inputs of each sample, in order."""
        types = [node.type for _, node in self.imported.graph.inputs]
        given = [self.vectors[f"in{i}"] for i in range(len(types))]
        return [
            tuple(x.reshape(t.shape).astype(t.dtype) for x, t in zip(sample, types, strict=True))
            for sample in zip(*given, strict=True)
        ]

    def wanted(self) -> Array:
        """[sample, ...]: what TFLite Micro gives for output 0."""
        return self.vectors.get("out0_tflm", self.vectors["out0"])


class Runner:
    """A graph in ordered NumPy; keeps its variables between calls."""

    def __init__(self, graph: Graph) -> None:
        self._schedule = lower(graph, "infer", {})
        self._values: dict[Variable, Array] = {v: v.initial.copy() for v in graph.variables()}
        self._names = [name for name, _ in graph.inputs]

    def __call__(self, *inputs: Array) -> list[Array]:
        env = environment(self._schedule, dict(zip(self._names, inputs, strict=True)), self._values)
        evaluate.run(self._schedule, env)
        for buffer, _ in self._schedule.assigns:
            assert buffer.variable is not None
            self._values[buffer.variable] = env[buffer]
        return [env[b] for b in self._schedule.outputs]


def micro_outputs(content: bytes, samples: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """What TFLite Micro computes for each sample, state carried from one to the next."""
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(content, arena_size=max(ARENA_BYTES, 10 * len(content)))
    results = []
    for inputs in samples:
        for number, value in enumerate(inputs):
            interpreter.set_input(value, number)
        interpreter.invoke()
        results.append([interpreter.get_output(i).copy() for i in range(_output_count(content))])
    return results


def assert_equals_micro(
    content: bytes, samples: Sequence[Sequence[Array]], rtol: float = 0.0, atol: float = 0.0
) -> None:
    """The import gives every output of TFLite Micro, call after call; floats within the tolerances."""
    run = Runner(import_model(content, "net.tflite").graph)
    for inputs, wanted in zip(samples, micro_outputs(content, samples), strict=True):
        for found, want in zip(run(*inputs), wanted, strict=True):
            if (rtol or atol) and found.dtype.kind == "f":
                np.testing.assert_allclose(found, want, rtol=rtol, atol=atol)
            else:
                np.testing.assert_array_equal(found, want)


def micro_tensors(content: bytes, inputs: Sequence[Array], indices: Sequence[int]) -> dict[int, Array]:
    """What TFLite Micro keeps in tensors of subgraph 0 after one call, by their index in the file."""
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(
        content, arena_size=4 * ARENA_BYTES, intrepreter_config=runtime.InterpreterConfig.kPreserveAllTensors
    )
    for number, value in enumerate(inputs):
        interpreter.set_input(value, number)
    interpreter.invoke()
    return {index: interpreter.GetTensor(index, 0)["tensor_data"].copy() for index in indices}


_PRINT_ALLOCATIONS = """
import sys
from tflite_micro.python.tflite_micro import runtime
content = sys.stdin.buffer.read()
runtime.Interpreter.from_bytes(content, arena_size=int(sys.argv[1])).print_allocations()
"""


def micro_arena(content: bytes) -> tuple[int, int]:
    """Bytes that TFLite Micro's interpreter allocates, and those of tensors and scratch among them.

    It prints them itself, from C, so that takes a process of its own.
    """
    arena_bytes = str(max(ARENA_BYTES, 10 * len(content)))
    command = [sys.executable, "-c", _PRINT_ALLOCATIONS, arena_bytes]
    done = subprocess.run(command, input=content, capture_output=True, check=True)
    found = dict(re.findall(r"Arena allocation (\w+) (\d+) bytes", done.stderr.decode()))
    return int(found["total"]), int(found["head"])


def _output_count(content: bytes) -> int:
    import tflite

    count: int = tflite.Model.GetRootAs(content, 0).Subgraphs(0).OutputsLength()
    return count


def random_inputs(imported: Imported, seed: int, count: int) -> list[tuple[Array, ...]]:
    """Seeded inputs over the whole range of integers, standard normal floats."""
    rng = np.random.default_rng(seed)
    types: Mapping[str, Any] = {name: node.type for name, node in imported.graph.inputs}
    return [tuple(_random(rng, t.shape, t.dtype) for t in types.values()) for _ in range(count)]


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    if dtype.startswith("float"):
        return rng.standard_normal(shape).astype(dtype)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def every_layer(imported: Imported) -> Graph:
    """The graph with the result of every operator of the file as an output, named by its tensor number."""
    main = imported.model.subgraphs[0]
    results = dict.fromkeys(index for op in main.operators for index in op.outputs)
    return replace(imported.graph, outputs=tuple((f"t{i}", imported.tensors[i]) for i in results))
