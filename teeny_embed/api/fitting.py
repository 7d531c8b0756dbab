"""`fit`: trains with a program's own training step, in NumPy, as C on this machine, or on a board."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from teeny_embed.api.building import Build
from teeny_embed.api.program import Program
from teeny_embed.api.running import call, expect_ok, open_runner
from teeny_embed.api.samples import as_array, batches, cast, generator, inputs_of
from teeny_embed.deploy.runner import Array, Runner, entry_index
from teeny_embed.deploy.status import ERR_NONFINITE
from teeny_embed.emit_c.interface import Argument, EntryPoint, Interface
from teeny_embed.errors import DataError

Rate = float | Callable[[int], float]
"""A learning rate, or a function of the number of the step."""
Progress = Callable[[int, int, float], None]
"""progress(steps done, steps at most, loss of the last step)."""
Data = npt.ArrayLike | Sequence[Any]

RATE = "learning_rate"


@dataclass(frozen=True)
class Epoch:
    """One pass over the data: mean loss of its steps, and score on the validation data if there are any."""

    loss: float
    score: float | None


@dataclass(frozen=True, eq=False)
class FitReport:
    """What a training did. `state` are all state tensors of the best epoch, which the runner holds, too."""

    losses: tuple[float, ...]
    """One per step, before its update."""
    epochs: tuple[Epoch, ...]
    best_epoch: int | None
    """Position in `epochs`; None if there was no better one than the start."""
    stopped: str
    """"epochs" (all done), "target", "patience" or "divergence"."""
    seed: int
    """Of the order of the samples."""
    state: dict[str, Array]


def fit(
    model: Build | Runner,
    data: Data,
    labels: npt.ArrayLike,
    *,
    on: str = "numpy",
    epochs: int = 1,
    batch: int | None = None,
    lr: Rate = 0.01,
    validation: tuple[Data, npt.ArrayLike] | None = None,
    patience: int | None = None,
    target: float | None = None,
    divergence: float = 10.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> FitReport:
    """Trains by `train_step` on shuffled batches and goes back to the best epoch's parameters.

    A `Build` is run on "numpy", "host" or "qemu", from its initial parameters; a runner goes on from where
    it is. `data` is one array, or one per input of the net; samples are along the first axis. The size
    of a batch is that of the program; what is left of an epoch after its last whole batch is not used.

    The best epoch has the highest score on `validation` (see `score`), else the lowest mean loss. Training
    stops early after `patience` epochs without a better one, when score or loss reaches `target`, or
    when the loss is not finite or `divergence` times that of the first epoch. Raises DataError.
    """
    _check_count("epochs", epochs, 1)
    _check_count("patience", 0 if patience is None else patience, 0)
    if isinstance(model, Program):
        raise DataError("a Program is no Build", hint="te.fit(te.build(program), ...)")
    with _opened(model, on) as runner:
        training = _Training(runner, _DataSet(runner.interface, data, labels, batch), lr, epochs, progress)
        stop = _Stop(patience, target, divergence, validation is not None)
        return training.run(stop, lambda: score(runner, *validation) if validation else None, seed)


def _check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int | np.integer) or value < least:
        raise DataError(f"{name} = {value!r}", hint=f"{name}: an integer, at least {least}")


def score(runner: Runner, data: Data, labels: npt.ArrayLike) -> float:
    """How good `infer` is. Integer labels: the share of right answers; others: minus the mean square error.

    What is left of the data after the last whole batch is not used. Raises DataError.
    """
    entry = _entry(runner.interface, "infer")
    arguments = inputs_of(entry)
    arrays = _arrays(data, arguments)
    wanted = as_array(labels, "labels")
    batch = arguments[0].shape[0] if arguments[0].shape else 1
    _same_length([*arrays, wanted], batch)
    found = [next(iter(call(runner, "infer", b).values())) for b in batches(arrays, arguments, batch)]
    answers = np.concatenate([each.reshape(batch, -1) for each in found])
    wanted = wanted[: len(answers)]
    classes = wanted.dtype.kind in "iu"
    if wanted[0].size != (1 if classes else answers[0].size):
        hint = "integers are classes, one per sample; floats are targets of the shape of the output"
        raise DataError(f"labels are {wanted.dtype}{list(wanted.shape)}", hint=hint)
    if classes:
        return float(np.mean(answers.argmax(axis=1) == wanted.reshape(len(answers))))
    return -float(np.mean(np.square(answers - wanted.reshape(answers.shape), dtype=np.float64)))


# ---- Data -----------------------------------------------------------------------------------------------


class _DataSet:
    """Data and labels in the types of `train_step`."""

    def __init__(self, interface: Interface, data: Data, labels: npt.ArrayLike, batch: int | None) -> None:
        self.arguments = [a for a in inputs_of(_entry(interface, "train_step")) if a.name != RATE]
        self.batch = self.arguments[0].shape[0] if self.arguments[0].shape else 1
        if batch not in (None, self.batch):
            hint = f'trace the training step with te.input("{self.arguments[0].name}", ({batch}, ...))'
            raise DataError(f"the training step takes batches of {self.batch}, not {batch}", hint=hint)
        arrays = _arrays(data, self.arguments[:-1])
        self.arrays = [*arrays, _samples(labels, self.arguments[-1], self.batch)]
        _same_length(self.arrays, self.batch)

    @property
    def batch_count(self) -> int:
        return len(self.arrays[0]) // self.batch

    def shuffled(self, rng: np.random.Generator) -> Any:
        """Batches of one epoch: a dict of inputs each."""
        order = rng.permutation(len(self.arrays[0]))
        return batches([array[order] for array in self.arrays], self.arguments, self.batch)


def _entry(interface: Interface, name: str) -> EntryPoint:
    return interface.entry_points[entry_index(interface, name)]


def _arrays(data: Data, arguments: list[Argument]) -> list[Array]:
    parts = data if isinstance(data, tuple | list) and len(arguments) > 1 else [data]
    if len(parts) != len(arguments):
        names = ", ".join(a.name for a in arguments)
        raise DataError(f"{len(parts)} arrays for {len(arguments)} inputs", hint=f"give one each for {names}")
    batch = arguments[0].shape[0] if arguments[0].shape else 1
    return [_samples(part, argument, batch) for part, argument in zip(parts, arguments, strict=True)]


def _samples(array: Any, argument: Argument, batch: int) -> Array:
    """An array of samples: what is behind its first axis is as in the argument."""
    given = as_array(array, argument.name)
    if given.ndim == 0 or given.shape[1:] != argument.shape[1:]:
        shape = ", ".join(map(str, ("N", *argument.shape[1:])))
        raise DataError(f"{argument.name} has shape {list(given.shape)}, expected [{shape}]")
    return cast(given, argument)


def _same_length(arrays: list[Array], batch: int) -> None:
    lengths = sorted({len(array) for array in arrays})
    if len(lengths) > 1:
        raise DataError(f"data and labels differ in their number of samples: {lengths}")
    if lengths[0] < batch:
        raise DataError(f"the data set holds {lengths[0]} samples, less than one batch of {batch}")


# ---- Training -------------------------------------------------------------------------------------------


class _Stop:
    """When to stop, and which epoch is the best so far. Merit is the score, or minus the loss."""

    def __init__(self, patience: int | None, target: float | None, divergence: float, scored: bool) -> None:
        self.patience, self.divergence = patience, divergence
        self.target = target if target is None or scored else -target
        self.merits: list[float] = []
        self.best: int | None = None

    def after(self, epochs: list[Epoch]) -> str | None:
        """Why to stop after the last of `epochs`, if at all. An epoch that diverged is never the best."""
        last = epochs[-1]
        if not np.isfinite(last.loss) or last.loss > self.divergence * epochs[0].loss:
            return "divergence"
        self.merits.append(-last.loss if last.score is None else last.score)
        if self.best is None or self.merits[-1] > self.merits[self.best]:
            self.best = len(self.merits) - 1
        if self.target is not None and self.merits[-1] >= self.target:
            return "target"
        if self.patience is not None and len(self.merits) - 1 - self.best >= self.patience:
            return "patience"
        return None


class _Training:
    def __init__(
        self, runner: Runner, data: _DataSet, lr: Rate, epochs: int, progress: Progress | None
    ) -> None:
        self.runner, self.data, self.epoch_count, self.progress = runner, data, epochs, progress
        self.rate = lr if callable(lr) else lambda step: lr
        self.losses: list[float] = []

    def run(self, stop: _Stop, validate: Callable[[], float | None], seed: int) -> FitReport:
        rng = generator(seed)
        epochs: list[Epoch] = []
        best = self.runner.read_state()
        why = None
        while why is None and len(epochs) < self.epoch_count:
            loss = self.epoch(rng)
            epochs.append(Epoch(loss, validate() if np.isfinite(loss) else None))
            why = stop.after(epochs)
            if stop.best == len(epochs) - 1:
                best = self.runner.read_state()
        if stop.best != len(epochs) - 1:
            self.runner.write_state(best)
        return FitReport(tuple(self.losses), tuple(epochs), stop.best, why or "epochs", seed, best)

    def epoch(self, rng: np.random.Generator) -> float:
        """Mean loss over all batches; NaN if one was not finite, at which the epoch ends."""
        first = len(self.losses)
        for feed in self.data.shuffled(rng):
            loss = self.step(feed)
            if not np.isfinite(loss):
                return float("nan")
        return float(np.mean(self.losses[first:], dtype=np.float64))

    def step(self, feed: dict[str, Array]) -> float:
        rate = np.float32(self.rate(len(self.losses)))
        status, outputs = self.runner.call("train_step", feed | {RATE: rate})
        if status == ERR_NONFINITE:
            return float("nan")
        expect_ok(status, "train_step")
        self.losses.append(float(outputs["loss"]))
        if self.progress:
            most = self.epoch_count * self.data.batch_count
            self.progress(len(self.losses), most, self.losses[-1])
        return self.losses[-1]


def _opened(model: Build | Runner, on: str) -> AbstractContextManager[Runner]:
    return open_runner(model, on) if isinstance(model, Build) else nullcontext(model)
