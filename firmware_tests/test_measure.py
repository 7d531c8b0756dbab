"""Counts, sizes and stack bounds, against programs whose cost is known, and against a second program."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from teeny_embed.deploy import measure, stack, toolchain
from teeny_embed.errors import DataError, ToolError

COMPILER = "arm-none-eabi-gcc"
M0 = ("-mcpu=cortex-m0", "-mthumb", "-mfloat-abi=soft")
M4F = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
PLACES = "-Wl,--section-start=.vectors=0,-Ttext=0x100,-Tbss=0x20000000"
LINK = ("-nostartfiles", "--specs=nosys.specs", PLACES)

# Vectors, marks and exit code: what a firmware needs to be run and counted.
STARTUP = """
#include <stdint.h>
volatile uint8_t te_mark_base[8];
__attribute__((noinline, section(".text.te_mark"))) void te_mark(uint32_t id) { te_mark_base[id] = 1; }
uint32_t run(void);
static void leave(uint32_t code)
{
    uint32_t block[2] = {0x20026, code};
    register uint32_t operation __asm__("r0") = 0x20; /* SYS_EXIT_EXTENDED */
    register uint32_t *argument __asm__("r1") = block;
    __asm__ volatile("bkpt 0xab" :: "r"(operation), "r"(argument) : "memory");
    for (;;) {}
}
__attribute__((noreturn)) void start(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xFu << 20; /* the FPU, where there is one */
    __asm__ volatile("dsb\\n isb");
    leave(run());
    for (;;) {}
}
void fault(void) { leave(255u); }
typedef void (*handler_t)(void);
__attribute__((section(".vectors"), used)) const handler_t vectors[] = {
    (handler_t)0x20040000, start, fault, fault, fault, fault, fault};
