"""What a program costs: instructions and cycles of a run under QEMU, bytes of its object files.

Instructions are counted by a plugin of QEMU (icount_plugin.c), exactly, per instruction and segment.
The firmware opens segment `id` by calling `te_mark(id)`, which stores to `te_mark_base[id]`, an array
of bytes; segment 0 is what runs before the first call. Counts say nothing of time; `m4_cycles` is
a rough estimate of it.

Worst-case stack is in stack.py.
"""

from __future__ import annotations

import atexit
import bisect
import functools
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from teeny_embed.deploy.toolchain import run
from teeny_embed.errors import DataError

PREFIX = "arm-none-eabi-"

Histogram = Mapping[int, int]
"""How often the instruction at an address ran."""


# ---- Symbols and instructions of an ELF file ------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Symbol:
    """A name with an address, without the bit that marks Thumb code."""

    address: int
    size_bytes: int
    name: str
    is_code: bool


class Instruction(NamedTuple):
    """One line of disassembly; `mnemonic` without its width, such as "ldr" for "ldr.w"."""

    pc: int
    mnemonic: str
    operands: str


def symbols(elf: Path, prefix: str = PREFIX) -> tuple[Symbol, ...]:
    """Symbols that have a size, by address."""
    return _symbols(elf, prefix, elf.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _symbols(elf: Path, prefix: str, modified_ns: int) -> tuple[Symbol, ...]:
    found = []
    for line in run(f"{prefix}nm", ["-S", elf]).splitlines():
        words = line.split()
        if len(words) == 4:
            address, size_bytes, is_code = int(words[0], 16), int(words[1], 16), words[2] in "tTwW"
            found.append(Symbol(address & ~1 if is_code else address, size_bytes, words[3], is_code))
    return tuple(sorted(found))


def symbol(elf: Path, name: str) -> Symbol:
    """The symbol `name` of `elf`; DataError if it has none."""
    for each in symbols(elf):
        if each.name == name:
            return each
    raise DataError(f"{elf.name} has no {name}", hint="link it with the firmware of templates/firmware")


def instructions(elf: Path, prefix: str = PREFIX) -> tuple[Instruction, ...]:
    """The disassembly of `elf` in the order of its sections; literal pools appear with no mnemonic."""
    return _instructions(elf, prefix, elf.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _instructions(elf: Path, prefix: str, modified_ns: int) -> tuple[Instruction, ...]:
    # objdump decodes MVE only when told to, even if the file says what it was compiled for
    vector = "v8.1-M" in run(f"{prefix}readelf", ["-A", elf])
    machine = ["-m", "armv8.1-m.main"] if vector else []
    text = run(f"{prefix}objdump", ["-d", "--no-show-raw-insn", *machine, elf])
    lines = re.findall(r"^ *([0-9a-f]+):[ \t]+(\S+)[ \t]*(.*)", text, re.M)
    return tuple(Instruction(int(pc, 16), word.split(".")[0], rest) for pc, word, rest in lines)


def register_count(operands: str) -> int:
    """How many registers stand between braces: 5 for "{r4-r7, lr}"."""
    listed = operands[operands.find("{") + 1 : operands.find("}")]
    ranges = re.findall(r"[a-z]+(\d*)(?:-[a-z]+(\d+))?", listed)
    return sum(int(last) - int(first) + 1 if last else 1 for first, last in ranges)


# ---- Counting -------------------------------------------------------------------------------------------


def qemu_plugin_version() -> int:
    """The version of the plugin interface to ask for: QEMU 9 refuses plugins that ask for the first."""
    found = re.search(r"version (\d+)", run("qemu-system-arm", ["--version"]))
    return 1 if found and int(found[1]) < 9 else 2


@functools.cache
def plugin() -> Path:
    """The compiled plugin, in a temporary directory that lives as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix="teeny_embed_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / "icount_plugin.so"
    source = Path(__file__).with_name("icount_plugin.c")
    options = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC"]
    run("gcc", [*options, f"-DQEMU_PLUGIN_VERSION={qemu_plugin_version()}", source, "-o", library])
    return library


def plugin_arguments(elf: Path, out: Path) -> list[str]:
    """Arguments that make qemu-system-arm count the instructions of `elf` and write them to `out`."""
    mark, base = symbol(elf, "te_mark"), symbol(elf, "te_mark_base")
    settings = {
        "mark_low": mark.address,
        "mark_high": mark.address + mark.size_bytes,
        "base": base.address,
        "ids": base.size_bytes,
        "out": out.resolve(),
    }
    text = ",".join(f"{name}={value}" for name, value in settings.items())
    return ["-plugin", f"{plugin()},{text}"]


def read_counts(out: Path) -> dict[int, dict[int, int]]:
    """Segment id to (address to count) of a run that `plugin_arguments` counted."""
    if not out.is_file():
        raise DataError("the run left no instruction counts", hint="QEMU was stopped before the guest exited")
    segments: dict[int, dict[int, int]] = {}
    for line in out.read_text().splitlines():
        first, number = line.split()
        if first == "S":
            current = segments.setdefault(int(number), {})
        else:
            current[int(first, 16)] = int(number)
    return {id: dict(sorted(counts.items())) for id, counts in sorted(segments.items())}


def instruction_total(histogram: Histogram) -> int:
    """Instructions that ran."""
    return sum(histogram.values())


def by_function(elf: Path, histogram: Histogram) -> dict[str, int]:
    """Instructions per function, its callees not included, most first; "?" is code without a symbol."""
    code = [each for each in symbols(elf) if each.is_code and each.size_bytes]
    starts = [each.address for each in code]
    totals: dict[str, int] = {}
    for pc, count in histogram.items():
        at = bisect.bisect_right(starts, pc) - 1
        inside = at >= 0 and pc < code[at].address + code[at].size_bytes
        name = code[at].name if inside else "?"
        totals[name] = totals.get(name, 0) + count
    return dict(sorted(totals.items(), key=lambda item: (-item[1], item[0])))


# ---- Cycles ---------------------------------------------------------------------------------------------

# Beginning of a mnemonic, cycles; the first that fits counts. Cortex-M4 Technical Reference Manual,
# tables of processor and FPU instruction timing; SDIV (2 to 12) and the first of loads are typical values.
FIXED_CYCLES = (
    (("ldrd", "strd"), 3),
    (("str", "vstr"), 1),
    (("vdiv", "vsqrt"), 14),
    (("sdiv", "udiv"), 8),
    (("vfma", "vmla", "vfms", "vmls", "vfnm", "vnml"), 3),
    (("it",), 0),  # folded into the instruction before it
)
MULTIPLE = ("ldm", "stm", "push", "pop", "vldm", "vstm", "vpush", "vpop")
BRANCH = ("b", "cbz", "cbnz", "le", "wls", "dls", "tbb", "tbh")
BIT_FIELD = ("bic", "bfi", "bfc")
TAKEN_BRANCH_EXTRA = 2


def m4_cycles(elf: Path, histogram: Histogram) -> int:
    """A rough estimate of cycles on a Cortex-M4 without wait states, to rank variants by; not measured
    on silicon.

    A load takes 2, directly after another load 1; a multiple transfer 1 and 1 per register; a taken
    branch 3, an untaken one 1; a division 8, in the FPU 14; a fused multiply-add 3; all else 1.
    """
    code = instructions(elf)
    before = ("", *(each.mnemonic for each in code))
    after = [histogram.get(each.pc, 0) for each in code[1:]] + [0]
    ran = ((histogram.get(each.pc, 0), each, b, a) for each, b, a in zip(code, before, after, strict=False))
    return sum(cycles(*each) for each in ran if each[0])


def cycles(count: int, instruction: Instruction, before: str, count_after: int) -> int:
    """Cycles of one instruction that ran `count` times, its successor in memory `count_after` times."""
    mnemonic = instruction.mnemonic
    if mnemonic.startswith(BRANCH) and not mnemonic.startswith(BIT_FIELD):
        always = mnemonic in ("b", "bl", "bx", "blx")
        taken = count if always else max(0, count - count_after)
        return count + TAKEN_BRANCH_EXTRA * taken
    if mnemonic.startswith(MULTIPLE):
        returns = mnemonic.startswith("pop") and "pc" in instruction.operands
        return count * (1 + register_count(instruction.operands) + (3 if returns else 0))
    for beginnings, each in FIXED_CYCLES:
        if mnemonic.startswith(beginnings):
            return count * each
    if mnemonic.startswith(("ldr", "vldr")):
        pipelined = before.startswith("ldr") and not before.startswith("ldrd")
        return count * (1 if pipelined else 2)
    return count


# ---- Bytes ----------------------------------------------------------------------------------------------


class SectionSizes(NamedTuple):
    """Bytes that object files put into the memories of a target."""

    code_bytes: int
    constant_bytes: int
    data_bytes: int
    """Variables with a first value: counted in RAM and in flash."""
    bss_bytes: int


def section_sizes(objects: Sequence[Path], prefix: str = PREFIX) -> SectionSizes:
    """Sizes by what a section is (its flags), not by its name: TE_FLASH may rename it."""
    sizes = dict.fromkeys(SectionSizes._fields, 0)
    rows = re.compile(r"^ *\[ *\d+\] \S+ +([A-Z_]+) +[0-9a-f]+ [0-9a-f]+ ([0-9a-f]+) \S+ +([A-Za-z]*) ", re.M)
    for kind, size, flags in rows.findall(run(f"{prefix}readelf", ["-S", "-W", *objects])):
        if "A" in flags:
            sizes[memory_of(kind, flags)] += int(size, 16)
    return SectionSizes(**sizes)


def memory_of(kind: str, flags: str) -> str:
    """Field of SectionSizes that a loaded section counts in."""
    if "X" in flags:
        return "code_bytes"
    if "W" not in flags:
        return "constant_bytes"
    return "bss_bytes" if kind == "NOBITS" else "data_bytes"


def undefined_symbols(objects: Iterable[Path], prefix: str = PREFIX) -> tuple[str, ...]:
    """Names that the files need from outside all of them, sorted: routines of the compiler's runtime."""
    defined: set[str] = set()
    needed: set[str] = set()
    for line in run(f"{prefix}nm", list(objects)).splitlines():
        words = line.split()
        if len(words) >= 2 and not line.endswith(":"):
            (needed if words[-2] == "U" else defined).add(words[-1])
    return tuple(sorted(needed - defined))
