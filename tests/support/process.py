"""A model as a process of its own: what sanitizers need, which end the process that they find fault with."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from support.data import Array
from support.tools import need
from teeny_embed.api import Build
from teeny_embed.deploy import firmware, toolchain
from teeny_embed.deploy.runner import (
    ClosingContext,
    Runner,
    entry_index,
    input_arrays,
    output_arrays,
    state_from_bytes,
    state_into_bytes,
)
from teeny_embed.emit_c.interface import EntryPoint, Interface

SANITIZERS = ("-O1", "-g", "-fsanitize=undefined,address", "-fno-sanitize-recover=all")

# Every tensor is a block of its own from malloc, so that the sanitizer sees an access behind its end.
_MAIN = """
#include "NAME.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void get(void *bytes, size_t count)
{
    if (fread(bytes, 1, count, stdin) != count) { exit(2); }
}

static void put(const void *bytes, size_t count)
{
    if (fwrite(bytes, 1, count, stdout) != count) { exit(3); }
}

int main(void)
{
    NAME_ctx_t ctx;
    void *arena = aligned_alloc(16, sizeof(NAME_arena_t));
    DECLARE_STATE
    int32_t command;
    while (fread(&command, sizeof command, 1, stdin) == 1) {
        te_status_t status = TE_OK;
        memset(arena, 0xA5, sizeof(NAME_arena_t));
        switch (command) {
        STATE_COMMANDS
CASES
        }
        fflush(stdout);
    }
    free(arena);
    FREE_STATE
    return 0;
}
"""

_WITH_STATE = {
    "DECLARE_STATE": """void *state = aligned_alloc(16, sizeof(NAME_state_t));
    memset(state, 0, sizeof(NAME_state_t));
    if (NAME_init(&ctx, state, sizeof(NAME_state_t), arena, sizeof(NAME_arena_t)) != TE_OK) { return 1; }""",
    "STATE_COMMANDS": """case -1: status = NAME_reset(&ctx); put(&status, sizeof status); break;
        case -2: put(state, sizeof(NAME_state_t)); break;
        case -3: get(state, sizeof(NAME_state_t)); break;""",
    "FREE_STATE": "free(state);",
}
_WITHOUT_STATE = {
    "DECLARE_STATE": "if (NAME_init(&ctx, arena, sizeof(NAME_arena_t)) != TE_OK) { return 1; }",
    "STATE_COMMANDS": "case -1: put(&status, sizeof status); break;",
    "FREE_STATE": "",
}
_RESET, _READ_STATE, _WRITE_STATE = -1, -2, -3


class ProcessRunner(ClosingContext):
    """A `Runner`. An error that a sanitizer finds is an AssertionError with what it printed."""

    def __init__(self, build: Build, folder: Path, compiler: str, flags: Sequence[str]) -> None:
        self.interface = build.interface
        folder.mkdir(exist_ok=True)
        (folder / "main.c").write_text(_main(build.interface))
        program, self._log = folder / "main", folder / "log"
        sources = [folder / "main.c", *(build.directory / name for name in build.interface.sources)]
        toolchain.run(compiler, ["-std=c11", *flags, "-I", build.directory, *sources, "-o", program])
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )

    def reset(self) -> int:
        """See `Runner.reset`."""
        return self._status(_RESET)

    def call(self, entry: str, inputs: Mapping[str, npt.ArrayLike]) -> tuple[int, dict[str, Array]]:
        """See `Runner.call`."""
        index = entry_index(self.interface, entry)
        declared = self.interface.entry_points[index]
        payload = b"".join(array.tobytes() for array in input_arrays(declared, inputs).values())
        status = self._status(index, payload)
        outputs = output_arrays(declared)
        for name, array in outputs.items():
            data = self._read(array.nbytes)
            outputs[name] = np.frombuffer(data, array.dtype).reshape(array.shape)
        return status, outputs

    def read_state(self) -> dict[str, Array]:
        """See `Runner.read_state`."""
        return state_from_bytes(self.interface, self._raw_state())

    def write_state(self, values: Mapping[str, npt.ArrayLike]) -> None:
        """See `Runner.write_state`."""
        changed = state_into_bytes(self.interface, self._raw_state(), values)
        self._send(_WRITE_STATE, changed)

    def close(self) -> None:
        """Ends the process, which must not leave an error behind."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        assert self._process.wait(10) == 0, self._printed()

    def _raw_state(self) -> bytes:
        if not self.interface.state_bytes:
            return b""
        self._send(_READ_STATE)
        return self._read(self.interface.state_bytes)

    def _status(self, command: int, payload: bytes = b"") -> int:
        self._send(command, payload)
        return int(np.frombuffer(self._read(4), np.int32)[0])

    def _send(self, command: int, payload: bytes = b"") -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(np.int32(command).tobytes() + payload)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(self._printed()) from None

    def _read(self, byte_count: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(byte_count)
        assert len(data) == byte_count, self._printed()
        return data

    def _printed(self) -> str:
        return f"the process ended with code {self._process.wait(10)}\n{self._log.read_text()}"


def _main(interface: Interface) -> str:
    parts = _WITH_STATE if interface.state_bytes else _WITHOUT_STATE
    text = _MAIN
    for name, part in parts.items():
        text = text.replace(name, part)
    cases = [_case(number, entry) for number, entry in enumerate(interface.entry_points)]
    return text.replace("CASES", "\n".join(cases)).replace("NAME", interface.name)


def _case(number: int, entry: EntryPoint) -> str:
    lines = [f"case {number}: {{"]
    passed = []
    for argument in entry.arguments:
        c_type = firmware.C_TYPES[argument.dtype]
        size = f"{argument.count} * sizeof({c_type})"
        lines.append(f"{c_type} *{argument.name} = malloc({size});")
        lines.append(f"get({argument.name}, {size});" if argument.direction == "in" else "")
        lines.append("" if argument.direction == "in" else f"memset({argument.name}, 0, {size});")
        passed.append(f"{argument.name}[0]" if argument.by_value else argument.name)
    lines.append(f"status = NAME_{entry.name}({', '.join(['&ctx', *passed])});")
    lines.append("put(&status, sizeof status);")
    for argument in entry.arguments:
        size = f"{argument.count} * sizeof({firmware.C_TYPES[argument.dtype]})"
        lines.append(f"put({argument.name}, {size});" if argument.direction == "out" else "")
        lines.append(f"free({argument.name});")
    return "\n".join(line for line in [*lines, "break; }"] if line)


@contextmanager
def sanitized(build: Build, folder: Path, compiler: str = "gcc", level: str = "-O1") -> Iterator[Runner]:
    """`build` under the sanitizers for undefined behaviour and addresses."""
    need(compiler)
    with ProcessRunner(build, folder, compiler, (*SANITIZERS, level)) as runner:
        yield runner
