"""Time LeNet-5 training steps on this machine: generated C and PyTorch, side by side, one thread each.

    python benchmarks/host_training.py [--rounds N] [--json] [--write]

Needs the extra `oracles`. Both start from the same weights and see the same batches of MNIST
(TEENY_EMBED_SHARED, else ../shared, has the file); their losses must agree. The two take turns, some steps
each; a round's time is its mean, and the median over rounds is what counts. --write refreshes the section of
docs/figures.md.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from side_by_side import FLAGS, Library, Times, address, take_turns
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import teeny_embed as te
from support.data import Array, Digits
from support.figures import mnist
from support.figures_text import DOCUMENT, table, write_section
from support.nets import Case
from teeny_embed.deploy import toolchain
from teeny_embed.deploy.runner import state_from_bytes

RATE = 0.05
STEPS_PER_TURN = {1: 200, 32: 20}
WANTED_RATIO = {1: 6.0, 32: 1.5}
CHECKED_STEPS = 20
TOLERANCE = 1e-4


class Trainer(Protocol):
    """Trains one model, batch by batch."""

    def step(self, batch: int) -> None:
        """With batch number `batch`."""

    def loss(self) -> float:
        """Of the last step."""


class Compiled:
    """Generated C, called through ctypes with arguments prepared beforehand."""

    def __init__(self, build: te.Build, images: Array, labels: Array, folder: Path) -> None:
        """`images` and `labels` have a batch in each row."""
        self._library, self._interface = Library(build, folder), build.interface
        self._loss = ctypes.c_float()
        self._data = (images, labels)  # the arguments point into them
        self._arguments = [self._batch(image, label) for image, label in zip(images, labels, strict=True)]
        self._train_step = self._library.function("train_step")

    def _batch(self, image: Array, label: Array) -> tuple[Any, ...]:
        by_value = label.size == 1
        label_argument = ctypes.c_int32(int(label[0])) if by_value else address(label)
        rate, loss = ctypes.c_float(RATE), ctypes.byref(self._loss)
        return self._library.context, address(image), label_argument, rate, loss

    def state(self) -> dict[str, Array]:
        """Parameters by name."""
        return state_from_bytes(self._interface, self._library.state.tobytes())

    def step(self, batch: int) -> None:
        self._train_step(*self._arguments[batch % len(self._arguments)])

    def loss(self) -> float:
        return self._loss.value


class Torch:
    """The same net as a PyTorch user writes it, with the weights `state`."""

    def __init__(self, state: dict[str, Array], images: Array, labels: Array) -> None:
        self._net = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
        )  # fmt: skip
        with torch.no_grad():
            for parameter, (name, value) in zip(self._net.parameters(), state.items(), strict=True):
                parameter.copy_(torch.from_numpy(_channels_first(name, value)))
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=RATE)
        self._criterion = nn.CrossEntropyLoss()
        self._images = torch.from_numpy(images.reshape(*images.shape[:2], 1, 28, 28))
        self._labels = torch.from_numpy(labels.astype(np.int64))
        self._loss = torch.zeros(())

    def step(self, batch: int) -> None:
        at = batch % len(self._images)
        self._optimizer.zero_grad()
        self._loss = self._criterion(self._net(self._images[at]), self._labels[at])
        self._loss.backward()
        self._optimizer.step()

    def loss(self) -> float:
        return float(self._loss.detach())


def _channels_first(name: str, value: Array) -> Array:
    """Filters OHWI to OIHW, and the columns of the first dense layer likewise."""
    if value.ndim == 4:
        value = value.transpose(0, 3, 1, 2)
    elif value.shape == (120, 400):
        value = value.reshape(120, 5, 5, 16).transpose(0, 3, 1, 2).reshape(120, 400)
    return np.ascontiguousarray(value)


def check_losses(ours: Trainer, theirs: Trainer) -> None:
    """Both learn the same. Raises SystemExit."""
    for batch in range(CHECKED_STEPS):
        ours.step(batch)
        theirs.step(batch)
        if not abs(ours.loss() - theirs.loss()) <= TOLERANCE * max(1.0, abs(theirs.loss())):
            raise SystemExit(f"step {batch}: loss {ours.loss()}, torch {theirs.loss()}")


def compare(batch: int, rounds: int, digits: Digits, folder: Path) -> Times:
    """Times of a step. Raises SystemExit where the losses differ."""
    count = len(digits.labels) // batch
    images = np.ascontiguousarray(digits.images[28][: count * batch].reshape(count, batch, -1))
    labels = digits.labels[: count * batch].reshape(count, batch)
    build = te.build(Case("lenet5", "sgd", batch).program("lenet5"), "host", folder / "lenet5")
    ours = Compiled(build, images, labels, folder)
    theirs = Torch(ours.state(), images, labels)
    check_losses(ours, theirs)
    return take_turns(ours.step, theirs.step, rounds, STEPS_PER_TURN[batch])


def text(found: dict[int, Times]) -> str:
    header = ("LeNet-5, SGD", "us", "torch us", "times as fast", "wanted", "least us", "least torch us")
    rows = [
        (f"batch {batch}", t.ours_us, t.theirs_us, 1 / t.ratio, WANTED_RATIO[batch], t.ours_least_us,
         t.theirs_least_us)
        for batch, t in found.items()
    ]  # fmt: skip
    return table(header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="refresh docs/figures.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for batch in STEPS_PER_TURN:
        with tempfile.TemporaryDirectory() as folder:
            found[batch] = compare(batch, options.rounds, mnist(), Path(folder))
    rows = [{"batch": batch, **asdict(t)} for batch, t in found.items()]
    print(json.dumps(rows, indent=1) if options.json else text(found))
    if options.write:
        gcc = toolchain.run("gcc", ["-dumpfullversion"]).strip()
        version = torch.__version__.split("+")[0]
        heading = f"gcc {gcc}, `{' '.join(FLAGS)} -ffp-contract=off`; torch {version}:"
        write_section(DOCUMENT, "host_training", f"{heading}\n\n{text(found)}")


if __name__ == "__main__":
    main()
