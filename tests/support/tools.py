"""Tools that a test needs: a missing one is a visible skip, and a failure where that would hide a gap."""

from __future__ import annotations

import os
import shutil

import pytest


def absent(reason: str) -> None:
    """Skips the test, or fails it under CI, where a silent skip would pass for a check."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def need(*tools: str) -> None:
    """`absent` for the first tool that is not installed."""
    for tool in tools:
        if shutil.which(tool) is None:
            absent(f"{tool} is not installed")
