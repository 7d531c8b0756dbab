"""What other libraries need for the int8 MLPerf Tiny models.

Not measured here: the figures are those of peers/per_layer.json of the shared material, which its figures.md
explains. CMSIS-NN 99f736a6, its kernels called directly, and TFLite Micro 90b983c2 with CMSIS-NN's kernels;
arm-none-eabi-gcc 12.2.1 -O3, executed instructions under QEMU, mean of 8 random inputs. Its Cortex-M4
stands beside the M4F; the M33, with the same instructions, was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """Of one model. Flash is code and constants of the image, the weights and some harness inside."""

    instructions: Mapping[str, int]
    """By core."""
    arena_bytes: int
    """Activations and scratch, input and output inside, on the M4."""
    stack_bytes: int
    flash_bytes: int
    m4_cycles: int | None = None


def _cmsis_nn(
    m0: int, m3: int, m4: int, m7: int, m55: int,
    arena_bytes: int, stack_bytes: int, flash_bytes: int, m4_cycles: int,
) -> Peer:  # fmt: skip
    instructions = {"cortex-m0": m0, "cortex-m3": m3, "cortex-m4f": m4, "cortex-m7": m7, "cortex-m55": m55}
    return Peer(instructions, arena_bytes, stack_bytes, flash_bytes, m4_cycles)


def _tflite_micro(m4: int, m55: int, arena_bytes: int, stack_bytes: int, flash_bytes: int) -> Peer:
    return Peer({"cortex-m4f": m4, "cortex-m55": m55}, arena_bytes, stack_bytes, flash_bytes)


CMSIS_NN = {
    "ad_autoencoder": _cmsis_nn(
        1_758_693, 952_815, 579_230, 579_496, 146_827, 768, 276, 6_748 + 271_908, 712_249
    ),
    "kws_dscnn": _cmsis_nn(
        28_999_152, 10_541_310, 7_841_366, 7_757_280, 1_781_180, 16_256, 644, 26_076 + 30_276, 9_104_669
    ),
    "ic_resnet8": _cmsis_nn(
        97_566_125, 41_753_673, 29_869_875, 29_933_562, 4_806_466, 51_456, 676, 21_660 + 82_716, 36_077_756
    ),
    "vww_mobilenetv1": _cmsis_nn(
        86_865_555, 32_073_515, 24_710_640, 24_474_001, 6_423_250, 65_536, 644, 28_124 + 244_308, 29_068_880
    ),
}  # fmt: skip

TFLITE_MICRO = {
    "ad_autoencoder": _tflite_micro(582_349, 285_510, 3_024, 748, 31_688 + 277_888),
    "kws_dscnn": _tflite_micro(7_845_230, 1_785_902, 22_832, 1_236, 86_600 + 54_920),
    "ic_resnet8": _tflite_micro(29_874_945, 4_812_213, 55_008, 1_236, 80_136 + 99_464),
    "vww_mobilenetv1": _tflite_micro(24_720_578, 6_434_242, 100_720, 1_236, 86_600 + 334_272),
}
