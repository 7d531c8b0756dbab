"""Which node computes other bits than NumPy: found by one call of a build that checks itself.

The hook between nodes becomes a comparison. After each node, what it has written to arena and state is
hashed and compared with NumPy's, and at the first difference the entry point returns the node's number
as its status. So it works wherever the program runs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from teeny_embed.api.building import Build
from teeny_embed.api.running import host_flags, open_runner
from teeny_embed.deploy.runner import Array
from teeny_embed.graph.evaluate import Environment, run_step
from teeny_embed.graph.lower import environment
from teeny_embed.graph.step import Buffer
from teeny_embed.planner.plan import EntryPlan

FIRST_STATUS = 1000
"""The status of a call that stops after node n is this plus n."""

_FNV_START, _FNV_FACTOR = 2166136261, 16777619
_NAN = 0xFF
"""What every byte of a NaN is hashed as: any NaN equals any NaN."""

_HEADER = """\
#include <stdint.h>
typedef struct {{ int32_t node, in_state, is_float; uint32_t at, bytes, hash; }} te_written_t;
static const te_written_t te_written[] = {{
{rows}
    {{-1, 0, 0, 0u, 0u, 0u}}
}};
static inline uint32_t te_hash(const uint8_t *at, uint32_t bytes, int32_t is_float)
{{
    uint32_t hash = {start}u;
    for (uint32_t i = 0u; i < bytes; ++i) {{
        const uint8_t *f = at + (i & ~3u);
        const int32_t is_nan = (is_float != 0) && ((f[3] & 0x7fu) == 0x7fu) && ((f[2] & 0x80u) != 0u)
            && (((f[2] & 0x7fu) | f[1] | f[0]) != 0u);
        hash = (hash ^ (is_nan ? {nan}u : at[i])) * {factor}u;
    }}
    return hash;
}}
static inline int32_t te_differs(int32_t node, const void *arena, const void *state)
{{
    for (const te_written_t *w = te_written; w->node >= 0; ++w) {{
        const uint8_t *at = (const uint8_t *)((w->in_state != 0) ? state : arena) + w->at;
        if ((w->node == node) && (te_hash(at, w->bytes, w->is_float) != w->hash)) {{ return 1; }}
    }}
    return 0;
}}
#define {name}_AFTER_NODE(ctx, node) \\
    if (te_differs((node), (ctx)->arena, {state})) {{ return {first_status} + (node); }}
"""


def first_differing_node(
    build: Build,
    entry: str,
    inputs: Mapping[str, Array],
    state: Mapping[str, Array],
    tensor: str,
    on: str,
    compiler: str | None,
    flags: Sequence[str] | None,
) -> str:
    """The C function that first differs from NumPy in this call; if none does, the one that writes `tensor`.

    `state` is that before the call, `tensor` the output or state tensor in which a difference showed.
    """
    plan = next(e for e in build.plan.entries if e.schedule.name == entry)
    names = next(e.node_names for e in build.interface.entry_points if e.name == entry)
    writer = _writer(plan, tensor)
    with tempfile.TemporaryDirectory(prefix="teeny_embed_") as folder:
        header = Path(folder) / "te_blame.h"
        header.write_text(_header(build, plan, inputs, state))
        checked = (
            *(host_flags(build) if flags is None and on == "host" else flags or ()),
            "-include",
            str(header),
        )
        with open_runner(build, on, compiler, checked) as device:
            device.write_state(state)
            status, _ = device.call(entry, inputs)
    node = min(status - FIRST_STATUS if status >= FIRST_STATUS else len(names), writer)
    return names[node] if node < len(names) else ""


def _writer(plan: EntryPlan, tensor: str) -> int:
    """The step that writes an output or the new value of a state tensor; the number of steps if none does."""
    new_values = {old.name: new for old, new in plan.schedule.assigns}
    buffers = {b.name: b for b in plan.schedule.outputs} | new_values
    steps = plan.schedule.steps
    found = (i for i, step in enumerate(steps) if buffers.get(tensor) in step.buffers_written())
    return next(found, len(steps))


def _header(build: Build, plan: EntryPlan, inputs: Mapping[str, Array], state: Mapping[str, Array]) -> str:
    return _HEADER.format(
        rows="\n".join(_rows(build, plan, inputs, state)),
        start=_FNV_START,
        factor=_FNV_FACTOR,
        nan=_NAN,
        name=build.program.name.upper(),
        state="(ctx)->state" if build.interface.state_bytes else "(ctx)->arena",
        first_status=FIRST_STATUS,
    )


def _rows(
    build: Build, plan: EntryPlan, inputs: Mapping[str, Array], state: Mapping[str, Array]
) -> Iterator[str]:
    """What NumPy says that each step writes, as the table's rows."""
    variables = {v: state.get(v.name, v.initial) for v in build.program.variables()}
    env: Environment = environment(plan.schedule, inputs, variables)
    for number, step in enumerate(plan.schedule.steps):
        run_step(step, env)
        for buffer in step.buffers_written():
            place = _place(build, plan, plan.storage[buffer])
            if place is not None:
                value = np.ascontiguousarray(env[buffer])
                is_float = int(value.dtype == np.float32)
                yield (
                    f"    {{{number}, {place[0]}, {is_float}, {place[1]}u, {value.nbytes}u, "
                    f"{fnv1a(value)}u}},"
                )


def _place(build: Build, plan: EntryPlan, root: Buffer) -> tuple[int, int] | None:
    """(whether in the state, byte offset) of a storage; None for the caller's."""
    if root in plan.offsets:
        return 0, plan.offsets[root]
    fields = {field.name: field.offset_bytes for field in build.interface.state}
    if root.variable is not None and root.variable.name in fields:
        return 1, fields[root.variable.name]
    return None


def fnv1a(value: Array) -> int:
    """FNV-1a, 32 bits, of an array's bytes; each NaN of float32 counts as bytes 0xff."""
    content = np.ascontiguousarray(value).reshape(-1).view(np.uint8).copy()
    if value.dtype == np.float32:
        content.reshape(-1, 4)[np.isnan(value).reshape(-1)] = _NAN
    digest = _FNV_START
    for byte in content.tolist():
        digest = ((digest ^ byte) * _FNV_FACTOR) & 0xFFFFFFFF
    return digest
