"""Named scalar functions are CUDA C as they are printed: TE_SCALAR says where they run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from teeny_embed.emit_c import helpers
from teeny_embed.emit_c.scalar_printer import function_definition
from teeny_embed.graph import scalar as s


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_every_scalar_function_compiles_for_the_device(tmp_path: Path) -> None:
    functions = s.functions_used([f.body for f in s.FUNCTIONS.values()])
    functions += [f for f in s.FUNCTIONS.values() if f not in functions]
    body = "\n\n".join(function_definition("m", f) for f in functions)
    text = "\n\n".join(
        ["#include <stdint.h>\n#define TE_SCALAR __device__", *helpers.helpers("m", body), body]
    )
    source = tmp_path / "functions.cu"
    source.write_text(text, encoding="utf-8")
    command = [
        "nvcc",
        "-c",
        "--fmad=false",
        "-arch=sm_90",
        "-diag-suppress",
        "177",
        "-o",
        str(tmp_path / "f.o"),
    ]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
