"""Where `templates/` and `targets/` are: inside the installed package, or beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def directory(name: str) -> Path:
    """The directory `name` ("templates" or "targets"), installed or in a checkout."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
