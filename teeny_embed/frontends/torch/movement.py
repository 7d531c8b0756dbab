"""Shapes, parts and joins; tensors that a module makes itself; lookups."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

import numpy as np

from teeny_embed.errors import ShapeError
from teeny_embed.frontends.torch.registry import converter
from teeny_embed.graph.tensor import Tensor, call, constant


@converter("aten.view")
def view(x: Tensor, size: Sequence[int]) -> Tensor:
    return x.reshape(tuple(size))


@converter("aten.permute")
def permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    return x.transpose(*(d % x.rank for d in dims))


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


@converter("aten.upsample_nearest1d", "aten.upsample_nearest2d", "aten.upsample_nearest3d")
def upsample_nearest(
    x: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None = None
) -> Tensor:
    """Every element of [N, C, spatial...] several times side by side, by a whole factor."""
    factors = [
        int(f) if int(f) == f else 0
        for f in scale_factors or [o / e for o, e in zip(output_size or (), x.shape[2:], strict=True)]
    ]
    if 0 in factors:
        what = f"{list(x.shape[2:])} to {list(output_size or scale_factors or ())}"
        raise ShapeError(f"{what} is no whole factor", hint="scale by 2, 3 and so on")
    pairs = [*zip(x.shape[2:], factors, strict=True)]
    spread = x.reshape((*x.shape[:2], *(e for extent, _ in pairs for e in (extent, 1))))
    wide = call("expand", spread, shape=(*x.shape[:2], *(e for pair in pairs for e in pair)))
    return wide.reshape((*x.shape[:2], *(extent * factor for extent, factor in pairs)))


@converter("aten.split_with_sizes")
def split(x: Tensor, split_sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    ends = np.cumsum(split_sizes).tolist()
    return [part(x, dim, builtins.slice(a, b)) for a, b in zip([0, *ends], ends, strict=False)]


@converter("aten.cat")
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return call("concat", *tensors, axis=dim)


@converter("aten.flip")
def flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    for dim in dims:
        x = cat([part(x, dim, builtins.slice(at, at + 1)) for at in reversed(range(x.shape[dim]))], dim)
    return x


@converter("aten.roll")
def roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Without axes the elements are one row."""
    if not dims:
        return roll(x.reshape(-1), shifts, (0,)).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        at = -shift % x.shape[dim]
        if at:
            parts = part(x, dim, builtins.slice(at, None)), part(x, dim, builtins.slice(0, at))
            x = cat(parts, dim)
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
