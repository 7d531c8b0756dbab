"""Which operators take which dtypes: what is taken, C computes bit for bit; the rest is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.data import Array
from support.process import sanitized
from support.runs import assert_equal_bits
from teeny_embed.api import Build, Program, build
from teeny_embed.deploy.host import HostLibrary
from teeny_embed.deploy.reference import ReferenceRunner
from teeny_embed.deploy.runner import Runner
from teeny_embed.errors import DataError, DTypeError
from teeny_embed.graph.lower import lower
from teeny_embed.graph.node import Variable
from teeny_embed.graph.op import REGISTRY, Sample
from teeny_embed.graph.scalar import DTYPES
from teeny_embed.graph.tensor import Tensor, assign, call, constant, input, read, trace

INTEGERS = tuple(d for d in DTYPES if "int" in d)
NUMBERS = (*INTEGERS, "float32")
FLOAT = ("float32",)
TOTALS = ("int32", "uint32", "int64", "uint64", "float32")
ARITHMETIC = (*NUMBERS, "float64")
COMPARED = ("bool", *ARITHMETIC)
WHOLE = INTEGERS
TAKES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(["reshape", "transpose", "slice", "pad", "expand", "concat", "take", "pick"], DTYPES),
    **dict.fromkeys(["cast", "where"], DTYPES),
    **dict.fromkeys(["add", "subtract", "multiply", "divide", "maximum", "minimum"], ARITHMETIC),
    **dict.fromkeys(["less", "less_equal", "greater", "greater_equal", "equal", "not_equal"], COMPARED),
    **dict.fromkeys(["logical_not", "logical_and", "logical_or", "logical_xor"], ("bool",)),
    **dict.fromkeys(["negative", "abs", "sign", "relu", "relu6", "mod", "fmod"], NUMBERS),
    **dict.fromkeys(["max", "argmax", "max_pool", "max_pool_index"], NUMBERS),
    **dict.fromkeys(["sum", "conv", "matmul"], TOTALS),
    **dict.fromkeys(["requantize", "multiply_high", "leading_zeros"], ("int32",)),
    **dict.fromkeys(["inverse_of_one_plus", "inverse_square_root", "log_fixed"], ("int32",)),
    **dict.fromkeys(["shift_left", "shift_right"], WHOLE),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"], WHOLE),
    "square_root": ("uint64",),
    **dict.fromkeys(["shift_right_rounding", "shift_left_saturating"], ("int32",)),
    "sum_pool": ("int8", "uint8", "int16", "int32", "float32"),
}
"""Operators that take more than float32."""
OTHER_OPERANDS = {
    "where": (0,), "take": (1,), "pick": (1,), "take_grad": (1,), "cross_entropy": (1,), "requantize": (1, 2),
}  # fmt: skip
"""Positions of operands with a dtype of their own: conditions and indices."""
WITHOUT_DATA = ("iota", "random_uniform")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wsign-conversion", "-Werror")


def samples() -> Iterator[tuple[str, str, Sample]]:
    """Name, operator and sample."""
    for op in REGISTRY.values():
        found: Sequence[Sample] = op.samples(np.random.default_rng(0)) if op.samples else ()
        if op.name.startswith("logical"):
            found = [Sample((np.array([True, False]),) * (1 if op.name == "logical_not" else 2))]
        for number, sample in enumerate(found):
            if op.name not in WITHOUT_DATA:
                yield f"{op.name}_{number}", op.name, sample


def operands(op: str, sample: Sample, dtype: str) -> list[Array]:
    """Those of the sample with data of `dtype`; numbers spread over more than its range."""
    kept = OTHER_OPERANDS.get(op, ())
    arrays = [np.asarray(x) for x in sample.operands]
    with np.errstate(invalid="ignore", over="ignore"):
        return [
            x if i in kept else x > 0 if dtype == "bool" else (x * 37).astype("int64").astype(dtype)
            if dtype in INTEGERS else x.astype(dtype)
            for i, x in enumerate(arrays)
        ]  # fmt: skip


def attributes(sample: Sample) -> dict[str, Any]:
    """A fill of 0.5 is none for integers."""
    return {**sample.attributes, **({"value": 1} if "value" in sample.attributes else {})}


def result(op: str, sample: Sample, dtype: str) -> Tensor:
    tensors = [constant(x, x.dtype.name) for x in operands(op, sample, dtype)]
    return call(op, *tensors, **attributes(sample))


def test_every_operator_takes_the_dtypes_of_the_table_and_refuses_others_by_name() -> None:
    for name, op, sample in samples():
        for dtype in DTYPES:
            if dtype in TAKES.get(op, FLOAT):
                result(op, sample, dtype)
                continue
            with pytest.raises(DTypeError, match=dtype) as caught:
                result(op, sample, dtype)
            assert op in caught.value.what and caught.value.hint and caught.value.where, name


def program(dtype: str) -> tuple[Program, dict[str, dict[str, Array]]]:
    """Every operator that takes `dtype` as an entry point, and what goes in."""
    graphs, feeds = {}, {}
    for name, op, sample in samples():
        if dtype in TAKES.get(op, FLOAT):
            arrays = operands(op, sample, dtype)
            inputs = [input(f"x{i}", x.shape, x.dtype.name) for i, x in enumerate(arrays)]
            graphs[name] = trace(operator(op, attributes(sample)), *inputs)
            feeds[name] = {f"x{i}": x for i, x in enumerate(arrays)}
    return Program(f"ops_{dtype}", **graphs), feeds


def operator(op: str, attributes: dict[str, Any]) -> Callable[..., Tensor]:
    return lambda *xs: call(op, *xs, **attributes)


def assert_numpys_bits(runner: Runner, built: Build, feeds: dict[str, dict[str, Array]]) -> None:
    with ReferenceRunner(built.interface, built.program.entry_points) as reference:
        for name, feed in feeds.items():
            (status, found), expected = runner.call(name, feed), reference.call(name, feed)
            assert status == expected[0] == 0
            assert_equal_bits(found, expected[1], name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_c_gives_numpys_bits_without_a_warning(dtype: str, tmp_path: Path) -> None:
    made, feeds = program(dtype)
    built = build(made, "host", tmp_path)
    for compiler in ("gcc", "clang"):
        with HostLibrary(built.interface, built.directory, compiler, ("-O1", *WARNINGS)) as library:
            assert_numpys_bits(library, built, feeds)


# ---- Integers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOTALS[:-1])
def test_sums_of_integers_wrap_without_undefined_behaviour(dtype: str, tmp_path: Path) -> None:
    info = np.iinfo(dtype)
    x = np.array([[info.max, info.max, 3], [info.min, info.max, info.max]], dtype)
    inputs = input("x", x.shape, dtype), input("y", (3, 2), dtype)
    sums = trace(
        lambda x, y: {"all": x.sum(), "rows": x.sum(axis=1), "columns": x.sum(axis=0), "product": x @ y},
        *inputs,
    )
    built = build(Program("wrapping", sums=sums), "cortex-m0", tmp_path / "c")
    feed = {"x": x, "y": x.T.copy()}
    with sanitized(built, tmp_path / "run") as runner:
        assert_numpys_bits(runner, built, {"sums": feed})
        _, found = runner.call("sums", feed)
    with np.errstate(over="ignore"):
        expected = {"all": x.sum(dtype=dtype), "rows": x.sum(1, dtype), "columns": x.sum(0, dtype)}
        expected["product"] = x @ x.T
    assert_equal_bits(found, {name: np.asarray(v) for name, v in expected.items()}, "wrapped sums")


def test_macs_of_integer_products_are_counted() -> None:
    (step,) = lower(trace(lambda x: x @ x, input("x", (4, 4), "int32")), "product").steps
    assert step.macs == 64
    (pool,) = lower(
        trace(lambda x: call("max_pool_index", x, kernel=(2, 2)), input("x", (1, 4, 4, 1), "int8")), "pool"
    ).steps
    assert pool.macs == 0


# ---- float16: storage ---------------------------------------------------------------------------------


def halves() -> Array:
    """Every float16."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def near_halves() -> Array:
    """Finite float16 numbers, what lies between them, and the neighbours of both, as float32."""
    x = halves()
    x = np.sort(x[np.isfinite(x)].astype(np.float32))
    between = np.append((x[1:] + x[:-1]) / 2, np.float32([65520, -65520, np.inf, -np.inf, np.nan]))
    points = np.concatenate([x, between])
    return np.concatenate([points, *(np.nextafter(points, np.float32(to)) for to in (np.inf, -np.inf))])


