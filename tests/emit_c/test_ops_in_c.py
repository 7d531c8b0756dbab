"""Every operator in C: each sample and its gradient, and numbers at the edge of every dtype, bit for bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.compilers import WARNINGS, objects
from support.data import Array
from support.process import sanitized
from support.runs import assert_equal_bits
from teeny_embed.api import Build, Program, build
from teeny_embed.autograd.reverse import grad
from teeny_embed.deploy.host import HostLibrary
from teeny_embed.deploy.runner import Runner
from teeny_embed.emit_c.lint import lint
from teeny_embed.graph import evaluate
from teeny_embed.graph.fuse import fuse
from teeny_embed.graph.lower import environment, lower
from teeny_embed.graph.node import Graph
from teeny_embed.graph.op import NOT_DIFFERENTIABLE, REGISTRY, Sample
from teeny_embed.graph.step import Schedule
from teeny_embed.graph.tensor import Tensor, call, constant, input, trace

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float32", "float64")
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-45, -1e-40, 1.17549435e-38, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan]
)
"""Zeros, subnormals, the smallest normal, near overflow, infinities and NaN, as float32."""


@dataclass(frozen=True)
class Task:
    """An entry point and what goes in."""

    name: str
    graph: Graph
    feed: dict[str, Array]


def task(name: str, function: Callable[..., Any], operands: Sequence[Any]) -> Task:
    arrays = [np.asarray(x) for x in operands]
    inputs = [input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
    graph = trace(lambda: function(), names=("y0",)) if not inputs else trace(function, *inputs)
    return Task(name, graph, {f"x{i}": x for i, x in enumerate(arrays)})


def operator(name: str, **attributes: Any) -> Callable[..., Tensor]:
    return lambda *operands: call(name, *operands, **attributes)


# ---- What is computed ---------------------------------------------------------------------------------


def all_samples() -> Iterator[tuple[str, str, Sample]]:
    """Name, operator and sample."""
    for op in REGISTRY.values():
        for number, sample in enumerate(op.samples(np.random.default_rng(0)) if op.samples else ()):
            yield f"{op.name}_{number}", op.name, sample


def samples() -> list[Task]:
    return [task(n, operator(op, **sample.attributes), sample.operands) for n, op, sample in all_samples()]


def gradients() -> list[Task]:
    """The gradient of each sample for all float32 operands, with a random cotangent."""
    tasks = []
    for name, op, sample in all_samples():
        forward = operator(op, **sample.attributes)
        arrays = [np.asarray(x) for x in sample.operands]
        moving = [i for i, x in enumerate(arrays) if x.dtype == np.float32]
        result = forward(*map(constant, arrays))
        if REGISTRY[op].vjp is NOT_DIFFERENTIABLE or not moving or result.dtype != "float32":
            continue
        seed = np.random.default_rng(1).standard_normal(result.shape, dtype=np.float32)

        def backward(
            *xs: Tensor, f: Callable[..., Tensor] = forward, m: list[int] = moving, s: Array = seed
        ) -> tuple[Tensor, ...]:
            return tuple(grad(f(*xs), [xs[i] for i in m], constant(s)))

        tasks.append(task(f"{name}_gradient", backward, arrays))
    return tasks


def edge(dtype: str) -> Array:
    """Numbers at which arithmetic of `dtype` wraps, saturates or is undefined in C."""
    if dtype == "bool":
        return np.array([False, True])
    if dtype.startswith("float"):
        with np.errstate(over="ignore"):
            return SPECIAL.astype("float32").astype(dtype)
    info = np.iinfo(dtype)
    found = {info.min, info.min + 1, -1, 0, 1, 2, 7, info.max // 2 + 1, info.max - 1, info.max}
    return np.array(sorted(n for n in found if n >= info.min), dtype)


def pairs(dtype: str) -> tuple[Array, Array]:
    """All pairs of edge numbers."""
    numbers = edge(dtype)
    return np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))


BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
UNARY = ("negative", "abs", "sign", "relu", "relu6")
FUNCTIONS = (
    "exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "sigmoid", "erf", "reciprocal", "floor", "ceil", "trunc", "round_even",
    "round_away", "is_nan", "is_inf",
)  # fmt: skip
ACTIVATIONS = (
    "leaky_relu", "threshold", "clip", "hard_sigmoid", "hard_swish", "hard_shrink", "soft_shrink", "softsign",
    "elu", "selu", "celu", "silu", "softplus", "log_sigmoid", "mish", "tanh_shrink", "gelu", "gelu_tanh",
)  # fmt: skip
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right", "mod", "fmod")


def arithmetic() -> list[Task]:
    """Operators on all pairs of edge numbers of every dtype that they take."""
    tasks = [task(f"{op}_{t}", operator(op), pairs(t)) for t in INTEGERS for op in (*BINARY, *COMPARISONS)]
    tasks += [task(f"{op}_{t}", operator(op), [edge(t)]) for t in INTEGERS for op in (*UNARY, "bitwise_not")]
    tasks += [task(f"{op}_{t}", operator(op), pairs(t)) for t in INTEGERS for op in BITS]
    for dtype in FLOATS:
        tasks += [task(f"{op}_{dtype}", operator(op), pairs(dtype)) for op in (*BINARY, *COMPARISONS)]
    of_floats = (*UNARY, *FUNCTIONS, *ACTIVATIONS)
    tasks += [task(f"{op}_float32", operator(op), [edge("float32")]) for op in of_floats]
    tasks += [task(f"{op}_float32", operator(op), pairs("float32")) for op in ("pow", "mod", "fmod", "prelu")]
    logic = ("logical_and", "logical_or", "logical_xor")
    tasks += [task(f"{op}_bool", operator(op), pairs("bool")) for op in logic]
    return [*tasks, task("logical_not_bool", operator("logical_not"), [edge("bool")])]


def casts() -> list[Task]:
    """Every dtype to every other."""
    both = itertools.permutations(("bool", *INTEGERS, "float16", *FLOATS), 2)
    return [task(f"{a}_to_{b}", operator("cast", dtype=b), [edge(a)]) for a, b in both]


def folds() -> list[Task]:
    """NaN, infinities and signed zeros in sums, maxima, pools and softmax."""
    rows = np.stack([np.roll(SPECIAL, shift) for shift in range(len(SPECIAL))]).astype(np.float32)
    images = rows.reshape(1, len(SPECIAL), len(SPECIAL), 1)
    tasks = [
        task(f"{op}_of_special", operator(op, **attributes), [rows])
        for op, attributes in (
            ("sum", {"axes": 1}), ("max", {"axes": (1,)}), ("argmax", {"axis": 1}), ("softmax", {}),
        )
    ]  # fmt: skip
    pool = {"kernel": (2, 2), "stride": (1, 1), "padding": ((1, 1), (1, 1))}
    tasks += [task(f"{op}_of_special", operator(op, **pool), [images]) for op in ("max_pool", "avg_pool")]
    return [*tasks, task("matmul_of_special", operator("matmul"), [rows, rows])]


def random_convolution(rng: np.random.Generator, number: int) -> Task:
    """A layer with bias and ReLU, and its gradients. Half of the inputs are 0, as behind a ReLU."""
    rank = int(rng.integers(0, 3))
    groups = int(rng.choice([1, 1, 2, 3]))
    inputs, outputs = (groups * int(n) for n in rng.choice([1, 2, 3, 5, 8, 11, 16, 17], 2))
    kernel, stride, dilation = (tuple(map(int, rng.integers(1, 4, rank))) for _ in range(3))
    padding = tuple((int(a), int(b)) for a, b in rng.integers(0, 3, (rank, 2)))
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    extents = [span + int(rng.integers(0, 14)) for span in spans]
    x = rng.standard_normal((int(rng.choice([1, 2, 8, 9])), *extents, inputs), dtype=np.float32)
    x[rng.random(x.shape) < 0.5] = 0
    weight = rng.standard_normal((outputs, *kernel, inputs // groups), dtype=np.float32)
    bias = rng.standard_normal(outputs, dtype=np.float32)

    def layer(*operands: Tensor) -> tuple[Tensor, ...]:
        image, filters, shift = operands
        y = call(
            "conv", image, filters, stride=stride, padding=padding, dilation=dilation, groups=groups
        )  # fmt: skip
        y = call("relu", y + shift)
        return y, *grad((y * y).sum(), operands)

    return task(f"convolution_{number}", layer, [x, weight, bias])


def shapes(count: int = 10) -> list[Task]:
    """Extents around those of tiles and vectors: interiors, borders and rests of all sizes."""
    rng = np.random.default_rng(0)
    return [random_convolution(rng, number) for number in range(count)]


def many_shapes() -> list[Task]:
    return shapes(60)


GROUPS = {f.__name__: f for f in (samples, gradients, arithmetic, casts, folds, shapes, many_shapes)}


def table(*ways: object) -> pytest.MarkDecorator:
    """Every group in the first way; the other ways, and the longest group, are `full`."""
    rows = [
        pytest.param(group, way, marks=pytest.mark.full if way != ways[0] or group == "many_shapes" else ())
        for group in GROUPS
        for way in ways
    ]
    return pytest.mark.parametrize(
        ("group", "way"), rows, ids=lambda value: value if isinstance(value, str) else " ".join(value)
    )


# ---- Where it is computed -----------------------------------------------------------------------------


def outputs(schedule: Schedule, feed: dict[str, Array]) -> dict[str, Array]:
    memory = environment(schedule, feed, {})
    evaluate.run(schedule, memory)
    return {buffer.name: memory[buffer] for buffer in schedule.outputs}


@pytest.mark.parametrize("group", GROUPS)
def test_fusion_changes_no_bit(group: str) -> None:
    for each in GROUPS[group]():
        schedule = lower(each.graph, each.name)
        assert_equal_bits(outputs(fuse(schedule), each.feed), outputs(schedule, each.feed), each.name)


@table("cortex-m4f", "host", "cortex-m0")
def test_compilers_and_lint_find_nothing(group: str, way: str, tmp_path: Path) -> None:
    _, built = emitted(group, way, tmp_path)
    for compiler in (None, "clang"):
        objects(built, tmp_path, compiler, ("-std=c99", "-O1", *WARNINGS))
    assert lint([built.directory / name for name in built.interface.sources], "ops") == []


@table("cortex-m4f", "host", "cortex-m0")
def test_sanitized_c_gives_numpys_bits(group: str, way: str, tmp_path: Path) -> None:
    """Code for a core is portable, and runs here."""
    tasks, built = emitted(group, way, tmp_path)
    with sanitized(built, tmp_path / "run", level="-O0") as runner:
        assert_equal_to_numpy(runner, built, tasks)


@table(("host", "-march=native"), ("cortex-m4f",), ("cortex-m0",), ("host",), ("cortex-m4f", "-march=native"))
def test_optimized_c_gives_numpys_bits(group: str, way: tuple[str, ...], tmp_path: Path) -> None:
    tasks, built = emitted(group, way[0], tmp_path)
    with HostLibrary(built.interface, built.directory, flags=("-O3", *way[1:])) as runner:
        assert_equal_to_numpy(runner, built, tasks)


def emitted(group: str, target: str, folder: Path) -> tuple[list[Task], Build]:
    tasks = GROUPS[group]()
    program = Program("ops", **{each.name: each.graph for each in tasks})
    return tasks, build(program, target, folder / "c")


def assert_equal_to_numpy(runner: Runner, built: Build, tasks: list[Task]) -> None:
    for each in tasks:
        status, found = runner.call(each.name, each.feed)
        assert status == 0, each.name
        expected = outputs(lower(built.program.entry_points[each.name], each.name), each.feed)
        assert_equal_bits(found, expected, each.name)
