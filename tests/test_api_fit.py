"""`fit`: learns wherever it runs, equally; stops when told; goes back to the best parameters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed import nn
from teeny_embed.api.fitting import score

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 64)
POINTS = (np.eye(3, 4)[LABELS] + 0.1 * RNG.standard_normal((64, 4))).astype(np.float32)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> te.Build:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    x, label = te.input("x", (8, 4)), te.input("label", (8,), "int32")
    step = te.train_step(net, nn.cross_entropy, nn.SGD(momentum=0.5), x, label)
    program = te.Program("blobs", infer=te.trace(net, x), train_step=step)
    return te.build(program, "host", tmp_path_factory.mktemp("blobs"))


@pytest.fixture
def runner(build: te.Build) -> Iterator[Any]:
    with te.open_runner(build, "host") as opened:
        yield opened


def test_training_learns_and_scores(build: te.Build) -> None:
    report = te.fit(build, POINTS, LABELS, epochs=10, lr=0.2, validation=(POINTS, LABELS))
    assert len(report.losses) == 10 * 8 and report.stopped == "epochs"
    assert report.losses[-1] < 0.2 * report.losses[0]
    assert report.epochs[-1].score == 1.0


def test_numpy_and_host_learn_the_same_bits(build: te.Build) -> None:
    numpy, host = (te.fit(build, POINTS, LABELS, on=on, epochs=2, lr=0.1) for on in ("numpy", "host"))
    assert numpy.losses == host.losses
    assert all(np.array_equal(numpy.state[name], host.state[name]) for name in numpy.state)


def test_the_seed_decides_the_order(build: te.Build) -> None:
    runs = [te.fit(build, POINTS, LABELS, lr=0.1, seed=seed).losses for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_a_rate_may_depend_on_the_step(build: te.Build) -> None:
    seen: list[int] = []

    def rate(step: int) -> float:
        seen.append(step)
        return 0.1

    te.fit(build, POINTS, LABELS, epochs=2, lr=rate)
    assert seen == list(range(16))


def test_progress_is_told_after_each_step(build: te.Build) -> None:
    told: list[tuple[int, int, float]] = []
    report = te.fit(build, POINTS, LABELS, epochs=2, progress=lambda *values: told.append(values))
    assert told == [(i + 1, 16, loss) for i, loss in enumerate(report.losses)]


def test_training_stops_at_its_target(build: te.Build) -> None:
    by_score = te.fit(build, POINTS, LABELS, epochs=50, lr=0.2, validation=(POINTS, LABELS), target=0.9)
    assert by_score.stopped == "target" and by_score.epochs[-1].score >= 0.9
    by_loss = te.fit(build, POINTS, LABELS, epochs=50, lr=0.2, target=0.3)
    assert by_loss.stopped == "target" and by_loss.epochs[-1].loss <= 0.3 < by_loss.epochs[-2].loss


def test_patience_ends_what_no_longer_gets_better(build: te.Build, runner: Any) -> None:
    report = te.fit(runner, POINTS, LABELS, epochs=50, lr=0.2, validation=(POINTS, LABELS), patience=2)
    assert report.stopped == "patience"
    assert len(report.epochs) == report.best_epoch + 3
    assert all(np.array_equal(value, report.state[name]) for name, value in runner.read_state().items())
    assert score(runner, POINTS, LABELS) == report.epochs[report.best_epoch].score


def test_divergence_goes_back_to_the_best_parameters(runner: Any) -> None:
    good = te.fit(runner, POINTS, LABELS, epochs=2, lr=0.1)
    report = te.fit(runner, POINTS, LABELS, epochs=20, lr=lambda step: 0.0 if step < 8 else 1e20)
    assert report.stopped == "divergence" and report.best_epoch == 0
    for name, value in runner.read_state().items():
        if not name.endswith(".momentum"):  # moments move at rate 0, too
            assert np.array_equal(value, good.state[name])


def test_wider_types_are_narrowed_without_loss(build: te.Build) -> None:
    wide = te.fit(build, POINTS.astype(np.float64), LABELS.astype(np.int64))
    assert wide.losses == te.fit(build, POINTS, LABELS.astype(np.int32)).losses


@pytest.mark.parametrize(
    ("data", "labels", "options", "message"),
    [
        (POINTS[:0], LABELS[:0], {}, "less than one batch"),
        (POINTS[:5], LABELS[:5], {}, "less than one batch"),
        (POINTS, LABELS[:40], {}, "differ in their number"),
        (POINTS[:, :3], LABELS, {}, "expected"),
        (POINTS, LABELS + 0.5, {}, "values would change"),
        (POINTS, LABELS + 1, {}, "TE_ERR_RANGE"),
        (POINTS, LABELS, {"lr": float("nan")}, "TE_ERR_ARGUMENT"),
        (POINTS, LABELS, {"batch": 4}, "batches of 8, not 4"),
        (POINTS, LABELS, {"epochs": 0}, "epochs = 0"),
        (POINTS, LABELS, {"on": "moon"}, "no place 'moon'"),
        ([POINTS, POINTS], LABELS, {}, "expected"),
    ],
)
def test_bad_data_are_refused(
    build: te.Build, data: Any, labels: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(te.DataError, match=message):
        te.fit(build, data, labels, **options)


def test_a_program_without_training_step_cannot_be_trained(tmp_path: Path) -> None:
    build = te.build(te.Program("still", infer=te.trace(nn.ReLU(), te.input("x", (1, 4)))), out=tmp_path)
    with pytest.raises(te.DataError, match="no entry point 'train_step'"):
        te.fit(build, POINTS, LABELS)
