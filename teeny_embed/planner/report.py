"""A placement as text for people: who lies where and when, and why it is not smaller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from teeny_embed.planner.problem import Buffer, Placement, Problem, live_at, peak_step

BAR_COLUMNS = 40


def memory_map(problem: Problem, placement: Placement) -> str:
    """One table per memory, by offset and time; `*` marks who is live at the peak.

    The bar shows the steps from left to right, `#` where the buffer is live.
    """
    return "\n".join(_memory(problem, placement, memory) for memory in problem.capacities)


def peak_table(problem: Problem, memory: str) -> str:
    """Who takes what in the step that sets the lower bound of `memory`, biggest first."""
    buffers = problem.in_memory(memory)
    step = peak_step(buffers, problem.distances)
    live = sorted(live_at(buffers, step), key=lambda b: (-b.size_bytes, b.name))
    total = sum(b.size_bytes for b in live)
    rows = [(f"{b.size_bytes:,}", f"{b.size_bytes / total:.1%}", _lifetime(b), b.name) for b in live]
    return f"live in step {step}, {total:,} bytes:\n{_table(('bytes', 'share', 'lifetime', 'name'), rows)}"


def _memory(problem: Problem, placement: Placement, memory: str) -> str:
    buffers = problem.in_memory(memory)
    if not buffers:
        return f"{memory}: empty\n"
    step = peak_step(buffers, problem.distances)
    end = max(b.upper for b in buffers)
    rows = [
        (f"{placement.offsets[b.name]:,}", f"{b.size_bytes:,}", _lifetime(b), _bar(b, end), _marked(b, step))
        for b in sorted(buffers, key=lambda b: (placement.offsets[b.name], b.lower, b.name))
    ]
    table = _table(("offset", "bytes", "lifetime", "steps", "name"), rows)
    return f"{_summary(problem, placement, memory)}\n{table}\n{_peak(buffers, step)}\n"


def _summary(problem: Problem, placement: Placement, memory: str) -> str:
    capacity = problem.capacities[memory]
    of_capacity = "" if capacity is None else f" of {capacity:,}"
    return (
        f"{memory}: {placement.height_bytes[memory]:,}{of_capacity} bytes, lower bound "
        f"{placement.lower_bound_bytes[memory]:,}, gap {placement.gap[memory]:.1%}"
    )


def _peak(buffers: tuple[Buffer, ...], step: int) -> str:
    live_bytes = sum(b.size_bytes for b in live_at(buffers, step))
    return f"peak: step {step}, {live_bytes:,} bytes live in the buffers marked *"


def _lifetime(b: Buffer) -> str:
    return f"[{b.lower}, {b.upper})"


def _marked(b: Buffer, step: int) -> str:
    return f"{b.name} *" if b.is_live_at(step) else b.name


def _bar(b: Buffer, end: int) -> str:
    """One column per step of [0, end), or several steps per column where they would not fit."""
    columns = min(end, BAR_COLUMNS)
    first, last = b.lower * columns // end, (b.upper - 1) * columns // end
    return "".join("#" if first <= column <= last else "." for column in range(columns))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Right-aligned columns, but the last, which is text of any length."""
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(["", *(cell.rjust(w) for cell, w in zip(line[:-1], widths, strict=False)), line[-1]])
        for line in lines
    )
