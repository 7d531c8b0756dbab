"""Multi-head attention, with grouped heads, masks, a cache and a window."""

from __future__ import annotations

from functools import reduce
from math import sqrt

import numpy as np

from teeny_embed.frontends.onnx.model import Operation
from teeny_embed.frontends.onnx.registry import converter
from teeny_embed.graph.ops.elementwise import where
from teeny_embed.graph.tensor import Tensor, call, constant

LOWEST = float("-inf")
"""The score of a key that is not seen."""


@converter("Attention")
def attention(op: Operation) -> list[Tensor]:
    """softmax(query key' scale + mask) value, the keys and values with those of the past, and the scores.

    Tensors are [N, heads, length, size], or [N, length, heads size].
    """
    flat = op[0].rank == 3
    query = _heads(op[0], op.attribute("q_num_heads", 0)) if flat else op[0]
    key, value = (_heads(op[i], op.attribute("kv_num_heads", 0)) if flat else op[i] for i in (1, 2))
    past = op[4].shape[2] if op.has(4) else 0
    if past:
        key, value = (call("concat", op[4 + i], x, axis=2) for i, x in enumerate((key, value)))
    groups = query.shape[1] // key.shape[1]
    scale = sqrt(op.attribute("scale") or 1 / sqrt(query.shape[-1]))
    scores = (query * scale) @ (_repeated(key, groups) * scale).transpose(0, 1, 3, 2)
    mode, plain = op.attribute("qk_matmul_output_mode", 0), scores
    if softcap := op.attribute("softcap", 0.0):
        scores = call("tanh", scores / softcap) * softcap
    plain = scores if mode == 1 or softcap else plain
    allowed = _allowed(op, query.shape[2], key.shape[2], past)
    if op.has(3) and op[3].dtype != "bool":
        scores = scores + _to_length(op[3], key.shape[2], LOWEST)
    scores = scores if allowed is None else where(allowed, scores, LOWEST)
    plain = scores if mode == 2 else plain
    shares = call("softmax", scores, axis=-1)
    if op.has(3) or allowed is not None:  # a query that sees nothing gets nothing
        shares = where(call("max", scores, axes=(-1,), keepdims=True) == LOWEST, 0.0, shares)
    plain = shares if mode == 3 else plain
    y = shares @ _repeated(value, groups)
    if flat:
        y = y.transpose(0, 2, 1, 3).reshape((y.shape[0], y.shape[2], -1))
    return [y, key, value, plain]


def _heads(x: Tensor, count: int) -> Tensor:
    return x.reshape((x.shape[0], x.shape[1], count, -1)).transpose(0, 2, 1, 3)


def _repeated(x: Tensor, times: int) -> Tensor:
    """Each head for `times` heads of the query."""
    if times == 1:
        return x
    n, heads, length, size = x.shape
    wide = call("expand", x.reshape((n, heads, 1, length, size)), shape=(n, heads, times, length, size))
    return wide.reshape((n, heads * times, length, size))


def _to_length(mask: Tensor, length: int, fill: float | bool) -> Tensor:
    """A mask that is shorter than the keys ends before them."""
    if mask.shape[-1] == length:
        return mask
    return call("pad", mask, starts=(0,) * mask.rank, shape=(*mask.shape[:-1], length), value=fill)


def _allowed(op: Operation, queries: int, keys: int, past: int) -> Tensor | None:
    """Which key each query sees: bool, against [N, heads, queries, keys]; None for all."""
    found: list[Tensor] = []
    if op.has(3) and op[3].dtype == "bool":
        found.append(_to_length(op[3], keys, False))
    lengths = op.get(6)
    first: Tensor = constant(np.full((1, 1, 1, 1), past, np.int32))
    if lengths is not None:
        column = lengths.reshape((-1, 1, 1, 1))
        places = constant(np.arange(keys, dtype=np.int32).reshape((1, 1, 1, -1)))
        found.append(call("less", places, column))
        first = column - queries if not past else first
    apart = (np.arange(queries)[:, None] - np.arange(keys)).astype(np.int32)[None, None]
    before = first + constant(apart)  # how many places a key lies before its query
    left, right = (op.attribute(f"{side}_window_size", -1) for side in ("left", "right"))
    if op.attribute("is_causal", 0):
        found.append(before >= 0)
    if left >= 0:
        found.append(before <= left)
    if right >= 0:
        found.append(before >= -right)
    return reduce(lambda a, b: call("logical_and", a, b), found) if found else None


@converter("RotaryEmbedding")
def rotary(op: Operation) -> Tensor:
    """Pairs of numbers, halves of each head or neighbours, turned by the angle of their position."""
    x = op[0]
    flat = x.rank == 3
    heads = x.reshape((*x.shape[:2], op.attribute("num_heads", 0), -1)) if flat else x.transpose(0, 2, 1, 3)
    size = op.attribute("rotary_embedding_dim", 0) or heads.shape[-1]
    cosine, sine = (call("take", op[i], op[3]) if op.has(3) else op[i] for i in (1, 2))
    cosine, sine = (v.reshape((*v.shape[:2], 1, v.shape[2])) for v in (cosine, sine))
    turned, rest = heads[..., :size], heads[..., size:] if size < heads.shape[-1] else None
    if op.attribute("interleaved", 0):
        pairs = turned.reshape((*turned.shape[:-1], size // 2, 2))
        a, b = pairs[..., 0], pairs[..., 1]
    else:
        a, b = turned[..., : size // 2], turned[..., size // 2 :]
    a, b = cosine * a - sine * b, sine * a + cosine * b
    if op.attribute("interleaved", 0):
        y = call("concat", *(v.reshape((*v.shape, 1)) for v in (a, b)), axis=-1).reshape(turned.shape)
    else:
        y = call("concat", a, b, axis=-1)
    y = y if rest is None else call("concat", y, rest, axis=-1)
    return y.reshape(x.shape) if flat else y.transpose(0, 2, 1, 3)
