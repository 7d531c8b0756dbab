"""Contractions: convolution of any rank, its two gradients, and matrix products.

Layouts: input [N, spatial..., I], filter [O, kernel..., I / groups] (OHWI), output [N, spatial..., O]. A
linear layer is the convolution of spatial rank 0. Sums run over kernel positions row-major, then input
channels; the input gradient over kernel positions, then output channels; the weight gradient, for each
sample, over output positions, then over the samples.

Quantised operands are read as they are: with `accumulator` the operands may be small integers, of different
types, and the sum is of (a - zero point of a) (b - zero point of b) in the accumulator's dtype. What lies in
the padding is absent, which is to say that it equals the zero point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from teeny_embed.errors import DTypeError, ShapeError
from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, dim, fixed
from teeny_embed.graph.op import Attribute, Op, Sample, integers, register
from teeny_embed.graph.step import Fold, Form, Operand, sum_fold
from teeny_embed.graph.tensor import Tensor, call
from teeny_embed.graph.types import FLOAT, TOTALS, TensorType, broadcast, expect

ACCUMULATORS = ("int32", "int64")
QUANTIZED = ("int8", "uint8", "int16", "int32")
"""What `accumulator` widens."""

Padding = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Geometry:
    """Where the windows of a convolution or pool lie. One entry per spatial dim."""

    stride: tuple[int, ...]
    padding: Padding
    dilation: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Spatial dims, outermost first."""
        return ("z", "y", "x")[3 - len(self.stride) :]

    def output_extents(self, extents: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
        """Positions of the window along each spatial dim."""
        found = []
        for e, k, t, (before, after), d in zip(
            extents, kernel, self.stride, self.padding, self.dilation, strict=True
        ):
            span = d * (k - 1) + 1
            if e + before + after < span:
                raise ShapeError(
                    f"window of {span} does not fit into {e} + {before} + {after} elements",
                    hint="make the kernel or its dilation smaller, or pad",
                )
            found.append((e + before + after - span) // t + 1)
        return tuple(found)

    def window(self) -> list[Affine]:
        """Input position of output position o and kernel position k."""
        return [
            dim("o" + n) * t + dim("k" + n) * d - p
            for n, t, (p, _), d in zip(self.names, self.stride, self.padding, self.dilation, strict=True)
        ]

    def inverse(self) -> list[Affine]:
        """Output position that input position i reaches through kernel position k, where there is one."""
        return [
            (dim("i" + n) - dim("k" + n) * d + p).exactly(t)
            for n, t, (p, _), d in zip(self.names, self.stride, self.padding, self.dilation, strict=True)
        ]

    def dims(self, prefix: str, extents: Sequence[int]) -> dict[str, int]:
        """Spatial dims named with a prefix: o (output), i (input) or k (kernel)."""
        return {prefix + n: e for n, e in zip(self.names, extents, strict=True)}


def geometry(rank: int, stride: Any = None, padding: Any = None, dilation: Any = None) -> Geometry:
    """Defaults filled in: stride 1, no padding, dilation 1. One entry per spatial dim, else ShapeError."""
    ones = (1,) * rank
    where = Geometry(stride or ones, padding or ((0, 0),) * rank, dilation or ones)
    for name, entries in vars(where).items():
        if len(entries) != rank:
            hint = "give one entry per spatial dim"
            raise ShapeError(f"{name} {entries} for {rank} spatial dims", hint=hint)
    return where


def extents(value: Any) -> tuple[int, ...] | None:
    """For `Attribute.check`: integers >= 1, or None."""
    if value is None:
        return None
    numbers = integers(value)
    if any(v < 1 for v in numbers):
        raise ValueError("every entry must be >= 1")
    return numbers


def _padding(value: Any) -> Padding | None:
    if value is None:
        return None
    pairs = tuple((int(a), int(b)) for a, b in value)
    if any(v < 0 for pair in pairs for v in pair):
        raise ValueError("every entry must be >= 0")
    return pairs


WINDOW_ATTRIBUTES = {
    "stride": Attribute("step of the window, one per spatial dim", check=extents),
    "padding": Attribute("(before, after) per spatial dim", check=_padding),
    "dilation": Attribute("distance of kernel positions, one per spatial dim", check=extents),
}


def _zero_points(value: Any) -> tuple[int, int]:
    first, second = integers(value)
    return first, second


def _accumulator(value: Any) -> str | None:
    if value is not None and value not in ACCUMULATORS:
        raise ValueError("int32 or int64")
    return None if value is None else str(value)


QUANTIZED_ATTRIBUTES = {
    "zero_points": Attribute("what is subtracted from each operand", default=(0, 0), check=_zero_points),
    "accumulator": Attribute("dtype of the sum of small integers: int32 or int64", check=_accumulator),
}
_FLOAT_ATTRIBUTES = {**WINDOW_ATTRIBUTES, "groups": Attribute("channel groups", default=1, check=int)}
_ATTRIBUTES = {**_FLOAT_ATTRIBUTES, **QUANTIZED_ATTRIBUTES}


@dataclass(frozen=True)
class Product:
    """The term of a contraction of operands `a` and `b`."""

    zero_points: tuple[int, int] = (0, 0)
    accumulator: str | None = None

    def dtype(self, a: TensorType, b: TensorType) -> str:
        """That of the sum. Raises DTypeError."""
        if self.accumulator is not None:
            expect(QUANTIZED, a, b)
            return self.accumulator
        expect(TOTALS, a, b)
        if a.dtype != b.dtype:
            raise DTypeError(f"operands are {a.dtype} and {b.dtype}", hint="cast one with .astype(...)")
        if self.zero_points != (0, 0):
            raise DTypeError("zero points without an accumulator", hint='accumulator="int32"')
        return a.dtype

    def term(self, a: s.Scalar, b: s.Scalar) -> s.Scalar:
        """What one element of each contributes."""
        if self.accumulator is None:
            return a * b
        wide = [s.cast(v, self.accumulator) for v in (a, b)]
        first, second = (v - z if z else v for v, z in zip(wide, self.zero_points, strict=True))
        return first * second

    def sum(self, a: s.Scalar, b: s.Scalar, absent: s.Scalar | None = None) -> Fold:
        """The sum of such terms; one of small integers must not overflow."""
        return sum_fold("acc", self.term(a, b), absent, bounded=self.accumulator is not None)


def _check_operands(x: TensorType, w: TensorType, groups: int) -> None:
    if x.rank != w.rank or x.rank < 2:
        raise ShapeError(
            f"input {x} and filter {w} must have the same rank of 2 to 5",
            hint="input [N, ..., I], filter [O, ..., I]",
        )
    if x.shape[-1] != w.shape[-1] * groups or w.shape[0] % groups:
        split = f" in each of {groups} groups" if groups > 1 else ""
        raise ShapeError(
            f"input has {x.shape[-1]} channels, filter expects {w.shape[-1]}{split}", hint="filters are OHWI"
        )


def _grouped(shape: tuple[int, ...], axis: int, groups: int) -> tuple[int, ...]:
    """Splits one axis into [groups, rest]."""
    return (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def _conv_type(
    x: TensorType, w: TensorType, stride: Any, padding: Any, dilation: Any, groups: int, **product: Any
) -> TensorType:
    dtype = Product(**product).dtype(x, w)
    _check_operands(x, w, groups)
    where = geometry(x.rank - 2, stride, padding, dilation)
    shape = (x.shape[0], *where.output_extents(x.shape[1:-1], w.shape[1:-1]), w.shape[0])
    return TensorType(shape, dtype)


def _operands(
    x_shape: tuple[int, ...], w_shape: tuple[int, ...], where: Geometry, groups: int
) -> tuple[tuple[Any, ...], tuple[Any, ...], dict[str, int]]:
    """(shape, index) of input and filter, and the group and channel dims."""
    kernel = [dim("k" + n) for n in where.names]
    channels = {"g": groups, "oc": w_shape[0] // groups, "ic": w_shape[-1]}
    x = (_grouped(x_shape, len(x_shape) - 1, groups), (dim("n"), *where.window(), dim("g"), dim("ic")))
    w = (_grouped(w_shape, 0, groups), (dim("g"), dim("oc"), *kernel, dim("ic")))
    return x, w, channels


def _conv_form(
    x: TensorType, w: TensorType, stride: Any, padding: Any, dilation: Any, groups: int, **product: Any
) -> Form:
    where = geometry(x.rank - 2, stride, padding, dilation)
    out = _conv_type(x, w, stride, padding, dilation, groups, **product)
    (x_shape, x_index), (w_shape, w_index), channels = _operands(x.shape, w.shape, where, groups)
    return Form(
        dims={"n": x.shape[0], **where.dims("o", out.shape[1:-1]), "g": groups, "oc": channels["oc"]},
        levels=[{**where.dims("k", w.shape[1:-1]), "ic": channels["ic"]}],
        reads={"x": Operand(0, x_index, x_shape), "w": Operand(1, w_index, w_shape)},
        folds=[Product(**product).sum(s.var("x", x.dtype), s.var("w", w.dtype))],
        value=s.var("acc", out.dtype),
    )


def _zero(name: str, dtype: str) -> s.Scalar:
    return s.equal(s.var(name, dtype), 0)


def _input_grad_form(
    g: TensorType,
    w: TensorType,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    extents: tuple[int, ...],
    **product: Any,
) -> Form:
    where = geometry(g.rank - 2, stride, padding, dilation)
    channels = {"g": groups, "oc": w.shape[0] // groups, "ic": w.shape[-1]}
    kernel = [dim("k" + n) for n in where.names]
    g_index = (dim("n"), *where.inverse(), dim("g"), dim("oc"))
    w_index = (dim("g"), dim("oc"), *kernel, dim("ic"))
    absent = _zero("g", g.dtype) if g.is_float else None
    total = Product(**product).sum(s.var("g", g.dtype), s.var("w", w.dtype), absent)
    return Form(
        dims={"n": g.shape[0], **where.dims("i", extents), "g": groups, "ic": channels["ic"]},
        levels=[{**where.dims("k", w.shape[1:-1]), "oc": channels["oc"]}],
        reads={
            "g": Operand(0, g_index, _grouped(g.shape, g.rank - 1, groups)),
            "w": Operand(1, w_index, _grouped(w.shape, 0, groups)),
        },
        folds=[total],
        value=total.accumulator,
    )


def _weight_grad_form(
    g: TensorType,
    x: TensorType,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    extents: tuple[int, ...],
) -> Form:
    where = geometry(g.rank - 2, stride, padding, dilation)
    w_shape = (g.shape[-1], *extents, x.shape[-1] // groups)
    (x_shape, x_index), _, channels = _operands(x.shape, w_shape, where, groups)
    g_index = (dim("n"), *(dim("o" + n) for n in where.names), dim("g"), dim("oc"))
    term = s.var("g", g.dtype) * s.var("x", x.dtype)
    return Form(
        dims={"g": groups, "oc": channels["oc"], **where.dims("k", extents), "ic": channels["ic"]},
        levels=[{"n": g.shape[0]}, where.dims("o", g.shape[1:-1])],
        reads={
            "g": Operand(0, g_index, _grouped(g.shape, g.rank - 1, groups)),
            "x": Operand(1, x_index, x_shape),
        },
        folds=[sum_fold("acc", term, absent=_zero("g", g.dtype))],
        value=s.var("acc", g.dtype),
    )


def _input_grad_type(
    g: TensorType, w: TensorType, extents: tuple[int, ...], groups: int, zero_points: Any, accumulator: Any,
    **_: Any,
) -> TensorType:  # fmt: skip
    if accumulator is None:
        expect(FLOAT, g, w)
    dtype = Product(zero_points, accumulator).dtype(g, w)
    return TensorType((g.shape[0], *extents, w.shape[-1] * groups), dtype)


def _weight_grad_type(
    g: TensorType, x: TensorType, extents: tuple[int, ...], groups: int, **_: Any
) -> TensorType:
    expect(FLOAT, g, x)
    return g.with_shape((g.shape[-1], *extents, x.shape[-1] // groups))


def _conv_vjp(
    g: Tensor, ans: Tensor, x: Tensor, w: Tensor, zero_points: Any, accumulator: Any, **where: Any
) -> tuple[Tensor, Tensor]:
    return (
        call("conv_input_grad", g, w, extents=x.shape[1:-1], **where),
        call("conv_weight_grad", g, x, extents=w.shape[1:-1], **where),
    )


def _input_grad_vjp(
    gg: Tensor, ans: Tensor, g: Tensor, w: Tensor, extents: Any, zero_points: Any, accumulator: Any,
    **where: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return call("conv", gg, w, **where), call("conv_weight_grad", g, gg, extents=w.shape[1:-1], **where)


def _weight_grad_vjp(
    gg: Tensor, ans: Tensor, g: Tensor, x: Tensor, extents: Any, **where: Any
) -> tuple[Tensor, Tensor]:
    return call("conv", x, gg, **where), call("conv_input_grad", g, gg, extents=x.shape[1:-1], **where)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    """Standard normal float32 numbers for samples."""
    return rng.standard_normal(shape, dtype=np.float32)


def _conv_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        Sample(
            (normal(rng, 2, 5, 6, 3), normal(rng, 4, 3, 3, 3)),
            {"padding": ((1, 1), (0, 2)), "stride": (2, 1)},
        ),
        Sample(
            (normal(rng, 1, 5, 5, 4), normal(rng, 4, 3, 3, 1)), {"groups": 4, "padding": ((1, 1), (1, 1))}
        ),
        Sample((normal(rng, 2, 9, 2), normal(rng, 3, 2, 2)), {"dilation": (3,), "stride": (2,)}),
        Sample((normal(rng, 3, 7), normal(rng, 4, 7))),
        Sample((normal(rng, 1, 4, 4, 6), normal(rng, 4, 2, 2, 3)), {"groups": 2}),
    ]


EXTENTS = {"extents": Attribute("spatial extents of the result", required=True, check=integers)}
register(
    Op(
        "conv",
        "convolution of spatial rank 0 (linear) to 3",
        _conv_type,
        _conv_vjp,
        form=_conv_form,
        attributes=_ATTRIBUTES,
        samples=_conv_samples,
    )
)
register(
    Op(
        "conv_input_grad",
        "gradient of conv for its input",
        _input_grad_type,
        _input_grad_vjp,
        form=_input_grad_form,
        attributes={**_ATTRIBUTES, **EXTENTS},
        samples=lambda rng: [
            Sample(
                (normal(rng, 2, 3, 3, 4), normal(rng, 4, 3, 3, 2)),
                {"extents": (6, 5), "stride": (2, 1), "padding": ((1, 0), (0, 0))},
            ),
            Sample((normal(rng, 2, 4), normal(rng, 4, 3)), {"extents": ()}),
        ],
    )
)
register(
    Op(
        "conv_weight_grad",
        "gradient of conv for its filter",
        _weight_grad_type,
        _weight_grad_vjp,
        form=_weight_grad_form,
        attributes={**_FLOAT_ATTRIBUTES, **EXTENTS},
        samples=lambda rng: [
            Sample((normal(rng, 2, 3, 3, 4), normal(rng, 2, 5, 5, 2)), {"extents": (3, 3)}),
            Sample((normal(rng, 2, 4), normal(rng, 2, 3)), {"extents": ()}),
        ],
    )
)


# ---- Matrix product -----------------------------------------------------------------------------------


def _matmul_type(a: TensorType, b: TensorType, absent: str, **product: Any) -> TensorType:
    dtype = Product(**product).dtype(a, b)
    if a.rank < 2 or b.rank < 2 or a.shape[-1] != b.shape[-2]:
        raise ShapeError(f"matrices {a} and {b} do not multiply", hint="[..., M, K] @ [..., K, N]")
    batch = broadcast(a.with_shape(a.shape[:-2]), b.with_shape(b.shape[:-2]))
    return TensorType((*batch, a.shape[-2], b.shape[-1]), dtype)


def _matmul_form(a: TensorType, b: TensorType, absent: str, **product: Any) -> Form:
    out = _matmul_type(a, b, absent, **product)
    batch = {f"b{i}": e for i, e in enumerate(out.shape[:-2])}

    def batch_index(t: TensorType) -> list[Affine]:
        names = list(batch)[len(batch) - (t.rank - 2) :]
        return [dim(n) if e > 1 else fixed(0) for n, e in zip(names, t.shape[:-2], strict=True)]

    reads = {
        "a": Operand(0, (*batch_index(a), dim("m"), dim("k"))),
        "b": Operand(1, (*batch_index(b), dim("k"), dim("n"))),
    }
    zero = _zero(absent, a.dtype) if absent else None
    return Form(
        dims={**batch, "m": a.shape[-2], "n": b.shape[-1]},
        levels=[{"k": a.shape[-1]}],
        reads=reads,
        folds=[Product(**product).sum(s.var("a", a.dtype), s.var("b", b.dtype), zero)],
        value=s.var("acc", out.dtype),
    )


def _swapped(x: Tensor) -> Tensor:
    return x.transpose(*range(x.rank - 2), x.rank - 1, x.rank - 2)


def _matmul_vjp(g: Tensor, ans: Tensor, a: Tensor, b: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
    return call("matmul", g, _swapped(b), absent="a"), call("matmul", _swapped(a), g, absent="b")


register(
    Op(
        "matmul",
        "matrix product over the last two axes, broadcasting the others",
        _matmul_type,
        _matmul_vjp,
        form=_matmul_form,
        attributes={
            "absent": Attribute('operand whose zero leaves a term out: "", "a" or "b"', default=""),
            **QUANTIZED_ATTRIBUTES,
        },
        samples=lambda rng: [
            Sample((normal(rng, 2, 3), normal(rng, 3, 4))),
            Sample((normal(rng, 2, 2, 3), normal(rng, 3, 2))),
        ],
    )
)
