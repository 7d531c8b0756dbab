"""Padding, and what trades positions for channels or samples."""

from __future__ import annotations

from math import prod

import numpy as np

from teeny_embed.frontends.tflite.model import Array
from teeny_embed.frontends.tflite.movement import ANY, gathered
from teeny_embed.frontends.tflite.operation import Operation
from teeny_embed.frontends.tflite.registry import converter
from teeny_embed.graph.tensor import Tensor, call

# ---- Padding ----------------------------------------------------------------------------------------------


def _paddings(op: Operation, x: Tensor) -> Array:
    """int64 [rank, 2]: before, after. Raises DataError."""
    paddings = op.constant(1).astype(np.int64)
    if paddings.shape != (x.rank, 2) or paddings.min() < 0 or paddings.max() > 1 << 24:
        raise op.error(f"paddings {paddings.tolist()} for {x.type}")
    return paddings


@converter("PAD PADV2", ANY)
def pad(op: Operation) -> Tensor:
    """Surrounded by zeros (quantised: the zero point), or by the given value."""
    x, info = op.input(0), op.output_info()
    paddings = _paddings(op, x)
    value = op.constant(2).reshape(-1)[0].item() if op.has_input(2) else 0
    if not op.has_input(2) and info.quantization is not None:
        value = info.zero_point
    return padded(x, paddings, value)


def padded(x: Tensor, paddings: Array, value: float) -> Tensor:
    """x surrounded by `value`; paddings [rank, 2]."""
    if not paddings.any():
        return x
    shape = tuple(int(e + a + b) for e, (a, b) in zip(x.shape, paddings, strict=True))
    return call("pad", x, starts=paddings[:, 0].tolist(), shape=shape, value=value)


@converter("MIRROR_PAD", ANY)
def mirror_pad(op: Operation) -> Tensor:
    """Surrounded by its mirror image, with (SYMMETRIC) or without (REFLECT) the edge."""
    x = op.input(0)
    edge = op.enum_option("mode", "MirrorPadMode", "REFLECT") == "SYMMETRIC"
    for axis, (before, after) in enumerate(_paddings(op, x)):
        extent = x.shape[axis]
        if max(before, after) > extent - (not edge):
            raise op.error(f"{max(before, after)} mirrored elements of {extent}")
        mode = "symmetric" if edge else "reflect"
        x = gathered(x, np.pad(np.arange(extent), (before, after), mode=mode), axis)  # type: ignore[call-overload]
    return x


# ---- Space, depth and batch -------------------------------------------------------------------------------


def _block(op: Operation, x: Tensor) -> int:
    block: int = op.option("block_size")
    if x.rank != 4 or block < 1:
        raise op.error(f"block {block} of {x.type}")
    return block


@converter("SPACE_TO_DEPTH", ANY)
def space_to_depth(op: Operation) -> Tensor:
    """Blocks of positions become channels."""
    x, out = op.input(0), op.output_info().shape
    b = _block(op, x)
    n, h, w, c = x.shape
    if h % b or w % b:
        raise op.error(f"block {b} of {x.type}")
    return x.reshape(n, h // b, b, w // b, b, c).transpose(0, 1, 3, 2, 4, 5).reshape(out)


@converter("DEPTH_TO_SPACE", ANY)
def depth_to_space(op: Operation) -> Tensor:
    """Channels become blocks of positions."""
    x, out = op.input(0), op.output_info().shape
    b = _block(op, x)
    n, h, w, c = x.shape
    if c % (b * b):
        raise op.error(f"block {b} of {x.type}")
    return x.reshape(n, h, w, b, b, c // (b * b)).transpose(0, 1, 3, 2, 4, 5).reshape(out)


def _blocks(op: Operation, x: Tensor) -> tuple[list[int], Array]:
    """Block extents, and [blocks, 2] of padding or crops. Raises DataError."""
    blocks = [int(b) for b in op.constant(1)]
    margins = op.constant(2).astype(np.int64)
    if len(blocks) > x.rank - 1 or min(blocks) < 1 or margins.shape != (len(blocks), 2) or margins.min() < 0:
        raise op.error(f"blocks {blocks}, margins {margins.tolist()} of {x.type}")
    return blocks, margins


@converter("SPACE_TO_BATCH_ND", "float32 int8", "padded with the zero point")
def space_to_batch(op: Operation) -> Tensor:
    """Blocks of positions become samples."""
    x, info = op.input(0), op.output_info()
    blocks, margins = _blocks(op, x)
    count = len(blocks)
    paddings = np.zeros((x.rank, 2), np.int64)
    paddings[1 : 1 + count] = margins
    x = padded(x, paddings, info.zero_point if info.quantization is not None else 0)
    if any(e % b for e, b in zip(x.shape[1:], blocks, strict=False)):
        raise op.error(f"blocks {blocks} of {x.type}")
    split = [part for e, b in zip(x.shape[1:], blocks, strict=False) for part in (e // b, b)]
    parts = x.reshape(x.shape[0], *split, *x.shape[1 + count :])
    inner = [2 + 2 * i for i in range(count)]
    outer = [1 + 2 * i for i in range(count)]
    return parts.transpose(*inner, 0, *outer, *range(1 + 2 * count, parts.rank)).reshape(info.shape)


@converter("BATCH_TO_SPACE_ND", "float32 int8")
def batch_to_space(op: Operation) -> Tensor:
    """Samples become blocks of positions."""
    x = op.input(0)
    blocks, crops = _blocks(op, x)
    count, samples = len(blocks), x.shape[0] // prod(blocks)
    if samples * prod(blocks) != x.shape[0]:
        raise op.error(f"blocks {blocks} of {x.type}")
    parts = x.reshape(*blocks, samples, *x.shape[1:])
    space = [axis for i in range(count) for axis in (count + 1 + i, i)]
    merged = parts.transpose(count, *space, *range(2 * count + 1, parts.rank))
    extents = [e * b for e, b in zip(x.shape[1:], blocks, strict=False)]
    whole = merged.reshape(samples, *extents, *x.shape[1 + count :])
    key = [slice(int(a), int(e - b)) for e, (a, b) in zip(extents, crops, strict=True)]
    return whole[(slice(None), *key)]
