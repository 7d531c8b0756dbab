"""The example of two imported models in one firmware: sound to features to a word."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "keyword_spotting" / "spot.py"


@pytest.mark.full
def test_words_are_heard(shared: Path, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("spot", EXAMPLE)
    assert spec is not None and spec.loader is not None
    spot = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(spot)
    words = ("yes", "no", "silence")
    sounds = [shared / "models" / "samples" / f"micro_speech_{word}_1000ms.wav" for word in words]
    assert spot.main(shared / "models" / "tflm", sounds, tmp_path) == list(words)
