"""Convolutions, linear layers, matrix products and attention.

torch's layouts are NCHW and OIHW; convolutions here are NHWC and OHWI. What lies between is a transpose,
which is an index map: it moves nothing by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from teeny_embed.frontends.torch.registry import as_tuple, converter
from teeny_embed.graph.layout import channels_first, channels_last
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, binary, call


@converter("aten.convolution")
def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Filters OI<spatial>; those of a transposed convolution IO<spatial>: it is a convolution's gradient."""
    rank = x.rank - 2
    steps, before, apart = (as_tuple(v, rank) for v in (stride, padding, dilation))
    where = {"stride": steps, "padding": tuple((p, p) for p in before), "dilation": apart, "groups": groups}
    x, filters = channels_last(x), channels_last(weight)
    if transposed:
        more = as_tuple(output_padding, rank)
        kernel = filters.shape[1:-1]
        extents = tuple(
            (e - 1) * s - 2 * p + d * (k - 1) + m + 1
            for e, s, p, d, k, m in zip(x.shape[1:-1], steps, before, apart, kernel, more, strict=True)
        )
        y = call("conv_input_grad", x, filters, extents=extents, **where)
    else:
        y = call("conv", x, filters, **where)
    return channels_first(y if bias is None else y + bias)


@converter("aten.linear")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Over the last axis."""
    y = call("conv", x.reshape((-1, x.shape[-1])), weight)
    y = y if bias is None else y + bias
    return y.reshape((*x.shape[:-1], weight.shape[0]))


@converter("aten.matmul", "aten.mm", "aten.bmm")
def matmul(x: Tensor, other: Tensor | None = None, mat2: Tensor | None = None) -> Tensor:
    """A vector is a matrix of one row, or on the right of one column."""
    b = other if other is not None else mat2
    assert b is not None
    left = x.reshape((1, -1)) if x.rank == 1 else x
    right = b.reshape((-1, 1)) if b.rank == 1 else b
    y = left @ right
    gone = ({y.rank - 2} if x.rank == 1 else set()) | ({y.rank - 1} if b.rank == 1 else set())
    return y.reshape(tuple(e for axis, e in enumerate(y.shape) if axis not in gone))


@converter("aten.addmm")
def addmm(x: Tensor, mat1: Tensor, mat2: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
    product = mat1 @ mat2
    return (x if beta == 1 else x * beta) + (product if alpha == 1 else product * alpha)


@converter("aten.scaled_dot_product_attention")
def attention(
    x: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """softmax(query key^T scale + mask) value; `x` is the query, a bool mask says what takes part."""
    swapped = key.transpose(*range(key.rank - 2), key.rank - 1, key.rank - 2)
    scores = (x * (1.0 / sqrt(x.shape[-1]) if scale is None else scale)) @ swapped
    if is_causal:
        shape = scores.shape[-2:]
        rows, columns = (call("iota", shape=shape, axis=axis) for axis in (0, 1))
        attn_mask = rows >= columns
    if attn_mask is not None:
        masked = attn_mask.dtype == "bool"
        scores = where(attn_mask, scores, LOWEST) if masked else scores + binary("maximum", attn_mask, LOWEST)
    return call("softmax", scores, axis=-1) @ value


LOWEST = -3.0e38
"""In the place of minus infinity: e^(x - max) is 0 as well, and a row without any other is no NaN."""
