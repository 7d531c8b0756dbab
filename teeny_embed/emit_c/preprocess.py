"""Makes plain C11 of generated C, for pycparser, which reads neither attributes nor asm.

Every attribute is empty, the compiler is none in particular, and the standard headers are ours: little but
the names of types. So of each `#if` on compiler or core, the portable branch is left.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from teeny_embed.errors import ToolError

# What a name stands for does not matter here, only that it parses: offsetof is any constant.
HEADERS = {
    "stdint.h": """
typedef signed char int8_t; typedef unsigned char uint8_t;
typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned uint32_t;
typedef long long int64_t; typedef unsigned long long uint64_t;
typedef long intptr_t; typedef unsigned long uintptr_t;
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MAX 2147483647
#define INT32_MIN (-INT32_MAX - 1)
#define UINT32_MAX 4294967295u
#define INT64_MAX 9223372036854775807ll
#define INT64_MIN (-INT64_MAX - 1)
#define UINT64_MAX 18446744073709551615ull
#define INT64_C(value) value##ll
#define UINT64_C(value) value##ull
""",
    "stddef.h": """
typedef unsigned long size_t; typedef long ptrdiff_t;
#define NULL ((void *)0)
#define offsetof(type, member) 0u
""",
    "float.h": """
#define FLT_RADIX 2
#define FLT_MANT_DIG 24
#define FLT_EVAL_METHOD 0
#define FLT_MIN 0x1p-126f
#define FLT_MAX 0x1.fffffep+127f
#define FLT_EPSILON 0x1p-23f
""",
}


def preprocess(path: Path) -> str:
    """The file as plain C11, with line markers."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in HEADERS.items():
            Path(folder, name).write_text(text)
        empty = [f"-D{macro}=" for macro in ("__attribute__(list)", "TE_VECTOR(bytes)")]
        command = ["gcc", "-E", "-std=c11", "-nostdinc", "-U__GNUC__", *empty, "-I", folder]
        try:
            done = subprocess.run([*command, str(path)], capture_output=True, text=True)
        except FileNotFoundError:
            raise ToolError("gcc is missing", hint="lint needs its preprocessor: install gcc") from None
    if done.returncode != 0:
        raise ToolError(f"gcc cannot preprocess {path.name}: {done.stderr.strip()}")
    return done.stdout


def without_tables(text: str) -> str:
    """`text` with lists of plain numbers shortened, line breaks kept: weights would take minutes to parse."""
    numbers = re.compile(r"\{\s*[-+.\d][-+\s,.0-9a-fA-FxXpPuUlL]*\}")
    return numbers.sub(lambda found: "{0" + "\n" * found[0].count("\n") + "}", text)
