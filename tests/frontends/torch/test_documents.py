"""docs/pytorch.md says what is there, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from teeny_embed.frontends.torch.operators import CONVERTERS

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "pytorch.md"


def test_the_listed_operators_are_those_with_a_converter() -> None:
    section = DOCUMENT.read_text().partition("## What is supported")[2]
    listed = re.findall(r"`([a-z_0-9]+)`", section)
    assert listed == sorted(name.removeprefix("aten.") for name in CONVERTERS)


@pytest.mark.full
def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
    exec(compile(example, "pytorch.md", "exec"), {})
    assert (tmp_path / "build" / "digits" / "digits.c").is_file()
