"""Nets of one quantised convolution each, for the kernels of a core with DSP instructions."""

from __future__ import annotations

from typing import Any

from support.mve import SAME

KERNELS = {
    "linear, int16": "net_dsp_linear_16(",
    "linear": "net_dsp_linear(",
    "depthwise": "net_dsp_depthwise3x3",
    "others": "net_depthwise(",
}
"""The function that runs cases whose names begin so; net_dsp_dot( all others."""
DSP_CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "linear": ((1, 152), (16, 152), {"one_scale": True}),
    "linear, 640 inputs": ((1, 640), (8, 640), {"one_scale": True}),
    "linear, two rows, a scale for each filter": ((2, 64), (16, 64), {}),
    "linear, odd sizes": ((1, 211), (5, 211), {}),
    "linear, one filter more than four": ((1, 230), (5, 230), {}),
    "linear, seven filters of 151 inputs": ((2, 151), (7, 151), {"one_scale": True}),
    "small, seven filters of seven inputs": ((2, 7), (7, 7), {"one_scale": True}),
    "small, two filters": ((1, 32), (2, 32), {}),
    "linear, int16": ((1, 28), (80, 28), {"result": "int16"}),
    "linear, int16, odd sizes": ((3, 11), (9, 11), {"result": "int16", "one_scale": True}),
    "three rows": ((3, 13), (70, 13), {}),
    "pointwise": ((1, 5, 5, 64), (12, 1, 1, 64), {}),
    "pointwise, odd filters": ((1, 4, 4, 8), (7, 1, 1, 8), {}),
    "pointwise, odd channels": ((1, 4, 5, 6), (7, 1, 1, 6), {}),
    "pointwise, two images": ((2, 2, 2, 20), (4, 1, 1, 20), {}),
    "pointwise, stride 2": ((1, 5, 6, 36), (8, 1, 1, 36), {"stride": (2, 2)}),
    "pointwise, stride 2, two images": ((2, 5, 5, 4), (8, 1, 1, 4), {"stride": (2, 2)}),
    "padded": ((1, 6, 5, 17), (20, 3, 3, 17), {"padding": SAME}),
    "padded, 32 channels": ((1, 6, 5, 32), (16, 3, 3, 32), {"padding": SAME}),
    "padded, stride 2": ((1, 9, 7, 3), (5, 3, 3, 3), {"stride": (2, 1), "padding": ((1, 1), (0, 2))}),
    "padded, two images": ((2, 5, 4, 3), (4, 3, 3, 3), {"padding": SAME}),
    "padded more than the kernel": ((1, 2, 2, 3), (4, 2, 2, 3), {"padding": ((3, 3), (3, 2))}),
    "10x4, one channel": ((1, 23, 9, 1), (6, 10, 4, 1), {"stride": (2, 2), "padding": ((4, 5), (1, 1))}),
    "two outputs": ((1, 3, 4, 5), (4, 3, 3, 5), {}),
    "dilated": ((1, 9, 8, 2), (6, 2, 3, 2), {"dilation": (3, 2), "padding": ((2, 2), (1, 1))}),
    "one-dimensional": ((1, 12, 3), (4, 5, 3), {"stride": (2,), "padding": ((2, 2),)}),
    "deep windows in groups": ((1, 3, 9, 70), (4, 3, 3, 70), {"padding": SAME}),
    "depthwise": ((1, 6, 5, 4), (4, 3, 3, 1), {"groups": 4, "padding": SAME}),
    "depthwise, even": ((1, 5, 6, 7), (7, 3, 3, 1), {"groups": 7, "padding": SAME}),
    "depthwise, valid": ((1, 7, 6, 3), (3, 3, 3, 1), {"groups": 3}),
    "depthwise, wide": ((1, 3, 41, 2), (2, 3, 3, 1), {"groups": 2, "padding": SAME}),
    "depthwise, stride 2": (
        (1, 8, 8, 3), (3, 3, 3, 1), {"groups": 3, "stride": (2, 2), "padding": ((0, 1), (0, 1))},
    ),
    "depthwise, stride 2, odd": (
        (1, 9, 9, 8), (8, 3, 3, 1), {"groups": 8, "padding": SAME, "stride": (2, 2)},
    ),
    "depthwise, stride 3 and 2": (
        (1, 11, 6, 3), (3, 3, 3, 1), {"groups": 3, "stride": (3, 2), "padding": SAME},
    ),
    "depthwise, in planes of some rows": (
        (1, 40, 39, 2), (2, 3, 3, 1), {"groups": 2, "padding": ((2, 2), (2, 2))},
    ),
    "depthwise, one column": ((1, 6, 1, 8), (8, 3, 3, 1), {"groups": 8, "padding": SAME}),
    "depthwise, one pixel": ((1, 1, 1, 4), (4, 3, 3, 1), {"groups": 4, "padding": SAME}),
    "depthwise, three columns of one": (
        (1, 6, 1, 8), (8, 3, 3, 1), {"groups": 8, "padding": ((1, 1), (2, 2))},
    ),
    "depthwise, two filters a channel, two images": (
        (2, 6, 5, 3), (6, 3, 3, 1), {"groups": 3, "padding": SAME},
    ),
    "others, stride 3 and 1": (
        (1, 11, 6, 3), (3, 3, 3, 1), {"groups": 3, "stride": (3, 1), "padding": SAME},
    ),
    "others, padded by three": (
        (1, 2, 4, 3), (3, 3, 3, 1), {"groups": 3, "padding": ((3, 3), (3, 2))},
    ),
    "others, 3x2": ((1, 7, 6, 10), (10, 3, 2, 1), {"groups": 10}),
}  # fmt: skip
"""Shapes of input and filter, and where the filter is applied."""
