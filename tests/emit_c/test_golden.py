"""The exact text of a small model, so that a change of the emitter shows in a diff.

    TEENY_EMBED_UPDATE_GOLDEN=1 python -m pytest tests/emit_c/test_golden.py     writes the files anew
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from support.runs import assert_equal_bits
from support.tiny import tiny
from teeny_embed.api import Build, build
from teeny_embed.deploy.host import HostLibrary
from teeny_embed.deploy.reference import ReferenceRunner

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "tiny"
UPDATE = "TEENY_EMBED_UPDATE_GOLDEN"
FILES = ("tiny.h", "tiny.c", "tiny_params.c")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Build:
    made = build(tiny(), "cortex-m4f", tmp_path_factory.mktemp("tiny"))
    if os.environ.get(UPDATE):
        GOLDEN.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (GOLDEN / name).write_bytes((made.directory / name).read_bytes())
    return made


@pytest.mark.parametrize("name", FILES)
def test_the_text_is_the_golden_one(name: str, built: Build) -> None:
    found = (built.directory / name).read_text().splitlines()
    assert found == (GOLDEN / name).read_text().splitlines(), f"{UPDATE}=1 writes the golden files anew"


def test_the_golden_files_train_to_numpys_bits(built: Build, tmp_path: Path) -> None:
    for path in (*(GOLDEN / name for name in FILES), built.directory / "te_abi.h"):
        shutil.copy(path, tmp_path)
    rng = np.random.default_rng(0)
    with (
        HostLibrary(built.interface, tmp_path) as library,
        ReferenceRunner(built.interface, built.program.entry_points) as reference,
    ):
        assert library.reset() == reference.reset() == 0
        for label in (0, 1, 1):
            image = rng.random((1, 4, 4, 1), dtype=np.float32)
            feed = {"image": image, "label": np.int32(label), "learning_rate": np.float32(0.1)}
            found, expected = (runner.call("train_step", feed) for runner in (library, reference))
            assert found[0] == expected[0] == 0
            assert_equal_bits(found[1], expected[1], "the loss")
        assert_equal_bits(library.read_state(), reference.read_state(), "the state")
