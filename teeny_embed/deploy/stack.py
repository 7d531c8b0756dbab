"""Worst-case stack of a function, through everything that it calls.

gcc states each function's own frame and its callees (`-fcallgraph-info=su`, one .ci file per object).
Routines of the compiler's runtime, such as soft float, have no .ci file, and of functions written in
assembly it states nothing: the machine code of both is read.

Neither callbacks (te_read_t, te_write_t) nor interrupts are counted: they are the caller's.
"""

from __future__ import annotations

import bisect
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from teeny_embed.deploy.measure import PREFIX, Instruction, instructions, register_count
from teeny_embed.deploy.toolchain import run
from teeny_embed.errors import ToolError

CALLBACK = "__indirect_call"
"""gcc's name for whatever a function pointer points to."""


def worst_case_stack(
    ci_files: Iterable[Path], entry_function: str, known_stack_bytes: Mapping[str, int]
) -> int:
    """Bytes of stack that a call of `entry_function` needs at most.

    `ci_files` are those of all objects of the module; `known_stack_bytes` says what each routine
    from outside of them needs (`runtime_stack`), and those in assembly (`assembly_stack`). ToolError
    on recursion, on frames without a bound, and on routines of which nothing is known.
    """
    found, callees = read_graphs(ci_files)
    frames = {CALLBACK: 0, **found, **known_stack_bytes}
    return deepest(entry_function, lambda name: frame_of(name, frames), lambda name: callees.get(name, set()))


