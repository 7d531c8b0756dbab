"""Shapes, parts and joins; tensors that a module makes itself; lookups."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

import numpy as np

from teeny_embed.errors import ShapeError
from teeny_embed.frontends.torch.registry import converter
from teeny_embed.graph.tensor import Tensor, call, constant


@converter("aten.view", "aten._unsafe_view", "aten.reshape")
def view(x: Tensor, size: Sequence[int] = (), shape: Sequence[int] = ()) -> Tensor:
    return x.reshape(tuple(size or shape))


@converter("aten.permute")
def permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    return x.transpose(*(d % x.rank for d in dims))


@converter("aten.transpose")
def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    axes = list(range(x.rank))
    axes[dim0], axes[dim1] = axes[dim1], axes[dim0]
    return x.transpose(*axes)


@converter("aten.t")
def t(x: Tensor) -> Tensor:
    return x.transpose()


@converter("aten.unsqueeze")
def unsqueeze(x: Tensor, dim: int) -> Tensor:
    at = dim % (x.rank + 1)
    return x.reshape((*x.shape[:at], 1, *x.shape[at:]))


@converter("aten.squeeze")
def squeeze(x: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The axes given, of those the ones of extent 1; all of them if none are given."""
    given = range(x.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {d % x.rank for d in given if x.rank and x.shape[d] == 1}
    return x.reshape(tuple(e for axis, e in enumerate(x.shape) if axis not in gone))


@converter("aten.expand")
def expand(x: Tensor, size: Sequence[int]) -> Tensor:
    kept = (1,) * (len(size) - x.rank) + x.shape
    return call("expand", x, shape=tuple(k if e == -1 else e for e, k in zip(size, kept, strict=True)))


@converter("aten.repeat")
def repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    """[a, b] repeated (m, n) times is [m, a, n, b] put together."""
    shape = (1,) * (len(repeats) - x.rank) + x.shape
    spread = [e for extent in shape for e in (1, extent)]
    wanted = [e for times, extent in zip(repeats, shape, strict=True) for e in (times, extent)]
    y = call("expand", x.reshape(tuple(spread)), shape=tuple(wanted))
    return y.reshape(tuple(times * extent for times, extent in zip(repeats, shape, strict=True)))


def part(x: Tensor, axis: int, key: builtins.slice | int) -> Tensor:
    """`x` indexed along one axis."""
    keys: list[builtins.slice | int] = [builtins.slice(None)] * x.rank
    keys[axis] = key
    return x[tuple(keys)]


@converter("aten.slice")
def slice(x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    return part(x, dim, builtins.slice(start, end, step))


@converter("aten.select")
def select(x: Tensor, dim: int, index: int) -> Tensor:
    return part(x, dim, index)


@converter("aten.split_with_sizes", "aten.split")
def split(x: Tensor, split_sizes: Sequence[int] = (), split_size: int = 0, dim: int = 0) -> list[Tensor]:
    extent = x.shape[dim]
    sizes = split_sizes or [min(split_size, extent - at) for at in range(0, extent, split_size)]
    ends = np.cumsum(sizes).tolist()
    return [part(x, dim, builtins.slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)]


@converter("aten.unbind")
def unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    return [part(x, dim, position) for position in range(x.shape[dim])]


@converter("aten.cat")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return call("concat", *tensors, axis=dim)


@converter("aten.stack")
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return cat([unsqueeze(x, dim % (x.rank + 1)) for x in tensors], dim)


@converter("aten.flip")
def flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    for dim in dims:
        x = cat([part(x, dim, builtins.slice(at, at + 1)) for at in reversed(range(x.shape[dim]))], dim)
    return x


@converter("aten.constant_pad_nd")
def pad(x: Tensor, pad: Sequence[int], value: float = 0) -> Tensor:
    """`pad` is (before, after) from the last axis backwards; a negative entry cuts off."""
    pairs = [(0, 0)] * (x.rank - len(pad) // 2) + [*zip(pad[::2], pad[1::2], strict=True)][::-1]
    keys = [builtins.slice(max(-a, 0), e - max(-b, 0)) for (a, b), e in zip(pairs, x.shape, strict=True)]
    x = x[tuple(keys)]
    before = [max(a, 0) for a, _ in pairs]
    shape = [e + a + max(b, 0) for e, a, (_, b) in zip(x.shape, before, pairs, strict=True)]
    return x if tuple(shape) == x.shape else call("pad", x, starts=before, shape=shape, value=value)


# ---- Made by the module ---------------------------------------------------------------------------------


@converter("aten.full")
def full(size: Sequence[int], fill_value: float, dtype: str | None = None) -> Tensor:
    return call("expand", constant(fill_value, dtype), shape=tuple(size))


@converter("aten.full_like")
def full_like(x: Tensor, fill_value: float, dtype: str | None = None) -> Tensor:
    return full(x.shape, fill_value, dtype or x.dtype)


@converter("aten.scalar_tensor")
def scalar_tensor(value: float, dtype: str = "float32") -> Tensor:
    return constant(value, dtype)


@converter("aten.arange")
def arange(start: float, end: float | None = None, step: float = 1, dtype: str | None = None) -> Tensor:
    """Integers are int32."""
    low, high = (0, start) if end is None else (start, end)
    values = np.arange(low, high, step)
    return constant(values, dtype or ("int32" if values.dtype.kind == "i" else "float32"))


# ---- Lookups --------------------------------------------------------------------------------------------


@converter("aten.embedding")
def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1) -> Tensor:
    """`padding_idx` marks a row that torch does not train: it is trained here if it is looked up."""
    return call("take", weight, indices)


@converter("aten.index_select")
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    axes = [dim % x.rank, *(a for a in range(x.rank) if a != dim % x.rank)]
    taken = call("take", x.transpose(*axes), index)
    return taken.transpose(*np.argsort(axes).tolist())


@converter("aten.index")
def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Positions along one axis."""
    given = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    if len(given) != 1 or given[0][1].rank != 1 or given[0][1].dtype != "int32":
        types = ", ".join(str(i.type) for _, i in given)
        raise ShapeError(f"{x.type} indexed by {types}", hint="one list of positions, along one axis")
    return index_select(x, *given[0])


@converter("aten.gather")
def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """One element for each position, along one axis whose index has the extent 1."""
    axis = dim % x.rank
    if index.shape != (*x.shape[:axis], 1, *x.shape[axis + 1 :]):
        hint = "one position for each row"
        raise ShapeError(f"gather of {x.type} along axis {dim} by {index.type}", hint=hint)
    moved = x.transpose(*(a for a in range(x.rank) if a != axis), axis)
    return call("pick", moved, index.reshape(moved.shape[:-1])).reshape(index.shape)
