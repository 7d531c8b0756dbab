"""What all tests share: where material is that is read but not kept in this repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent


def absent(reason: str) -> None:
    """Skips the test, or fails it under CI, where a silent skip would pass for a check."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of models, vectors and data sets: TEENY_EMBED_SHARED, else `../shared`."""
    path = Path(os.environ.get("TEENY_EMBED_SHARED") or REPOSITORY.parent / "shared")
    if not path.is_dir():
        absent(f"no shared material at {path}: set TEENY_EMBED_SHARED to where it is")
    return path
