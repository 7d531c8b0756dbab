"""Maps that join tensors are loops over parts: where one ends is decided before the loops are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from teeny_embed.api import Program, build, verify
from teeny_embed.graph.tensor import Tensor, call, input, trace


def joined(a: Tensor, b: Tensor) -> Tensor:
    rows = call("concat", a, b, a * 3, axis=0)
    return call("concat", rows, rows + 1, axis=1)


@pytest.mark.parametrize("target", ["host", "cortex-m4f"])
def test_joined_parts_are_copied_without_a_choice(target: str, tmp_path: Path) -> None:
    a, b = input("a", (2, 9), "int32"), input("b", (5, 9), "int32")
    program = Program("net", infer=trace(joined, a, b))
    build(program, target, tmp_path / "net")
    nodes = (tmp_path / "net" / "net.c").read_text().split("TE_NODE static")[1:]
    assert len(nodes) > 1 and not any("?" in node.partition("\n}")[0] for node in nodes)
    assert verify(build(program, "host", tmp_path / "host")).ok


def test_choices_with_very_many_seams_stay_choices(tmp_path: Path) -> None:
    a = input("a", (1, 3), "int32")
    program = Program("net", infer=trace(lambda a: call("concat", *[a + n for n in range(66)], axis=0), a))
    built = build(program, "host", tmp_path)
    assert "?" in (tmp_path / "net.c").read_text().partition("TE_NODE static")[2]
    assert verify(built).ok
