"""`verify`: equal programs are equal, and a program that is not is found out, down to the node."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import teeny_embed as te
from teeny_embed import nn
from teeny_embed.api.blame import fnv1a
from teeny_embed.api.running import differing_bits

ONE = np.float32(1)
NAN = np.array([0x7FC00000, 0xFFC00001], np.uint32).view(np.float32)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> te.Build:
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 4))
    image, label = te.input("image", (1, 6, 6, 1)), te.input("label", (), "int32")
    step = te.train_step(net, nn.cross_entropy, nn.SGD(momentum=0.9), image, label)
    program = te.Program("small", infer=te.trace(net, image), train_step=step)
    return te.build(program, "host", tmp_path_factory.mktemp("small"))


@pytest.fixture
def changed(build: te.Build, tmp_path: Path) -> te.Build:
    """The build in a directory of its own, to be changed."""
    return te.build(build.program, "host", tmp_path)


def change_node(build: te.Build, node: str) -> None:
    """Makes a node compute something else: the first value that it stores is negated."""
    path = build.directory / "small.c"
    text = path.read_text()
    start = text.index(f"void {node}(")
    store = re.compile(r"(\] = )([^;]+);").search(text, text.index("{", start))
    assert store is not None
    path.write_text(f"{text[: store.start()]}] = -({store[2]});{text[store.end() :]}")


def test_differing_bits_are_counted_and_nan_equals_nan() -> None:
    assert differing_bits(NAN[:1], NAN[1:]) == 0
    assert differing_bits(np.float32(0), np.float32(-0.0)) == 1
    assert differing_bits(np.float32(np.nan), ONE) > 0
    assert differing_bits(np.array([1, 2], np.int32), np.array([1, 5], np.int32)) == 3


def test_hashes_take_any_nan_for_equal() -> None:
    assert fnv1a(NAN[:1]) == fnv1a(NAN[1:]) != fnv1a(np.array([np.inf], np.float32))
    assert fnv1a(np.frombuffer(b"foobar", np.uint8)) == 0xBF9CF968  # the published test vector


def test_a_faithful_build_has_no_differing_bits(build: te.Build) -> None:
    report = te.verify(build, steps=5, lr=0.1)
    assert report.ok and report.calls == {"infer": 5, "train_step": 5} and report.values > 5 * 100
    assert "0 differing bits" in str(report)


@pytest.mark.parametrize("position", [0, 2, -1])
def test_the_node_that_was_changed_is_named(changed: te.Build, position: int) -> None:
    step = changed.interface.entry_points[1]
    inference = changed.interface.entry_points[0].node_names
    node = [name for name in step.node_names if name not in inference][position]
    change_node(changed, node)
    report = te.compare(changed, steps=2)
    assert report.difference is not None
    assert (report.difference.entry, report.difference.node) == ("train_step", node)
    assert node in str(report)


def test_verify_raises_what_compare_returns(changed: te.Build) -> None:
    change_node(changed, changed.interface.entry_points[0].node_names[0])
    with pytest.raises(te.VerificationError, match="first differing node: small_conv0"):
        te.verify(changed, steps=1)


def vectors(count: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"image": rng.standard_normal((count, 6, 6, 1)).astype(np.float32)}


def test_vectors_run_the_entry_points_that_they_fit(build: te.Build) -> None:
    assert te.verify(build, vectors=vectors()).calls == {"infer": 3}
    labelled = vectors() | {"label": np.array([0, 3, 1])}
    assert te.verify(build, vectors=labelled).calls == {"infer": 3, "train_step": 3}
    assert te.verify(build, vectors={"in0": vectors()["image"]}).calls == {"infer": 3}


def test_outputs_in_vectors_are_compared(build: te.Build) -> None:
    with te.open_runner(build, "numpy") as runner:
        outputs = [runner.call("infer", {"image": image[None]})[1]["output"] for image in vectors()["image"]]
    good = vectors() | {"out0": np.stack(outputs)}
    assert te.compare(build, vectors=good).ok
    off = good | {"out0": good["out0"] + np.float32(1e-3)}
    assert not te.compare(build, vectors=off).ok
    assert te.compare(build, vectors=off, tolerance=2e-3).ok


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"picture": np.zeros((1, 6, 6, 1), np.float32)}, "lack input 'image'"),
        ({"image": np.zeros((2, 5, 6, 1), np.float32)}, "samples of shape"),
        ({"image": np.zeros((0, 6, 6, 1), np.float32)}, "no samples"),
        ({"image": np.zeros((2, 6, 6, 1), np.float32), "label": np.zeros(3, int)}, "number of samples"),
        ({"image": np.zeros((1, 6, 6, 1), np.float32), "label": np.array([0.5])}, "values would change"),
    ],
)
def test_mismatched_vectors_are_refused(build: te.Build, given: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(te.DataError, match=message):
        te.verify(build, vectors=given)


def test_calls_that_both_refuse_are_equal_and_counted(build: te.Build) -> None:
    report = te.verify(
        build, vectors={"image": np.full((2, 6, 6, 1), np.nan, np.float32), "label": np.zeros(2, int)}
    )
    assert report.ok and report.refused == 2 and "2 calls refused" in str(report)


def test_nothing_to_compare_is_refused(build: te.Build) -> None:
    with pytest.raises(te.DataError, match="0 steps"):
        te.verify(build, steps=0)


def test_a_host_build_has_no_board(build: te.Build) -> None:
    with pytest.raises(te.ToolError, match="no board"):
        te.verify(build, on="qemu")


def test_profile_of_a_host_build_has_sizes(build: te.Build) -> None:
    costs = te.profile(build)
    assert costs["instructions"] is None and costs["cycles_estimate"] is None
    assert costs["code_bytes"] > 500 and 0 < costs["stack_bytes"]["infer"] < 1000
    assert costs["macs"]["infer"] == 4 * 4 * 3 * 9 + 4 * 12
