"""The command line: what it prints, its exit codes, and that errors are one message."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from teeny_embed.cli import main

MODEL = """
import numpy as np
import teeny_embed as te
from teeny_embed import nn

def net():
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    x, label = te.input("x", (1, 4)), te.input("label", (), "int32")
    step = te.train_step(model, nn.cross_entropy, nn.SGD(), x, label)
    return te.Program("net", infer=te.trace(model, x), train_step=step)

program = net()
number = 3

def broken():
    return 1 / 0

def mismatched():
    return te.Program("bad", infer=te.trace(nn.Linear(3, 4), te.input("x", (1, 5))))

def infinite():
    program = net()
    program.load({"linear0.bias": [np.inf] * 5})
    return program
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with model.py in it."""
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    return tmp_path


def teeny_embed(*words: str) -> Result:
    return CliRunner().invoke(main, words)


def answer(*words: str) -> object:
    result = teeny_embed(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_small_code_is_asked_for_by_an_option() -> None:
    sizes = {}
    for optimize in ("speed", "size"):
        profile = answer("profile", "model.py:net", "--target", "host", "--optimize", optimize)
        assert isinstance(profile, dict)
        sizes[optimize] = profile["code_bytes"]
    assert sizes["size"] < sizes["speed"]


def test_compile_writes_the_files_and_prints_a_report() -> None:
    result = teeny_embed("compile", "model.py:net", "--target", "cortex-m4f", "--lint")
    assert result.exit_code == 0 and "net for cortex-m4f: arena" in result.stdout
    assert (Path("build") / "net" / "net.c").is_file()


def test_compile_takes_another_name_and_directory() -> None:
    manifest = answer("compile", "model.py:program", "--out", "here", "--name", "other")
    assert manifest["interface"]["name"] == "other" and manifest["target"] == "host"
    assert Path("here/other.h").is_file()


def test_verify_says_zero_differing_bits() -> None:
    result = teeny_embed("verify", "model.py:net", "--samples", "3")
    assert result.exit_code == 0 and "3 x infer, 3 x train_step" in result.stdout
    assert "0 differing bits" in result.stdout
    assert answer("verify", "model.py:net")["ok"] is True


def test_verify_exits_with_1_on_a_difference() -> None:
    np.savez("v.npz", x=np.ones((2, 4), np.float32), output=np.zeros((2, 3), np.float32))
    result = teeny_embed("verify", "model.py:net", "--vectors", "v.npz")
    assert result.exit_code == 1 and "farther from the vectors" in result.stdout


def test_run_prints_and_writes_outputs_that_verify_accepts() -> None:
    np.savez("v.npz", in0=np.ones((2, 4), np.float32))
    values = answer("run", "model.py:net", "--vectors", "v.npz", "--out", "w.npz")
    written = np.load("w.npz")["output"]
    assert written.shape == (2, 1, 3) and np.array_equal(np.float32(values["output"]), written)
    np.savez("v.npz", in0=np.ones((2, 4), np.float32), out0=written)
    assert teeny_embed("verify", "model.py:net", "--vectors", "v.npz").exit_code == 0


def test_run_calls_the_entry_point_that_is_asked_for() -> None:
    assert list(answer("run", "model.py:net", "--entry", "train_step", "--samples", "2")) == ["loss"]


def test_profile_measures_a_host_build() -> None:
    assert answer("profile", "model.py:net", "--target", "host")["state_bytes"] > 0
    assert "arena_bytes" in teeny_embed("profile", "model.py:net", "--target", "host").stdout


def test_targets_and_ops_are_listed() -> None:
    assert {"host", "cortex-m4f", "microbit"} <= {row["name"] for row in answer("targets")}
    assert {"conv", "relu"} <= {row["name"] for row in answer("ops")}
    assert "microbit" in teeny_embed("targets").stdout and "relu" in teeny_embed("ops").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("compile model.py", "is no model"),
        ("compile absent.py:net", "no such file"),
        ("compile model.py:absent", "has no 'absent'"),
        ("compile model.py:number", "is no Program but int"),
        ("compile model.py:broken", "ZeroDivisionError"),
        ("compile model.py:mismatched", "model.py:19"),
        ("compile model.py:infinite", "linear0.bias holds NaN or infinity"),
        ("compile model.py:net --target cortex-m5", "did you mean"),
        ("compile model.py:net --name Net", "no lower-case C identifier"),
        ("compile model.py:net --out model.py", "cannot be written"),
        ("verify model.py:net --vectors absent.npz", "cannot be read"),
        ("verify model.py:net --vectors model.py", "cannot be read"),
        ("verify model.py:net --target host --on qemu", "no board"),
        ("verify model.py:net --compiler no-such-compiler", "not installed"),
        ("verify model.py:net --lr nan", "a learning rate of nan"),
        ("verify model.py:net --samples 0", "0 steps"),
        ("run model.py:net --entry absent", "has no entry point"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(folder: Path, words: str, message: str) -> None:
    result = teeny_embed(*words.split())
    assert result.exit_code == 2 and message in result.stderr and "Traceback" not in result.output
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {"model.py"}


def test_debug_shows_where_an_error_comes_from() -> None:
    result = teeny_embed("--debug", "compile", "model.py:broken")
    assert isinstance(result.exception.__cause__, ZeroDivisionError)


def test_the_model_of_the_readme_builds_and_is_verified() -> None:
    readme = (Path(__file__).resolve().parent.parent / "README.md").read_text()
    Path("model.py").write_text(readme.split("```python\n")[1].split("```")[0])
    assert teeny_embed("compile", "model.py:program", "--target", "cortex-m4f").exit_code == 0
    assert answer("verify", "model.py:program", "--samples", "2")["ok"] is True
