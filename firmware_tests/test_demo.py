"""The demo as a newcomer runs it, and `verify` and `profile` on an emulated board."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import teeny_embed as te
from teeny_embed import nn
from teeny_embed.cli import main
from teeny_embed.cli.demo import sparkline


def small(tmp_path: Path, target: str) -> te.Build:
    net = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
    x, label = te.input("x", (1, 16)), te.input("label", (), "int32")
    step = te.train_step(net, nn.cross_entropy, nn.SGD(momentum=0.9), x, label)
    return te.build(te.Program("small", infer=te.trace(net, x), train_step=step), target, tmp_path)


@pytest.mark.usefixtures("emulator")
def test_demo_learns_on_the_board_with_zero_differing_bits(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    result = CliRunner().invoke(main, ["demo", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    assert re.search(r"[\d,]+ weights, 0 differing bits", result.stdout)
    accuracy = re.search(r"([\d.]+)% of the held-out images", result.stdout)
    assert accuracy is not None and float(accuracy[1]) >= 95
    written = {path.name for path in (tmp_path / "demo").iterdir()}
    modules = {f"digits{end}" for end in (".c", ".h", "_params.c", "_store.c", "_store.h")}
    assert written == modules | {"te_abi.h", "manifest.json"}


@pytest.mark.usefixtures("emulator")
def test_verify_names_a_changed_node_on_the_board(tmp_path: Path) -> None:
    build = small(tmp_path, "cortex-m3")
    assert te.verify(build, on="qemu", steps=3).ok
    path = build.directory / "small.c"
    text = path.read_text()
    start = text.index("void small_loss_exp(")
    changed = re.sub(r"(\] = )([^;]+);", r"\1-(\2);", text[start:], count=1)
    path.write_text(text[:start] + changed)
    report = te.compare(build, on="qemu", steps=1)
    assert report.difference is not None and report.difference.node == "small_loss_exp"


@pytest.mark.usefixtures("emulator")
def test_profile_counts_every_node(tmp_path: Path) -> None:
    build = small(tmp_path, "cortex-m4f")
    costs = te.profile(build)
    for entry in build.interface.entry_points:
        counted = costs["instructions"][entry.name]
        nodes = [row["instructions"] for row in counted["nodes"]]
        assert len(nodes) == len(entry.node_names) and min(nodes) > 0
        assert sum(nodes) < counted["total"] < costs["cycles_estimate"][entry.name]
    assert costs["macs"]["infer"] == 16 * 8 + 8 * 4 == costs["macs"]["infer"]
    assert costs["runtime_symbols"] == []
    with te.open_runner(build, "qemu") as board:
        board.call("infer", {"x": [[1.0] * 16]})
        assert board.stack_bytes() <= costs["stack_bytes"]["infer"] + 64  # and the frame of its caller


@pytest.mark.usefixtures("emulator")
def test_profile_counts_the_mean_of_its_samples(tmp_path: Path) -> None:
    build = small(tmp_path, "microbit")  # whose soft float takes a while that depends on its operands
    one, mean = (te.profile(build, samples)["instructions"]["infer"]["total"] for samples in (1, 5))
    assert one != mean and abs(one - mean) < one / 10
    with pytest.raises(te.TeenyError, match="samples=0"):
        te.profile(build, samples=0)


@pytest.mark.usefixtures("emulator")
def test_profile_estimates_no_cycles_but_for_the_m4(tmp_path: Path) -> None:
    costs = te.profile(small(tmp_path, "microbit"))
    assert costs["cycles_estimate"] is None and costs["instructions"]["infer"]["total"] > 0
    assert "__aeabi_fadd" in costs["runtime_symbols"]


def test_a_sparkline_shows_means_from_zero_to_the_largest() -> None:
    assert sparkline((8.0, 4.0, 1.0, 0.0)) == "█▅▂▁"
    assert len(sparkline(tuple(map(float, range(1000))))) == 32
