"""What emitted C promises whoever compiles it: no warning, no variable, no foreign name, the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from support.compilers import CPP_WARNINGS, WARNINGS, objects
from support.data import Digits
from support.nets import Case
from support.process import sanitized
from support.runners import CORES, Place
from support.runs import assert_equal_runs, train
from support.tools import need
from teeny_embed.api import Build, build
from teeny_embed.deploy import measure, toolchain
from teeny_embed.deploy.reference import ReferenceRunner
from teeny_embed.emit_c.lint import lint

CASES = [
    Case("mlp", "momentum", 1),
    Case("lenet5", "sgd", 1),
    Case("normalized", "adam", 8),
    Case("autoencoder", "momentum", 1),
    Case("next_digit", "adam", 8),
    Case("clipped", "sgd", 1),
]
CASE = pytest.mark.parametrize("case", CASES, ids=str)
RICHEST = CASES[2]
STEPS = 2


def crossed(names: str, others: Sequence[object]) -> pytest.MarkDecorator:
    """Every case with the first of `others`, and the richest with each; the rest of the table is `full`."""
    rows = []
    for case in CASES:
        for other in others:
            marks = () if case == RICHEST or other == others[0] else pytest.mark.full
            rows.append(pytest.param(case, other, marks=marks))
    return pytest.mark.parametrize(names, rows, ids=str)

Emit = Callable[..., Build]


@pytest.fixture(scope="module")
def emit(tmp_path_factory: pytest.TempPathFactory) -> Emit:
    """C of a case for a target, made once."""

    @cache
    def make(case: Case, target: str = "host", name: str = "net") -> Build:
        return build(case.program(name), target, tmp_path_factory.mktemp("emitted"))

    return make


def prefix(built: Build) -> str:
    """Of binutils."""
    return "arm-none-eabi-" if built.target.board else ""


# ---- Compilers ----------------------------------------------------------------------------------------


@CASE
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_compiler_warns(case: Case, compiler: str, emit: Emit, tmp_path: Path) -> None:
    objects(emit(case), tmp_path, compiler, ("-std=c99", "-O2", *WARNINGS))
    objects(emit(case), tmp_path, compiler, ("-std=c11", "-fsyntax-only", *WARNINGS))


@crossed("case, core", ("cortex-m4f", *(core for core in CORES if core != "cortex-m4f")))
def test_no_cross_compiler_warns(case: Case, core: str, emit: Emit, tmp_path: Path) -> None:
    objects(emit(case, core), tmp_path, flags=("-std=c99", "-O2", *WARNINGS))


@crossed("case, core", ("cortex-m55", "cortex-m0", "cortex-m4f"))
def test_clang_does_not_warn_for_cores(case: Case, core: str, emit: Emit, tmp_path: Path) -> None:
    objects(emit(case, core), tmp_path, "clang", ("-std=c99", "-O1", *WARNINGS))


@CASE
def test_the_header_is_cpp_too(case: Case, emit: Emit, tmp_path: Path) -> None:
    need("g++")
    source = tmp_path / "use.cpp"
    source.write_text('#include "net.h"\nstatic net_arena_t arena;\nvoid *use() { return &arena; }')
    for dialect in ("c++11", "c++14", "c++17", "c++20"):
        options = [f"-std={dialect}", *CPP_WARNINGS, "-Wno-missing-declarations", "-fsyntax-only"]
        toolchain.run("g++", [*options, "-I", emit(case).directory, source])


# ---- Object files -------------------------------------------------------------------------------------


@crossed("case, target", ("cortex-m4f", "host", "cortex-m0"))
def test_there_are_no_variables(case: Case, target: str, emit: Emit, tmp_path: Path) -> None:
    built = emit(case, target)
    sizes = measure.section_sizes(objects(built, tmp_path), prefix(built))
    assert (sizes.data_bytes, sizes.bss_bytes) == (0, 0)
    assert sizes.code_bytes > 0
    assert sizes.constant_bytes >= built.module.constant_bytes


@crossed("case, target", ("cortex-m0", "host", "cortex-m4f"))
def test_only_the_compilers_runtime_is_needed(case: Case, target: str, emit: Emit, tmp_path: Path) -> None:
    built = emit(case, target)
    for level in ("-O0", built.target.optimize):
        needed = measure.undefined_symbols(objects(built, tmp_path, flags=("-std=c99", level)), prefix(built))
        allowed = ("__aeabi_", "__gnu_thumb1_") if target == "cortex-m0" else ("__aeabi_",)
        assert [name for name in needed if not name.startswith(allowed)] == []
        assert target != "host" or not needed


@CASE
def test_every_external_name_starts_with_the_models(case: Case, emit: Emit, tmp_path: Path) -> None:
    made = objects(emit(case), tmp_path)
    lines = toolchain.run("nm", ["-g", "--defined-only", *made]).splitlines()
    names = [line.split()[-1] for line in lines if len(line.split()) == 3]
    assert "net_train_step" in names
    assert [name for name in names if not name.startswith("net_")] == []


TWO_MODELS = """
#include "left.h"
#include "right.h"
TE_ALIGN(16) static left_state_t left_state; static left_arena_t left_arena;
static right_state_t right_state; static right_arena_t right_arena;
int main(void)
{
    left_ctx_t left; right_ctx_t right;
    te_status_t status = left_init(&left, &left_state, sizeof left_state, &left_arena, sizeof left_arena);
    status |= right_init(&right, &right_state, sizeof right_state, &right_arena, sizeof right_arena);
    return (status | left_reset(&left) | right_reset(&right)) != 0;
}
"""


def test_two_models_link_together(emit: Emit, tmp_path: Path) -> None:
    need("gcc")
    left, right = emit(CASES[0], name="left"), emit(CASES[2], name="right")
    (tmp_path / "main.c").write_text(TWO_MODELS)
    includes = [f"-I{each.directory}" for each in (left, right)]
    sources = [each.directory / name for each in (left, right) for name in each.interface.sources]
    options = ["-std=c11", *WARNINGS, *includes, tmp_path / "main.c", *sources]
    toolchain.run("gcc", [*options, "-o", tmp_path / "main"])
    assert subprocess.run([tmp_path / "main"], timeout=10).returncode == 0


@CASE
def test_lint_finds_nothing(case: Case, emit: Emit) -> None:
    built = emit(case)
    names = [*built.interface.sources, "net.h", "te_abi.h"]
    assert lint([built.directory / name for name in names], "net") == []


# ---- Behaviour ----------------------------------------------------------------------------------------


@CASE
def test_sanitizers_find_nothing(case: Case, emit: Emit, mnist: Digits, tmp_path: Path) -> None:
    with sanitized(emit(case), tmp_path) as runner:
        assert_equal_to_numpy(runner, emit(case), case, mnist)


# Each undoes what our own builds pass. -Ofast is not among them: what it links turns subnormals off in the
# whole process.
HOSTILE = [
    Place("host", "gcc", ("-std=gnu11", "-ffp-contract=fast", "-O3", "-march=native")),
    Place("host", "gcc", ("-std=gnu17", "-ffp-contract=fast", "-O2")),
    Place("host", "gcc", ("-std=gnu11", "-ffp-contract=fast", "-O3", "-march=native", "-flto")),
    Place("host", "clang", ("-std=gnu17", "-ffp-contract=on", "-O3", "-march=native")),
    Place("host", "clang", ("-std=gnu17", "-ffp-contract=on")),
]


@crossed("case, place", HOSTILE)
def test_hostile_flags_change_no_bit(
    case: Case, place: Place, emit: Emit, mnist: Digits, tmp_path: Path
) -> None:
    with place.runner(emit(case), tmp_path) as runner:
        assert_equal_to_numpy(runner, emit(case), case, mnist)


def assert_equal_to_numpy(runner, built: Build, case: Case, mnist: Digits) -> None:
    with ReferenceRunner(built.interface, built.program.entry_points) as reference:
        assert_equal_runs(train(runner, case, mnist, STEPS), train(reference, case, mnist, STEPS))


def test_fast_math_is_refused(emit: Emit, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="exact bits"):
        objects(emit(CASES[0]), tmp_path, flags=("-std=c99", "-O2", "-ffast-math"))


# ---- Reproducible -------------------------------------------------------------------------------------

AGAIN = """
import sys
from support.nets import Case
from teeny_embed.api import build
build(Case(sys.argv[1], sys.argv[2], int(sys.argv[3])).program(), "host", sys.argv[4])
"""


@CASE
def test_a_second_build_gives_the_same_bytes(case: Case, emit: Emit, tmp_path: Path) -> None:
    first = emit(case).directory
    second = tmp_path / "elsewhere" / "net"
    paths = [*sys.path, str(Path(__file__).resolve().parent.parent)]
    environment = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", AGAIN, case.net, case.optimizer, str(case.batch), str(second)]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    files = sorted(path.name for path in first.iterdir())
    assert files == sorted(path.name for path in second.iterdir())
    for name in files:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
