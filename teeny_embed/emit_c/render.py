"""Module to files. Templates are C with holes; what is left here is layout of text and identity hashes."""

from __future__ import annotations

import hashlib
import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from teeny_embed import resources
from teeny_embed.emit_c.helpers import helpers
from teeny_embed.emit_c.literals import C_TYPES
from teeny_embed.emit_c.module import Module, NodeFunction
from teeny_embed.emit_c.selftest import SelfTest
from teeny_embed.emit_c.store import forms
from teeny_embed.emit_c.template import fill
from teeny_embed.kernels.quantized import Packed

VERSION = "0.1.0"
WIDTH = 100


@dataclass(frozen=True)
class Identity:
    """What a build is made of, for headers and manifest."""

    graph_hash: str
    weights_hash: str
    target: str
    description: str
    float: str = "exact"
    """Or fast: the compiler may fuse a product with the sum it is added to."""


def render(module: Module, identity: Identity, test: SelfTest | None = None) -> dict[str, str]:
    """File name to text; with the self-test if there is one."""
    facts = _facts(module, identity)
    nodes = [tidy(_node(module.name, n)) for n in module.nodes]
    micro = [fill(f"kernels/{name}.c.j2", module=module.name) for name in module.micro]
    files = {
        f"{module.name}.h": fill("c/model.h.j2", m=module, facts=facts),
        f"{module.name}.c": "",
        "te_abi.h": (resources.directory("templates") / "c" / "te_abi.h").read_text(),
    }
    body = fill("c/model.c.j2", m=module, facts=facts, micro=micro, nodes=nodes, helpers=["@HELPERS@"])
    used = "\n\n".join(helpers(module.name, body))
    files[f"{module.name}.c"] = tidy(body.replace("@HELPERS@", used))
    if module.state:
        kept = {"m": module, "facts": facts, "forms": forms(module.interface.state)}
        files[f"{module.name}_store.h"] = fill("c/store.h.j2", **kept)
        files[f"{module.name}_store.c"] = tidy(fill("c/store.c.j2", **kept))
    if test is not None:
        outputs = [o.argument.dtype for call in test.calls for o in call.operands if o.fill is None]
        types = sorted({*outputs, *(f.dtype for f in module.interface.state)})
        tested = {"m": module, "facts": facts, "test": test, "types": types, "c_types": C_TYPES}
        files[f"{module.name}_selftest.h"] = tidy(fill("c/selftest.h.j2", **tested))
        files[f"{module.name}_selftest.c"] = tidy(fill("c/selftest.c.j2", **tested))
    if module.tables:
        files[f"{module.name}_params.c"] = fill("c/params.c.j2", m=module, facts=facts)
    return {name: text if name == "te_abi.h" else wrap(text) for name, text in files.items()}


def _node(module: str, node: NodeFunction) -> str:
    return _comment(node) + fill(f"kernels/{node.kernel}.c.j2", n=node, module=module)


def _comment(node: NodeFunction) -> str:
    head = f"{', '.join(node.uses)}: {node.title}"
    lines = [
        f"/* {head}",
        f" *     layer  {', '.join(node.layers)}{f'  ({node.where})' if node.where else ''}",
    ]
    wide = max((len(p.name) for p in node.parameters), default=0)
    roles = max((len(p.role) for p in node.parameters), default=0)
    for p in node.parameters:
        lines.append(f" *     {p.role:<{max(6, roles)}} {p.name:<{wide}}  {p.type}  {p.place}")
    lines += [f" *     {line}" for text in node.formulas for line in _folded(text, WIDTH - 7)]
    proven = f", {node.accumulator.dtype} accumulator {node.accumulator}" if node.accumulator else ""
    lines += [f" *     {node.macs:,} MAC{proven}"] if node.macs else []
    if isinstance(node.body, Packed):
        over = (
            "y and x must not overlap"
            if node.distance_bytes is None
            else f"y may overlap x if it begins {node.distance_bytes:,} bytes before it, or more"
        )
        lines += [f" *     kernel {node.kernel}: rounding {node.body.rounding}; {over}"]
    return "\n".join([*lines, " */\n"])


def _folded(text: str, width: int) -> list[str]:
    """A line broken at spaces, what follows indented."""
    return textwrap.wrap(text, width, subsequent_indent="    ", break_long_words=False)


def _facts(module: Module, identity: Identity) -> dict[str, Any]:
    interface = module.interface
    around = "holds inputs and outputs around a call" if module.slots else "empty between calls"
    memory = [
        f"arena      {interface.arena_bytes:>9,} B  RAM    {around}",
        f"state      {interface.state_bytes:>9,} B  RAM    survives between calls",
        f"constants  {module.constant_bytes:>9,} B  flash",
    ]
    memory += [f"{e.name}: {e.macs:,} MAC" for e in module.entries]
    return {
        "version": VERSION,
        "graph_hash": identity.graph_hash,
        "weights_hash": identity.weights_hash,
        "target": identity.target,
        "description": identity.description,
        "float": identity.float,
        "signature": f"0x{signature(module)}",
        "memory": memory,
        "arena": sorted(module.arena, key=lambda a: (a.offset, a.name)),
        "entries": [
            {"name": e.name, "parameters": e.parameters, "comment": _entry_comment(e)} for e in module.entries
        ],
    }


def _entry_comment(entry: Any) -> str:
    errors = ["TE_ERR_ARGUMENT", "TE_ERR_STATE"]
    errors += ["TE_ERR_RANGE"] if entry.ranges else []
    errors += (
        ["TE_ERR_NONFINITE (outputs are written, the state is not)"]
        if any(c.finite for c in entry.calls)
        else []
    )
    return f"{entry.name}: {len(entry.calls)} nodes. {', '.join(errors)}."


def signature(module: Module) -> str:
    """Eight hex digits that name architecture and memory layout, not the weights."""
    state = [(m.field.name, m.field.dtype, m.field.shape, m.field.offset_bytes) for m in module.state]
    text = json.dumps([module.name, state], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# ---- Layout of text -------------------------------------------------------------------------------------


def tidy(text: str) -> str:
    """Indents by braces and drops empty lines inside functions, so that templates need not."""
    depth, lines = 0, []
    for raw in text.split("\n"):
        line = raw.strip()
        if line.startswith("#") or (line.startswith(("/*", "*")) and depth == 0):
            lines.append(line if depth else raw)
            continue
        if not line and depth:
            continue
        depth -= line.startswith("}")
        lines.append(("    " * depth + line) if line else "")
        depth += line.count("{") - line.count("}") + line.startswith("}")
    return "\n".join(lines)


def wrap(text: str) -> str:
    """Breaks lines of more than 100 columns at commas and operators."""
    return re.sub(
        r"\n{3,}", "\n\n", "\n".join(part for line in text.split("\n") for part in _wrap_line(line))
    )


def _wrap_line(line: str) -> Sequence[str]:
    stripped = line.lstrip()
    if len(line) <= WIDTH or stripped.startswith(("#", "*", "/*")):
        return [line]
    indent = " " * (len(line) - len(stripped))
    cut = max(
        line.rfind(mark, len(indent) + 8, WIDTH) + len(mark) - 1
        for mark in (", ", " + ", " ? ", " : ", " || ", " && ", " = ", "; ")
    )
    if cut <= len(indent) + 8:
        return [line]
    return [line[:cut].rstrip(), *_wrap_line(indent + "    " + line[cut:].strip())]
