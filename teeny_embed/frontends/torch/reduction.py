"""Sums, means, extremes along axes; softmax."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from teeny_embed.errors import AttributeValueError
from teeny_embed.frontends.torch.registry import axes_of, converter
from teeny_embed.graph.tensor import Tensor, call

Dims = int | Sequence[int] | None


def reduced(name: str, x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """Over axes side by side: where others lie between them, they are brought to the end first."""
    axes = axes_of(dim, x.rank)
    if not x.rank:
        return x
    if axes[-1] - axes[0] < len(axes):
        return call(name, x, axes=axes, keepdims=keepdim)
    kept = tuple(a for a in range(x.rank) if a not in axes)
    moved = x.transpose(*kept, *axes)
    y = call(name, moved, axes=tuple(range(len(kept), x.rank)))
    return y.reshape(tuple(1 if a in axes else e for a, e in enumerate(x.shape))) if keepdim else y


@converter("aten.sum")
def total(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: str | None = None) -> Tensor:
    """bool counts as 0 and 1."""
    given = x.astype(dtype) if dtype else x.astype("int32") if x.dtype == "bool" else x
    return reduced("sum", given, dim, keepdim)


@converter("aten.mean")
def mean(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: str | None = None) -> Tensor:
    return reduced("mean", x.astype(dtype) if dtype else x, dim, keepdim)


@converter("aten.amax")
def amax(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return reduced("max", x, dim, keepdim)


@converter("aten.amin")
def amin(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    return -reduced("max", -x, dim, keepdim)


@converter("aten.max")
def maximum(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    """Along an axis also where it is found first."""
    best = reduced("max", x, dim, keepdim)
    return best if dim is None else (best, argmax(x, dim, keepdim))


@converter("aten.min")
def minimum(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | tuple[Tensor, Tensor]:
    best = amin(x, dim, keepdim)
    return best if dim is None else (best, argmax(-x, dim, keepdim))


@converter("aten.argmax")
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    flat, axis = (x.reshape(-1), 0) if dim is None else (x, dim % x.rank)
    best = call("argmax", flat, axis=axis)
    if not keepdim:
        return best
    return best.reshape(tuple(1 if dim is None or a == axis else e for a, e in enumerate(x.shape)))


@converter("aten.argmin")
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return argmax(-x, dim, keepdim)


@converter("aten.var")
def variance(x: Tensor, dim: Dims = None, correction: float = 1, keepdim: bool = False) -> Tensor:
    axes = axes_of(dim, x.rank)
    count = prod(x.shape[a] for a in axes)
    centred = x - reduced("mean", x, axes, True)
    return reduced("sum", centred * centred, axes, keepdim) / float(count - correction)


@converter("aten.linalg_vector_norm")
def vector_norm(x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False) -> Tensor:
    if ord == 1:
        return reduced("sum", call("abs", x), dim, keepdim)
    if ord == 2:
        return call("sqrt", reduced("sum", x * x, dim, keepdim))
    if ord == inf:
        return reduced("max", call("abs", x), dim, keepdim)
    raise AttributeValueError(f"norm of order {ord}", hint="1, 2 or infinity")


@converter("aten._softmax")
def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return call("softmax", x, axis=dim)


@converter("aten._log_softmax")
def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return call("log_softmax", x, axis=dim)
