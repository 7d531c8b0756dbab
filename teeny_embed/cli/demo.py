"""`teeny-embed demo`: a digit classifier learns on an emulated Cortex-M4F, and NumPy checks every bit."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import teeny_embed as te
from teeny_embed import nn
from teeny_embed.api.fitting import FitReport, fit, score
from teeny_embed.api.running import differing_bits
from teeny_embed.deploy.runner import Array
from teeny_embed.errors import DataError, DeviceError, VerificationError

TARGET = "cortex-m4f"
BATCH = 16
EPOCHS = 6
FIRST_RATE, LAST_RATE = 0.08, 0.005
TRAINING_SHARE = 0.8
WANTED_ACCURACY = 0.95


@dataclass(frozen=True, eq=False)
class Digits:
    """8x8 images, float32 [N, 8, 8, 1] in 0 to 1, and labels, int32 [N]; a part is held out."""

    images: Array
    labels: Array
    held_out_images: Array
    held_out_labels: Array


def load_digits() -> Digits:
    """scikit-learn's digits in an order of their own. Raises DataError if it is not installed."""
    try:
        from sklearn import datasets
    except ImportError:
        hint = "pip install 'teeny_embed[demo]'"
        raise DataError("the demo's data set needs scikit-learn", hint=hint) from None
    raw, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(raw))
    images = (raw[order] / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    labels = labels[order].astype(np.int32)
    count = int(TRAINING_SHARE * len(images))
    return Digits(images[:count], labels[:count], images[count:], labels[count:])


def program() -> te.Program:
    """Two convolutions and a linear layer; batches of 16 to train, single images to infer."""
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    images, labels = te.input("images", (BATCH, 8, 8, 1)), te.input("labels", (BATCH,), "int32")
    return te.Program(
        "digits",
        infer=te.trace(net, te.input("image", (1, 8, 8, 1))),
        train_step=te.train_step(net, nn.cross_entropy, nn.SGD(momentum=0.9), images, labels),
    )


def train(model: Any, digits: Digits, progress: Callable[[int, int, float], None] | None = None) -> FitReport:
    """The same training, wherever it runs: the rate falls from the first to the last step."""
    steps = EPOCHS * (len(digits.images) // BATCH)

    def rate(step: int) -> float:
        return FIRST_RATE + (LAST_RATE - FIRST_RATE) * step / steps

    return fit(model, digits.images, digits.labels, on="numpy", epochs=EPOCHS, lr=rate, progress=progress)


def train_in_numpy() -> FitReport:
    """The whole training in ordered NumPy, for a process of its own."""
    with tempfile.TemporaryDirectory(prefix="teeny_embed_") as folder:
        return train(te.build(program(), TARGET, folder), load_digits())


def run(console: Console, out: Path) -> None:
    """The demo. Raises VerificationError if one bit differs."""
    digits = load_digits()
    build = te.build(program(), TARGET, out)
    console.print(f"C for {TARGET} is in {out}, {len(digits.images)} images to learn from")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        reference = pool.submit(train_in_numpy)
        with te.open_runner(build, "qemu") as board:
            learned = _train_with_bar(console, board, digits)
            accuracy = score(board, digits.held_out_images, digits.held_out_labels)
        with console.status("profile, and the end of NumPy's own training"):
            costs = te.profile(build)
            expected = reference.result()
    bits = differing_state_bits(learned, expected)
    console.print(summary(learned, accuracy, costs, bits))
    if bits:
        raise VerificationError(f"{bits} bits of the weights differ between board and NumPy")
    if accuracy < WANTED_ACCURACY:
        raise DeviceError(f"accuracy {accuracy:.1%} is below {WANTED_ACCURACY:.0%}")


def _train_with_bar(console: Console, board: Any, digits: Digits) -> FitReport:
    columns = (
        TextColumn("training on the emulated board"), BarColumn(),
        TextColumn("step {task.completed}/{task.total}  loss {task.fields[loss]:.3f}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("train", total=None, loss=float("nan"))
        return train(
            board, digits, lambda step, steps, loss: bar.update(task, completed=step, total=steps, loss=loss)
        )


def differing_state_bits(a: FitReport, b: FitReport) -> int:
    """Bits in which weights, moments and losses of two trainings differ."""
    pairs = [(a.state[name], b.state[name]) for name in a.state]
    losses = np.array(a.losses, np.float32), np.array(b.losses, np.float32)
    return sum(differing_bits(x, y) for x, y in [*pairs, losses])


# ---- What it prints ---------------------------------------------------------------------------------------


def summary(learned: FitReport, accuracy: float, costs: dict[str, Any], bits: int) -> Table:
    """The table at the end."""
    weights = sum(value.size for name, value in learned.state.items() if not name.endswith(".momentum"))
    instructions = costs["instructions"]["train_step"]["total"]
    rows = {
        "loss": f"{sparkline(learned.losses)}  {learned.epochs[0].loss:.3f} to {learned.epochs[-1].loss:.3f}",
        "accuracy": f"{accuracy:.1%} of the held-out images, on the board",
        "arena": f"{costs['arena_bytes']:,} B (batch {BATCH})",
        "state": f"{costs['state_bytes']:,} B (weights and momentum)",
        "flash": f"{costs['code_bytes'] + costs['constant_bytes']:,} B",
        "stack": f"{max(costs['stack_bytes'].values()):,} B at most",
        "instructions": f"{instructions:,} a training step, {instructions // BATCH:,} an image",
        "NumPy": f"{weights:,} weights, {bits} differing bits after {len(learned.losses)} steps",
    }
    table = Table("digits", TARGET)
    for name, text in rows.items():
        table.add_row(name, text)
    return table


def sparkline(values: tuple[float, ...], width: int = 32) -> str:
    """Means of `width` parts of `values`, as bars from 0 to the largest."""
    parts = [float(np.mean(part)) for part in np.array_split(values, min(width, len(values)))]
    marks = "▁▂▃▄▅▆▇█"
    top = max(parts) or 1.0
    return "".join(marks[min(int(len(marks) * part / top), len(marks) - 1)] for part in parts)
