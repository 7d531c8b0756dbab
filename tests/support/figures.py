"""What training steps cost on the cores, measured under QEMU on real digits: the figures in docs/figures.md."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import teeny_embed as te
from support.data import Array, Digits
from support.nets import Case, Feed
from teeny_embed.api.running import call, expect_ok
from teeny_embed.deploy import firmware, measure, toolchain
from teeny_embed.deploy.qemu import QemuBoard
from teeny_embed.deploy.runner import Runner

COMPILER = "arm-none-eabi-gcc 12.2.1"
"""The compiler whose counts are recorded. Others give other counts, which are printed."""

LEVELS = ("-O2", "-O3", "-Os")
COUNTED_STEPS = 8
TIMEOUT_S = 300.0
