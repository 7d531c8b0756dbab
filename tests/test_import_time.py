"""Importing teeny_embed is cheap: of third parties it loads NumPy alone."""

from __future__ import annotations

import subprocess
import sys

LAZY = (
    "jinja2", "pycparser", "serial", "click", "rich", "sklearn", "torch", "tflite", "flatbuffers",
    "safetensors",
)  # fmt: skip

PROGRAM = f"""
import sys
import teeny_embed
print(*[name for name in {LAZY} if name in sys.modules])
"""


def test_import_loads_no_third_party_but_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
