"""Time LeNet-5 training steps on this machine: generated C and PyTorch, side by side, one thread each.

    python benchmarks/host_training.py [--rounds N] [--json] [--write]

Both start from the same weights and see the same batches of MNIST (TEENY_EMBED_SHARED, else ../shared, has
the file); their losses must agree. The two take turns, some steps each; a round's time is its mean, and the
median over rounds is what counts. --write refreshes the section of docs/figures.md.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

import teeny_embed as te
from support.data import Array, Digits
from support.figures_text import DOCUMENT, table, write_section
from support.nets import Case
from teeny_embed.deploy import declarations, toolchain
from teeny_embed.deploy.host import HostLibrary
from teeny_embed.deploy.runner import state_from_bytes

FLAGS = ("-O3", "-march=native")  # and -ffp-contract=off, which every build gets
RATE = 0.05
ALIGNMENT_BYTES = 64
STEPS_PER_TURN = {1: 200, 32: 20}
WANTED_RATIO = {1: 6.0, 32: 1.5}
CHECKED_STEPS = 20
TOLERANCE = 1e-4

Step = Callable[[int], float]
"""Trains with a batch, by its number, and returns the loss."""


@dataclass(frozen=True)
class Times:
    """Microseconds of a step."""

    batch: int
    ours_us: float
    torch_us: float
    ratio: float
    """Median of the rounds' ratios."""
    ours_least_us: float
    torch_least_us: float
