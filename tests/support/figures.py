"""What training steps cost on the cores, measured under QEMU on real digits: the figures in docs/figures.md."""

from __future__ import annotations

COMPILER = "arm-none-eabi-gcc 12.2.1"
"""The compiler whose counts are recorded. Others give other counts, which are printed."""

LEVELS = ("-O2", "-O3", "-Os")
COUNTED_STEPS = 8
TIMEOUT_S = 300.0
