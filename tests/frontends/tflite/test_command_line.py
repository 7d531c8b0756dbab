"""A `.tflite` file as MODEL on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from support.tflite_files import Op, T, constant, model
from teeny_embed.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a net in it."""
    monkeypatch.chdir(tmp_path)
    tensors = [
        T((1, 4), "int8", scale=0.1, name="x"),
        constant(np.ones((3, 4)), "int8", scale=0.02),
        T((1, 3), "int8", scale=0.1, name="y"),
    ]
    operators = [Op("FULLY_CONNECTED", [0, 1], [2], {}, "FullyConnectedOptions")]
    Path("Key-Words.tflite").write_bytes(model(tensors, operators, [0], [2]))
    return tmp_path


def teeny_embed(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def test_compile_names_the_module_after_the_file() -> None:
    result = teeny_embed("compile", "Key-Words.tflite", "--target", "cortex-m4f", "--out", "c", "--lint")
    assert result.exit_code == 0, result.output
    assert "key_words_infer" in Path("c/key_words.h").read_text()


def test_verify_compares_the_c_with_numpy() -> None:
    result = teeny_embed("verify", "Key-Words.tflite", "--samples", "3")
    assert result.exit_code == 0 and "0 differing bits" in result.output


def test_the_rounding_is_chosen_by_an_option() -> None:
    for rounding in ("tflite", "litert"):
        result = teeny_embed("compile", "Key-Words.tflite", "--rounding", rounding, "--out", rounding)
        assert result.exit_code == 0, result.output
        text = Path(rounding, "key_words.c").read_text()
        assert ("requantize_tflite_single(" in text) == (rounding == "litert")


def test_a_damaged_file_is_one_message() -> None:
    Path("cut.tflite").write_bytes(Path("Key-Words.tflite").read_bytes()[:100])
    result = teeny_embed("compile", "cut.tflite")
    assert result.exit_code == 2 and result.stderr.startswith("DataError: the file is damaged")
    assert teeny_embed("compile", "none.tflite").exit_code == 2


def test_the_operators_are_listed() -> None:
    result = teeny_embed("tflite", "--json")
    assert result.exit_code == 0 and "DEPTHWISE_CONV_2D" in result.output