def test_float16_is_widened_exactly_and_narrowed_to_nearest_even(tmp_path: Path) -> None:
    wide, narrow = halves(), near_halves()
    made = Program(
        "halves",
        widen=trace(lambda x: x.astype("float32"), input("x", wide.shape, "float16")),
        narrow=trace(lambda x: x.astype("float16"), input("x", narrow.shape, "float32")),
    )
    built = build(made, "cortex-m0", tmp_path / "c")
    with sanitized(built, tmp_path / "run") as runner:
        assert_numpys_bits(runner, built, {"widen": {"x": wide}, "narrow": {"x": narrow}})


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d not in ("float16", "float32")])
def test_float16_casts_go_through_float32(dtype: str) -> None:
    x = constant(np.float16([0, -0.0, 1.5, 300, -2.5, 65504]))
    assert_equal_bits(
        {"to": x.astype(dtype).numpy()}, {"to": x.astype("float32").astype(dtype).numpy()}, "from float16"
    )
    y = constant(np.array([0, 1, 3, 100], dtype))
    assert np.array_equal(y.astype("float16").numpy(), y.numpy().astype("float16"))


def test_state_and_constants_may_be_float16(tmp_path: Path) -> None:
    kept = Variable("kept", np.float16([1, 2.5, -0.0]), "state")
    table = constant(np.float16([0.1, 0.2, 60000]))

    def step(x: Tensor) -> Tensor:
        total = read(kept).astype("float32") + table.astype("float32") + x
        assign(kept, total.astype("float16"))
        return total

    built = build(Program("kept", step=trace(step, input("x", (3,)))), "host", tmp_path)
    assert "0x3c00u, 0x4100u, 0x8000u" in (tmp_path / "kept_params.c").read_text()
    with (
        HostLibrary(built.interface, built.directory, flags=("-O2", *WARNINGS)) as library,
        ReferenceRunner(built.interface, built.program.entry_points) as reference,
    ):
        for runner in (library, reference):
            assert runner.reset() == 0
        for x in ([1, 2, 3], [1e-4, 1e5, -5e-8]):
            feed = {"x": np.float32(x)}
            assert_equal_bits(library.call("step", feed)[1], reference.call("step", feed)[1], "the output")
            assert_equal_bits(library.read_state(), reference.read_state(), "the state")


def test_tables_that_c_cannot_state_are_refused(tmp_path: Path) -> None:
    undefined = trace(lambda x: x + constant(np.float32([0, np.nan])), input("x", (2,)))
    with pytest.raises(DataError, match="constant holds NaN") as caught:
        build(Program("undefined", infer=undefined), out=tmp_path)
    assert caught.value.where and caught.value.where.startswith("test_dtypes.py") and caught.value.hint
