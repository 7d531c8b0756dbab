"""Where windows lie: TensorFlow's SAME and VALID padding, and the extents that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from teeny_embed.frontends.tflite.model import Array
from teeny_embed.frontends.tflite.operation import Operation


@dataclass(frozen=True)
class Window:
    """Stride, padding and dilation of a window over height and width, as the graph's operators take them."""

    stride: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    dilation: tuple[int, int] = (1, 1)

    @property
    def attributes(self) -> dict[str, tuple[int, int] | tuple[tuple[int, int], tuple[int, int]]]:
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}


def window(op: Operation, extents: tuple[int, ...], kernel: tuple[int, ...], dilated: bool = False) -> Window:
    """The window of a convolution or pool over `extents`. Raises DataError for options that make none."""
    stride = op.option("stride_h"), op.option("stride_w")
    dilation = (op.option("dilation_h_factor", 1), op.option("dilation_w_factor", 1)) if dilated else (1, 1)
    # In files older than the dilation factors these are 0.
    dilation = dilation[0] or 1, dilation[1] or 1
    if min(*stride, *dilation, *kernel) < 1 or max(*stride, *dilation, *kernel) > 1 << 15:
        raise op.error(f"kernel {list(kernel)}, stride {list(stride)}, dilation {list(dilation)}")
    if op.enum_option("padding", "Padding", "SAME") == "VALID":
        return Window(stride, ((0, 0), (0, 0)), dilation)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    height, width = (same_padding(e, s, t) for e, s, t in zip(extents, spans, stride, strict=True))
    return Window(stride, (height, width), dilation)


def same_padding(extent: int, span: int, stride: int) -> tuple[int, int]:
    """(before, after) such that ceil(extent / stride) windows of `span` elements fit; an odd one is after."""
    count = -(-extent // stride)
    total = max(0, (count - 1) * stride + span - extent)
    return total // 2, total - total // 2


def element_counts(extents: tuple[int, ...], kernel: tuple[int, ...], where: Window) -> Array:
    """How many elements of the input each window holds: int64 [height, width] of the output."""
    counts = []
    for extent, span, stride, (before, after) in zip(
        extents, kernel, where.stride, where.padding, strict=True
    ):
        first = np.arange(0, extent + before + after - span + 1, stride) - before
        counts.append(np.minimum(first + span, extent) - np.maximum(first, 0))
    return np.outer(*counts)
