"""lint finds each broken promise, and nothing in C that keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from teeny_embed.emit_c.lint import Finding, lint

HEADER = """
#include <stdint.h>
#include <stddef.h>
typedef int32_t te_status_t;
typedef te_status_t (*te_read_t)(void *user, uint32_t offset, uint8_t *bytes, uint32_t count);
typedef struct { float w[4]; } net_state_t;
typedef struct { net_state_t *state; } net_ctx_t;
"""


def findings(folder: Path, text: str) -> list[Finding]:
    (folder / "net.h").write_text(HEADER)
    (folder / "net.c").write_text('#include "net.h"\n' + text)
    return lint([folder / "net.c"], "net")


def test_hand_written_example_passes(shared: Path) -> None:
    example = shared / "style" / "generated_example"
    files = sorted([*example.glob("digits*.c"), example / "digits.h", example / "te_abi.h"])
    assert lint(files, "digits") == []


def test_a_finding_prints_like_a_compiler_message(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, "\nstatic int32_t calls;\n")
    assert str(found) == "net.c:3: mutable: calls is a variable that outlives its function"


BAD = {
    "#include <math.h>": "include",
    '#include "other.h"': "include",
    "void *net_make(void) { return malloc(4); }": "heap",
    "float net_f(float x) { return sqrtf(x); }": "call",
    "void net_f(void (*f)(void)) { f(); }": "call",
    "void net_f(const te_read_t *table) { table[0](NULL, 0u, NULL, 0u); }": "call",
    "static int net_f(int n) { return (n > 0) ? net_f(n - 1) : 0; }": "recursion",
    "void net_f(int32_t n) { float row[n]; row[0] = 0.0f; }": "vla",
    "static float net_last[3] = {0.0f, 1.0f, 2.0f};": "mutable",
    "static const char *net_name = 0;": "mutable",
    "extern int32_t net_count;": "mutable",
    "void net_f(void) { static int32_t calls; calls += 1; }": "mutable",
    "void net_f(float *x) { *(uint32_t *)x = 0u; }": "cast",
    "void net_f(void *x) { *(float *)x = 0.0f; }": "cast",
    "typedef float *net_row_t; void net_f(void *x) { *(net_row_t)x = 0.0f; }": "cast",
    "void net_init(void *x, int32_t *y) { *(float *)x = 0.0f; *y = 0; }": "cast",
    "void net_init(net_ctx_t *ctx, float *x) { ctx->state = (net_state_t *)x; }": "cast",
    "void net_f(int32_t n) { while (n > 0) { n = n - 1; } }": "loop",
    "void net_f(int32_t n) { do { n = n - 1; } while (n > 0); }": "loop",
    "void net_f(void) { for (;;) { } }": "loop",
    "void net_f(float x) { for (float i = 0.0f; i < x; i += 1) { } }": "loop",
    "void net_f(void) { int32_t i; for (i = 0; i < 4; ++i) { } }": "loop",
    "void net_f(void) { for (int32_t i = 0; i != 3; i += 2) { } }": "loop",
    "void net_f(void) { for (int32_t i = 0; i < 3; i += 0) { } }": "loop",
    "void net_f(int32_t n) { for (int32_t i = 0; i < 3; i += n) { } }": "loop",
    "void net_f(void) { for (int32_t i = 0; i < 3; --i) { } }": "loop",
    "void net_f(void) { for (uint32_t i = 3u; i >= 0u; --i) { } }": "loop",
    "void net_f(void) { for (int32_t i = 0; i < 3; ++i) { i = 0; } }": "loop",
    "void net_f(int32_t n) { for (int32_t i = 0; i < n; ++i) { n += 1; } }": "loop",
    "void net_f(int32_t *n) { for (int32_t i = 0; i < n[0]; ++i) { n[0] += 1; } }": "loop",
    "void net_f(int32_t n) { again: if (n > 0) { goto again; } }": "goto",
    "void net_f(void) { __asm__ volatile(\"nop\"); }": "syntax",
}


@pytest.mark.parametrize("text", BAD)
def test_each_rule_catches_what_it_forbids(text: str, tmp_path: Path) -> None:
    assert [found.rule for found in findings(tmp_path, text)] == [BAD[text]]


def test_mutual_recursion_names_both_functions(tmp_path: Path) -> None:
    text = "int net_a(int n);\nint net_b(int n) { return net_a(n); }\nint net_a(int n) { return net_b(n); }"
    assert [found.line for found in findings(tmp_path, text)] == [3, 4]


GOOD = [
    "void net_f(int32_t *x) { for (int32_t i = 0; (i < 3) && (x[0] == 0); ++i) { x[i] = 1; } }",
    "void net_f(float *x, int32_t n) { for (int32_t i = 0; i < n; i += 4 * 2) { x[i] = 0.0f; } }",
    "void net_f(float *x) { for (int32_t i = 3; i >= 0; --i) { x[i] = 0.0f; } }",
    "static const int8_t net_w[2][2] = {\n    {1, -2},\n    {3, 4},\n};",
    "static const float *const net_p = NULL;",
    "typedef char net_check[(offsetof(net_ctx_t, state) == 0) ? 1 : -1];",
    "uint8_t net_f(net_state_t *s) { const uint8_t *b = (const uint8_t *)s; return b[0]; }",
    "int32_t net_f(te_read_t read, void *user) { return read(user, 0u, NULL, 0u); }",
    "void net_init(net_ctx_t *ctx, void *state) { ctx->state = (net_state_t *)state; }",
    "int32_t net_f(int32_t n) { switch (n) { case 0: return 1; default: return 0; } }",
]


@pytest.mark.parametrize("text", GOOD)
def test_allowed_c_passes(text: str, tmp_path: Path) -> None:
    assert findings(tmp_path, text) == []


def test_lines_after_a_long_table_are_right(tmp_path: Path) -> None:
    text = "static const float net_w[4] = {\n    0x1p-3f, 1.5f,\n    -2.0f, 3e4f,\n};\nstatic int32_t net_n;"
    assert [(found.line, found.rule) for found in findings(tmp_path, text)] == [(6, "mutable")]