"""

LOOPS = STARTUP + """
__attribute__((noinline, naked)) void loop(uint32_t n) /* 5 n + 1 instructions */
{
    (void)n;
    __asm__ volatile("1: nop\\n nop\\n sub r0, #1\\n cmp r0, #0\\n bne 1b\\n bx lr" ::: "r0", "cc");
}
uint32_t run(void)
{
    te_mark(1);
    loop(1000);
    te_mark(2);
    loop(100000);
    te_mark(1);
    loop(10);
    te_mark(3);
    return 0;
}
"""
LOOP_INSTRUCTIONS = 5
ENTRY_POINTS = ("infer", "train_step", "save", "load", "selftest")

DIGITS = STARTUP + """
#include "digits.h"
static digits_state_t state;
static digits_arena_t arena;
static float image[64], probability[10];
uint32_t run(void)
{
    digits_ctx_t ctx;
    float loss;
    for (uint32_t i = 0; i < 64; ++i) { image[i] = (float)(i % 16u) * 0.0625f; }
    if (digits_init(&ctx, &state, sizeof state, &arena, sizeof arena) != TE_OK) { return 1; }
    if (digits_reset(&ctx) != TE_OK) { return 2; }
    te_mark(1);
    if (digits_infer(&ctx, image, probability) != TE_OK) { return 3; }
    te_mark(2);
    if (digits_train_step(&ctx, image, 1, 0.05f, &loss) != TE_OK) { return 4; }
    te_mark(3);
    return 0;
}
"""

# Soft float whose stack is watched: the exit code is the number of bytes used below `run`.
PAINTED = STARTUP + """
#define BYTES 512
__attribute__((noinline)) int32_t work(volatile float *x)
{
    for (int32_t i = 0; i < 40; ++i) {
        x[i + 1] = (x[i] * 1.25f + x[i + 1]) / (x[i] - 3.0f);
        x[i] = (x[i] < x[i + 1]) ? x[i] : (float)i;
    }
    return (int32_t)x[40];
}
uint32_t run(void)
{
    static volatile float x[64];
    register uint8_t *sp __asm__("sp");
    volatile uint8_t *const top = sp;
    for (int32_t i = 1; i <= BYTES; ++i) { top[-i] = 0xc5u; }
    x[0] = 1.5f;
    x[7] = -1e-40f;
    (void)work(x);
    uint32_t used = BYTES;
    while (used > 0u && top[-(int32_t)used] == 0xc5u) { --used; }
    return used;
}
"""


@pytest.fixture(scope="module")
def example(shared: Path) -> Path:
    return shared / "style" / "generated_example"


@pytest.fixture(scope="module")
def prototype(shared: Path) -> ModuleType:
    """A second program that counts: the one that the figures in the design pages come from."""
    path = shared / "prototypes" / "instruction_count" / "run.py"
    spec = importlib.util.spec_from_file_location("instruction_count", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def link(folder: Path, text: str, *options: str | Path) -> Path:
    """An image for the boards mps2-an385 (M3) and mps2-an386 (M4F)."""
    source, elf = folder / "image.c", folder / "image.elf"
    source.write_text(text)
    toolchain.run(COMPILER, [*options, *LINK, source, "-o", elf])
    return elf


def run(elf: Path, machine: str, *arguments: str) -> int:
    """The exit code of the guest."""
    qemu = ["qemu-system-arm", "-M", machine, "-nographic", "-monitor", "none", "-serial", "none"]
    options = ["-semihosting-config", "enable=on,target=native", "-kernel", str(elf)]
    return subprocess.run([*qemu, *options, *arguments], timeout=60).returncode


def count(elf: Path) -> dict[int, dict[int, int]]:
    out = elf.with_suffix(".counts")
    assert run(elf, "mps2-an386", *measure.plugin_arguments(elf, out)) == 0
    return measure.read_counts(out)


def objects(folder: Path, sources: list[Path], *options: str) -> list[Path]:
    """Object files, each with a .ci file beside it."""
    made = []
    for source in sources:
        made.append(folder / f"{source.stem}.o")
        flags = ["-std=c99", *options, "-fcallgraph-info=su", "-I", source.parent]
        toolchain.run(COMPILER, [*flags, "-c", source, "-o", made[-1]])
    return made


def call_graphs(files: list[Path]) -> list[Path]:
    return [path.with_suffix(".ci") for path in files]


# ---- Instructions ---------------------------------------------------------------------------------------


def test_loops_of_known_length_are_counted_exactly(tmp_path: Path) -> None:
    elf = link(tmp_path, LOOPS, *M4F, "-O2")
    segments = count(elf)
    totals = {id: measure.by_function(elf, histogram) for id, histogram in segments.items()}
    assert totals[2]["loop"] == LOOP_INSTRUCTIONS * 100_000 + 1
    assert totals[1]["loop"] == LOOP_INSTRUCTIONS * 1_010 + 2  # two visits of one segment add up
    assert all("te_mark" not in functions for functions in totals.values())


def test_a_segment_holds_only_what_ran_in_it(tmp_path: Path) -> None:
    segments = count(link(tmp_path, LOOPS, *M4F, "-O2"))
    call = measure.instruction_total(segments[2]) - (LOOP_INSTRUCTIONS * 100_000 + 1)
    assert 2 <= call <= 5  # the arguments and calls of loop and te_mark
    assert measure.instruction_total(segments[3]) < 20
    assert list(segments) == [0, 1, 2, 3]


def test_counts_are_the_same_on_every_run(tmp_path: Path) -> None:
    elf = link(tmp_path, LOOPS, *M4F, "-O2")
    assert count(elf) == count(elf)


@pytest.mark.parametrize("level", ["-Os", "-O3"])
def test_cycles_and_functions_equal_those_of_a_second_program(
    level: str, tmp_path: Path, example: Path, prototype: ModuleType
) -> None:
    model = [example / "digits.c", example / "digits_params.c"]
    elf = link(tmp_path, DIGITS, *M4F, level, "-I", example, *model)
    for histogram in count(elf).values():
        assert measure.m4_cycles(elf, histogram) == prototype.m4cycles(str(elf), histogram)
        assert measure.by_function(elf, histogram) == prototype.funcs(str(elf), histogram)


def test_the_example_costs_about_what_its_header_says(tmp_path: Path, example: Path) -> None:
    model = [example / "digits.c", example / "digits_params.c"]
    segments = count(link(tmp_path, DIGITS, *M4F, "-Os", "-I", example, *model))
    header = (example / "digits.h").read_text()
    for id, name in ((1, "infer"), (2, "train_step")):
        stated = re.search(rf"\* +{name} +[\d,]+ +([\d,]+)", header)
        assert stated is not None
        total = measure.instruction_total(segments[id])
        assert total == pytest.approx(int(stated[1].replace(",", "")), rel=0.05)  # other pixels, other exp


def test_an_elf_without_marks_is_refused(tmp_path: Path) -> None:
    elf = link(tmp_path, LOOPS.replace("te_mark_base", "no_base"), *M4F, "-O2")
    with pytest.raises(DataError, match="te_mark_base"):
        measure.plugin_arguments(elf, tmp_path / "out")


def test_a_run_that_left_no_counts_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no instruction counts"):
        measure.read_counts(tmp_path / "missing")


# ---- Bytes ----------------------------------------------------------------------------------------------


def test_sizes_are_those_that_the_example_states(tmp_path: Path, example: Path) -> None:
    code, constants = ([example / "digits.c"], [example / "digits_params.c"])
    assert measure.section_sizes(objects(tmp_path, code, *M4F, "-Os")) == (2120, 0, 0, 0)
    assert measure.section_sizes(objects(tmp_path, constants, *M4F, "-Os")) == (0, 4840, 0, 0)
    renamed = '-DTE_FLASH=__attribute__((section(".qspi")))'
    assert measure.section_sizes(objects(tmp_path, constants, *M4F, renamed)).constant_bytes == 4840


def test_sizes_of_several_files_add_up_and_variables_show(tmp_path: Path) -> None:
    sources = [tmp_path / "a.c", tmp_path / "b.c"]
    sources[0].write_text("int given = 3; int zeros[10]; const char table[5] = {1};")
    sources[1].write_text("int more[2]; const char other[3] = {1};")
    assert measure.section_sizes(objects(tmp_path, sources, *M4F)) == (0, 8, 4, 48)


def test_only_the_runtime_is_needed_from_outside(tmp_path: Path, example: Path) -> None:
    model = [example / "digits.c", example / "digits_params.c"]
    assert measure.undefined_symbols(objects(tmp_path, model, *M4F, "-Os")) == ()
    needed = measure.undefined_symbols(objects(tmp_path, model, *M0, "-Os"))
    assert "__aeabi_fadd" in needed and all(name.startswith("__aeabi_") for name in needed)


# ---- Stack ----------------------------------------------------------------------------------------------


def test_stack_is_what_the_example_states(tmp_path: Path, example: Path) -> None:
    files = sorted(example.glob("digits*.c"))
    graphs = call_graphs(objects(tmp_path, files, *M4F, "-Os"))
    needs = {each: stack.worst_case_stack(graphs, f"digits_{each}", {}) for each in ENTRY_POINTS}
    assert (needs["infer"], needs["train_step"], needs["selftest"]) == (44, 92, 444)
    assert max(needs["save"], needs["load"]) == 156  # with callbacks that need none


def test_soft_float_stays_below_the_bound(tmp_path: Path) -> None:
    (tmp_path / "painted.c").write_text(PAINTED)
    files = objects(tmp_path, [tmp_path / "painted.c"], *M0, "-O2")
    routines = stack.runtime_stack(measure.undefined_symbols(files), (COMPILER, *M0))
    bound = stack.worst_case_stack(call_graphs(files), "work", routines)
    used = run(link(tmp_path, PAINTED, *M0, "-O2"), "mps2-an385")
    assert bound / 2 < used <= bound


ASSEMBLY = STARTUP + """
__attribute__((naked, noinline)) uint32_t pushes(uint32_t n)
{
    (void)n;
    __asm__ volatile("push {r4-r7, lr}\\n sub sp, #12\\n add sp, #12\\n pop {r4-r7, pc}");
}
__attribute__((noinline)) uint32_t plain(uint32_t n) { return n * n + 3u; }
/* jumps to an address that it forms */
__attribute__((naked, noinline)) uint32_t jumps(uint32_t n)
{
    (void)n;
    __asm__ volatile(
        "push {r4, lr}\\n"
        "adr r3, 1f\\n"
        "bx r3\\n"
        "nop\\n"
        ".balign 4\\n"
        "1: pop {r4, pc}");
}
uint32_t run(void) { return pushes(1) + plain(2) + jumps(3); }
"""


def test_stack_of_assembly_is_read_from_its_machine_code(tmp_path: Path) -> None:
    elf = link(tmp_path, ASSEMBLY, *M4F, "-O2")
    (tmp_path / "again.c").write_text(ASSEMBLY)
    graphs = call_graphs(objects(tmp_path, [tmp_path / "again.c"], *M4F, "-O2"))
    known = stack.assembly_stack(graphs, elf)
    assert (known["pushes"], known["plain"], known["jumps"]) == (5 * 4 + 12, 0, 2 * 4)
    without = stack.worst_case_stack(graphs, "run", {})
    assert stack.worst_case_stack(graphs, "run", known) == without + 32


def test_recursion_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "deep.c"
    source.write_text("int b(int n); int a(int n) { return b(n) + 1; } int b(int n) { return a(n) * 3; }")
    graphs = call_graphs(objects(tmp_path, [source], *M4F, "-O0"))
    with pytest.raises(ToolError, match="recursion: a > b > a"):
        stack.worst_case_stack(graphs, "a", {})


def test_a_frame_without_bound_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "wide.c"
    source.write_text("void use(char *); void a(int n) { char row[n]; use(row); }")
    graphs = call_graphs(objects(tmp_path, [source], *M4F, "-O2"))
    with pytest.raises(ToolError, match="no bound"):
        stack.worst_case_stack(graphs, "a", {"use": 0})


def test_a_routine_of_unknown_stack_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "soft.c"
    source.write_text("float a(float x) { return x * x; }")
    graphs = call_graphs(objects(tmp_path, [source], *M0, "-O2"))
    with pytest.raises(ToolError, match="__aeabi_fmul"):
        stack.worst_case_stack(graphs, "a", {})


def test_sizes_and_symbols_of_clang_objects_are_read_too(tmp_path: Path, example: Path) -> None:
    made = tmp_path / "digits.o"
    flags = ("--target=arm-none-eabi", "-ffreestanding", "-std=c99", "-Os", *M4F)
    toolchain.run("clang", [*flags, "-c", example / "digits.c", "-o", made])
    assert measure.section_sizes([made]).data_bytes == 0
    assert measure.undefined_symbols([made]) == ("digits_initial",)
