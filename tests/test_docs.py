"""The documents: tables are what the commands print, examples run, what is named exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.tools import need
from teeny_embed.api import build
from teeny_embed.cli import main
from teeny_embed.cli.model import load_program
from teeny_embed.deploy.toolchain import run

REPOSITORY = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")])
README, GENERATED_C = REPOSITORY / "README.md", REPOSITORY / "docs" / "generated_c.md"
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")

EACH = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)


def blocks(document: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text(), re.M | re.S)


def commands(document: Path) -> list[list[str]]:
    """The calls of teeny-embed, without its name."""
    lines = [line for block in blocks(document, "sh") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("teeny-embed ")]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The README's model.py, in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(blocks(README, "python")[0])
    return tmp_path / "model.py"


# ---- Examples -----------------------------------------------------------------------------------------


def test_the_python_of_the_readme_runs(model: Path) -> None:
    pytest.importorskip("sklearn")
    need("arm-none-eabi-gcc", "qemu-system-arm")
    done = subprocess.run([sys.executable, model], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "0 differing bits" in done.stdout
    scores = re.findall(r"score=([\d.]+)", done.stdout)
    assert float(scores[-1]) > 0.85


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("document", [README, GENERATED_C], ids=lambda path: path.name)
def test_the_commands_run(document: Path) -> None:
    need("arm-none-eabi-gcc", "qemu-system-arm", "clang")
    assert commands(document)
    for words in commands(document):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, f"teeny-embed {shlex.join(words)}\n{result.output}"


@pytest.mark.usefixtures("model")
def test_the_c_example_learns(tmp_path: Path) -> None:
    need("gcc")
    built = build(load_program("model.py:program"), "cortex-m4f", tmp_path / "digits", selftest=True)
    (tmp_path / "main.c").write_text("\n".join(blocks(GENERATED_C, "c")))
    assert all(text in (built.directory / "digits.c").read_text() for text in blocks(GENERATED_C, "text"))
    names = (*built.interface.sources, "digits_store.c", "digits_selftest.c")
    sources = [tmp_path / "main.c", *(built.directory / name for name in names)]
    run("gcc", [*STRICT, "-I", built.directory, *sources, "-o", tmp_path / "main"])
    assert subprocess.run([tmp_path / "main"], timeout=10).returncode == 0


# ---- Facts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "file"), [("ops", "ops.md"), ("targets", "targets.md"), ("tflite", "tflite_operators.md")]
)
def test_the_table_is_what_the_command_prints(command: str, file: str) -> None:
    printed = CliRunner().invoke(main, [command, "--markdown"]).stdout
    text = (REPOSITORY / "docs" / file).read_text()
    assert text == printed, f"refresh it: teeny-embed {command} --markdown > docs/{file}"


def test_quoted_figures_are_those_recorded() -> None:
    """What the README quotes stands in the documents of figures, which are measured."""
    section = README.read_text().partition("## Numbers")[2].partition("\n## ")[0]
    documents = ("figures.md", "int8_figures.md")
    measured = "".join((REPOSITORY / "docs" / name).read_text() for name in documents)
    quoted = re.findall(r"\d{1,3}(?:,\d{3})+", section)
    assert len(quoted) >= 4 and [number for number in quoted if number not in measured] == []


@EACH
def test_no_absolute_path_is_named(document: Path) -> None:
    paths = re.findall(r"""(?:^|[\s"'(`=])((?:/[\w.-]+){2,})""", document.read_text(), re.M)
    assert [path for path in paths if not path.startswith("/dev/")] == []


@EACH
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)", document.read_text())
    missing = [each for each in targets if "://" not in each and not (document.parent / each).exists()]
    assert missing == []


@EACH
def test_named_files_and_tests_exist(document: Path) -> None:
    text = document.read_text()
    for path in re.findall(r"`((?:tests|firmware_tests|benchmarks|templates)/[\w/]+\.\w+)`", text):
        assert (REPOSITORY / path).is_file(), path
    for path, name in re.findall(r"`((?:firmware_)?tests/[\w/]+\.py)::(\w+)`", text):
        assert re.search(rf"^def {name}\(", (REPOSITORY / path).read_text(), re.M), f"{path}::{name}"
