"""What all tests share: where material is that is read but not kept in this repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.data import Digits
from support.tools import absent

REPOSITORY = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of models, vectors and data sets: TEENY_EMBED_SHARED, else `../shared`."""
    path = Path(os.environ.get("TEENY_EMBED_SHARED") or REPOSITORY.parent / "shared")
    if not path.is_dir():
        absent(f"no shared material at {path}: set TEENY_EMBED_SHARED to where it is")
    return path


@pytest.fixture(scope="session")
def mnist(shared: Path) -> Digits:
    """Real digits."""
    return Digits(shared / "datasets" / "mnist_10k_2k.npz")