def read_graphs(ci_files: Iterable[Path]) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Frame bytes and callees by function."""
    frames: dict[str, int] = {}
    callees: dict[str, set[str]] = {}
    for path in ci_files:
        text = path.read_text()
        frames.update(read_frames(text))
        for caller, callee in re.findall(r'^edge: { sourcename: "([^"]+)" targetname: "([^"]+)"', text, re.M):
            callees.setdefault(caller, set()).add(callee)
    return frames, callees


def read_frames(text: str) -> dict[str, int]:
    """Frame bytes by function; a static function is named "file.c:function"."""
    frames = {}
    for title, label in re.findall(r'^node: { title: "([^"]+)" label: "([^"]*)"', text, re.M):
        size = re.search(r"(\d+) bytes \(([a-z,]+)\)", label)
        if size is not None:
            if size[2] == "dynamic":
                raise ToolError(f"the frame of {title} has no bound", hint="an array of variable length?")
            frames[title] = int(size[1])
    return frames


def frame_of(name: str, frames: Mapping[str, int]) -> int:
    if name not in frames:
        raise ToolError(f"nothing is known of the stack of {name}", hint="name it to runtime_stack")
    return frames[name]


def deepest(
    name: str,
    frame: Callable[[str], int],
    callees: Callable[[str], Iterable[str]],
    above: tuple[str, ...] = (),
) -> int:
    """The largest sum of frames over all paths of calls that begin at `name`."""
    if name in above:
        raise ToolError(f"recursion: {' > '.join((*above, name))}")
    below = [deepest(each, frame, callees, (*above, name)) for each in sorted(callees(name))]
    return frame(name) + max(below, default=0)


# ---- Routines of the compiler's runtime -------------------------------------------------------------------
#
# A routine's own frame is bounded by the sum of all its instructions that lower the stack pointer. That
# holds whatever the branches between them, if none runs twice without its counterpart in between; in
# compiled code there is one at the beginning, in the hand-written soft float each belongs to another
# path. Jumps through tables stay inside their routine. What moves the stack pointer by an unknown
# amount is an error, and so is a call or jump through a register, but to an address of the program's own.


def runtime_stack(routines: Sequence[str], compiler: Sequence[str], prefix: str = PREFIX) -> dict[str, int]:
    """Bytes of stack that each routine of the compiler's runtime needs at most, its callees included.

    `compiler` is the command with the flags that choose the core: ("arm-none-eabi-gcc", "-mthumb", ...).
    """
    if not routines:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        elf = link_routines(routines, compiler, Path(folder))
        return stack_in_machine_code(elf, routines, prefix)


def assembly_stack(ci_files: Iterable[Path], elf: Path, prefix: str = PREFIX) -> dict[str, int]:
    """Bytes of stack of the functions in `elf` to which the compiler gives neither frame nor callees.

    That is what it says of a naked function, and of a leaf, whose machine code needs none.
    """
    frames, callees = read_graphs(ci_files)
    entries = code_entries(elf, prefix)
    bare = {
        name.rpartition(":")[2]: name for name, size in frames.items() if not size and name not in callees
    }
    linked = {symbol: name for symbol, name in bare.items() if symbol in entries}
    return {linked[symbol]: size for symbol, size in stack_in_machine_code(elf, list(linked), prefix).items()}


def link_routines(routines: Sequence[str], compiler: Sequence[str], folder: Path) -> Path:
    """An ELF file that holds the routines and what they need, so that all addresses are known."""
    elf = folder / "runtime.elf"
    source = folder / "empty.c"
    source.write_text("void start(void);\nvoid start(void) {}\n")
    wanted = [f"-Wl,--undefined={name}" for name in routines]
    flags = ["-nostartfiles", "--specs=nosys.specs", "-Wl,--entry=start", "-Wl,--no-warnings"]
    run(compiler[0], [*compiler[1:], "-O2", *flags, *wanted, source, "-o", elf])
    return elf


def stack_in_machine_code(elf: Path, names: Sequence[str], prefix: str = PREFIX) -> dict[str, int]:
    """As `runtime_stack`, of functions in a linked file."""
    entries = code_entries(elf, prefix)
    starts = sorted(set(entries.values()))
    bodies: dict[str, list[Instruction]] = {f"{start:x}": [] for start in starts}
    for each in instructions(elf, prefix):
        bodies[routine_at(each.pc, starts)].append(each)
    return {
        name: deepest(
            f"{entries[name]:x}",
            lambda routine: sum(map(lowered_bytes, bodies[routine])),
            lambda routine: set(leaves(routine, bodies[routine], starts)),
        )
        for name in names
    }


def routine_at(pc: int, starts: Sequence[int]) -> str:
    """The routine that an instruction belongs to, named by its address in hexadecimal."""
    return f"{starts[max(0, bisect.bisect_right(starts, pc) - 1)]:x}"


def code_entries(elf: Path, prefix: str) -> dict[str, int]:
    """Address by name of every function: assembly routines need not have a size."""
    rows = re.findall(r"^([0-9a-f]+) [tTwW] ([^$\s]\S*)$", run(f"{prefix}nm", [elf]), re.M)
    return {name: int(address, 16) & ~1 for address, name in rows}


def lowered_bytes(instruction: Instruction) -> int:
    """By how many bytes an instruction lowers the stack pointer; 0 for all that leave or raise it."""
    _, mnemonic, operands = instruction
    if mnemonic.startswith(("push", "stmdb", "vpush", "vstmdb")):
        pushes = mnemonic.startswith(("push", "vpush")) or operands.startswith("sp!")
        width_bytes = 8 if "{d" in operands else 4
        return register_count(operands) * width_bytes if pushes else 0
    if moved := re.search(r"\[sp, #-(\d+)\]!", operands):
        return int(moved[1])
    if mnemonic.startswith("sub") and (moved := re.match(r"sp, (?:sp, )?#(\d+)", operands)):
        return int(moved[1])
    if is_unknown_move(mnemonic, operands):
        raise ToolError(f"{mnemonic} {operands} at {instruction.pc:#x} moves the stack by an unknown amount")
    return 0


def is_unknown_move(mnemonic: str, operands: str) -> bool:
    """Whether sp is written other than by adding a constant. Comparisons, loads and stores do not."""
    writes = operands.startswith("sp,") and not mnemonic.startswith(("cmp", "str", "stm", "ldm", "tst"))
    return writes and not (mnemonic.startswith("add") and "#" in operands)


def leaves(routine: str, body: Sequence[Instruction], starts: Sequence[int]) -> Iterator[str]:
    """Routines that control goes to from this one: by a call, a jump, or by running into the next.

    Where it jumps to an address that it formed from its own (ADR), that is one of those it formed.
    """
    formed = [address for each in body if (address := formed_address(each)) is not None]
    for each in body:
        target = re.match(r"(?:\w+, )?([0-9a-f]+) <", each.operands)
        if target is not None and each.mnemonic.startswith(("b", "cb")):
            yield from {routine_at(int(target[1], 16), starts)} - {routine}
        elif each.mnemonic.startswith(("bx", "blx")) and not each.operands.startswith("lr"):
            if not formed:
                what = f"{each.mnemonic} {each.operands} at {each.pc:#x}"
                raise ToolError(f"{what}: nothing is known of its stack")
            yield from {routine_at(address, starts) for address in formed} - {routine}
    following = bisect.bisect_right(starts, int(routine, 16))
    if runs_on(body) and following < len(starts):
        yield f"{starts[following]:x}"


def formed_address(instruction: Instruction) -> int | None:
    """The address that ADR gives: its own, four bytes on and in whole words, and a constant."""
    distance = re.match(r"\w+, pc, #(\d+)", instruction.operands)
    if distance is None or not instruction.mnemonic.startswith(("add", "sub")):
        return None
    sign = -1 if instruction.mnemonic.startswith("sub") else 1
    return ((instruction.pc + 4) & ~3) + sign * int(distance[1])


def runs_on(body: Sequence[Instruction]) -> bool:
    """Whether control passes the end of a routine, where padding or a literal pool may stand."""
    code = [each for each in body if each.mnemonic != "nop"]
    if not code:
        return False
    _, mnemonic, operands = code[-1]
    returns = mnemonic in ("pop", "ldmia") and "pc}" in operands
    jumps = mnemonic in ("ldr", "mov") and operands.startswith("pc,")
    return not (returns or jumps or mnemonic in ("", "b", "bx"))
