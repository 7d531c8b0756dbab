"""The commands. Exit codes: 0 done, 1 `verify` found a difference, 2 anything that a user can put right."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from teeny_embed import api
from teeny_embed import target as targets
from teeny_embed.api.building import IO, OPTIMIZE
from teeny_embed.api.initial import KINDS
from teeny_embed.api.samples import draw, generator, matching, read_vectors, samples
from teeny_embed.cli import demo as digits_demo
from teeny_embed.cli.model import Model, extents
from teeny_embed.deploy.runner import Array, entry_index
from teeny_embed.errors import DataError, TeenyError, ToolError
from teeny_embed.graph.op import NOT_DIFFERENTIABLE, REGISTRY, Op

Command = Callable[..., Any]


class _Group(click.Group):
    """Prints a TeenyError as one message and exits with 2; `--debug` lets it through."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except TeenyError as error:
            if context.params["debug"]:
                raise
            click.echo(f"{type(error).__name__}: {error}", err=True)
            context.exit(2)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="teeny_embed")
@click.option("--debug", is_flag=True, help="Show a traceback with each error.")
def main(debug: bool) -> None:
    """Small neural networks as allocation-free C that infers and trains, bit for bit like NumPy.

    MODEL is file.tflite, or file.py:name, a te.Program or a function that returns one.
    """


# ---- Options ----------------------------------------------------------------------------------------------


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_on = click.option("--on", type=click.Choice(["host", "qemu"]), default="host", help="Where to run.")
_vectors = click.option(
    "--vectors",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Inputs, and outputs to compare with: arrays named after them, or in0, out0 by position.",
)
_model_options = _options(
    click.argument("model"),
    click.option("--target", metavar="NAME", help="A CPU or board; see `teeny-embed targets`."),
    click.option("--name", metavar="NAME", help="Prefix of the C instead of the program's own name."),
    click.option("--dim", "dims", multiple=True, metavar="N=8", help="Binds a named extent; repeatable."),
    click.option(
        "--init", type=click.Choice(KINDS), default="const", show_default=True,
        help="Initial parameters: a copy in flash, or drawn on the device.",
    ),
    click.option(
        "--rounding", type=click.Choice(["tflite", "litert"]), default="tflite", show_default=True,
        help="Whose bits a .tflite model has: TFLite Micro's or those of LiteRT's reference kernels.",
    ),
    click.option(
        "--float", "float_", type=click.Choice(["exact", "fast"]), default="exact", show_default=True,
        help="Exact: the bits of NumPy. Fast: products and sums may be fused.",
    ),
    click.option(
        "--io", type=click.Choice(IO), default="caller", show_default=True,
        help="Where inputs and outputs lie: in the caller's memory, or in the arena.",
    ),
    click.option(
        "--optimize", type=click.Choice(OPTIMIZE), default="speed", show_default=True,
        help="What is preferred: fast code, or small code.",
    ),
)  # fmt: skip
_random = _options(
    click.option("--lr", default=0.01, show_default=True, help="Learning rate of training steps."),
    click.option("--seed", default=0, show_default=True, help="Of random inputs."),
)


def _model(command: Command) -> Command:
    """Gives the command a `Model` instead of the options that make one."""

    @wraps(command)
    def with_model(
        model: str,
        target: str | None,
        name: str | None,
        dims: tuple[str, ...],
        init: str,
        rounding: str,
        float_: str,
        io: str,
        optimize: str,
        **options: Any,
    ) -> Any:
        found = Model(model, target, name, extents(dims), init, rounding, float_, io, optimize)
        return command(found, **options)

    return _model_options(with_model)


@contextmanager
def _built(model: Model, on: str = "host") -> Iterator[api.Build]:
    """The build of MODEL, in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="teeny_embed_") as folder:
        yield model.build(Path(folder), on)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


# ---- Commands on a model ----------------------------------------------------------------------------------


@main.command("compile")
@_model
@click.option("--out", type=click.Path(path_type=Path), help="Directory; build/NAME if not given.")
@click.option("--lint", is_flag=True, help="Check the promises of the C by parsing it.")
@click.option("--selftest", is_flag=True, help="Write a function that checks NumPy's bits on the device.")
@_json
def compile_model(model: Model, out: Path | None, lint: bool, selftest: bool, as_json: bool) -> None:
    """Write the C files of MODEL."""
    build = model.build(out, selftest=selftest)
    if lint:
        _lint(build)
    if as_json:
        _print_json(json.loads((build.directory / "manifest.json").read_text()))
    else:
        click.echo(f"{build.report()}\n\n{build.directory}")


def _lint(build: api.Build) -> None:
    from teeny_embed.emit_c.lint import lint

    optional = [f"{build.program.name}_{part}.c" for part in ("store", "selftest")]
    names = [f"{build.program.name}.h", *build.interface.sources, *optional]
    files = [path for name in names if (path := build.directory / name).exists()]
    if findings := lint(files, build.program.name):
        raise ToolError("the C breaks its promises:\n" + "\n".join(map(str, findings)))


@main.command()
@_model
@_on
@_vectors
@_random
@click.option("--samples", type=int, help="Calls of each entry point: 20, or all samples of the vectors.")
@click.option("--tolerance", default=0.0, help="Of outputs in the vectors; 0 means equal values.")
@click.option("--compiler", help="Instead of the target's own: gcc, clang.")
@click.option(
    "--flag", "flags", multiple=True, help="A compiler flag for the model, such as -O0; repeatable."
)
@_json
def verify(
    model: Model, on: str, vectors: Path | None, lr: float, seed: int,
    samples: int | None, tolerance: float, compiler: str | None, flags: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Compare MODEL in C with NumPy, bit for bit. Exits with 1 and names the node if one bit differs."""
    given = read_vectors(vectors) if vectors else None
    with _built(model, on) as build:
        report = api.compare(
            build, on, steps=samples, lr=lr, vectors=given, tolerance=tolerance, seed=seed,
            compiler=compiler, flags=flags or None,
        )  # fmt: skip
    if as_json:
        _print_json(asdict(report) | {"ok": report.ok})
    else:
        click.echo(str(report))
    sys.exit(0 if report.ok else 1)


@main.command()
@_model
@click.option(
    "--samples", type=click.IntRange(1), default=1, show_default=True,
    help="Random inputs; instructions are the mean.",
)  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Of random inputs.")
@_json
def profile(model: Model, samples: int, seed: int, as_json: bool) -> None:
    """Measure memory, instructions and stack of MODEL."""
    with _built(model, "qemu") as build:
        costs = api.profile(build, samples, seed)
    if as_json:
        _print_json(costs)
    else:
        Console().print(_cost_table(costs))


@main.command()
@_model
@_on
@_vectors
@_random
@click.option("--entry", help="Entry point; the first that the vectors fit if not given.")
@click.option("--samples", type=click.IntRange(1), default=1, help="Random samples, if there are no vectors.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.npz", help="Write the outputs here.")
@_json
def run(
    model: Model, on: str, vectors: Path | None, lr: float, seed: int,
    entry: str | None, samples: int, out: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Call an entry point of MODEL and print its outputs."""
    given = read_vectors(vectors) if vectors else None
    with _built(model, on) as build:
        feeds = list(_feeds(build, entry, given, samples, lr, seed))
        with api.open_runner(build, on) as runner:
            rows = [api.call(runner, entry_name, inputs) for entry_name, inputs in feeds]
    outputs = {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    if out:
        _save(out, outputs)
    if as_json:
        _print_json({key: array.tolist() for key, array in outputs.items()})
    else:
        for key, array in outputs.items():
            click.echo(f"{key} {array.dtype}{list(array.shape)}\n{array}")


def _save(path: Path, arrays: dict[str, Array]) -> None:
    try:
        np.savez(path, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise DataError(f"the outputs cannot be written: {error.strerror}", where=str(path)) from None


def _feeds(
    build: api.Build, entry: str | None, given: dict[str, Array] | None, count: int, lr: float, seed: int
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Name of the entry point and inputs of each call."""
    interface, graphs = build.interface, build.program.entry_points
    fitting = list(interface.entry_points) if given is None else matching(interface, graphs, given)
    chosen = interface.entry_points[entry_index(interface, entry)] if entry else fitting[0]
    if chosen not in fitting:
        raise DataError(f"the vectors lack inputs of {chosen.name}")
    if given is not None:
        yield from ((chosen.name, inputs) for inputs, _ in samples(chosen, graphs[chosen.name], given, lr))
        return
    rng = generator(seed)
    for _ in range(count):
        yield chosen.name, draw(chosen, graphs[chosen.name], rng, lr)


def _cost_table(costs: dict[str, Any]) -> Table:
    table = Table(costs["name"], costs["target"])
    for key in ("arena_bytes", "arena_lower_bound_bytes", "state_bytes", "constant_bytes", "code_bytes"):
        table.add_row(key, f"{costs[key]:,}")
    for key in ("stack_bytes", "macs", "longest_node_macs", "cycles_estimate"):
        for entry, value in (costs[key] or {}).items():
            table.add_row(f"{key} {entry}", f"{value:,}")
    for entry, counted in (costs["instructions"] or {}).items():
        table.add_section()
        table.add_row(f"instructions {entry}", f"{counted['total']:,}")
        for row in counted["nodes"]:
            table.add_row(f"  {row['node']}", f"{row['instructions']:,}")
    return table


@main.command()
@click.argument("suite", type=click.Choice(["onnx"]))
@click.option("--numpy-only", is_flag=True, help="Compile nothing.")
@_json
def conformance(suite: str, numpy_only: bool, as_json: bool) -> None:
    """Run a test suite of others: each case in NumPy, and in C with the same bits."""
    from teeny_embed.api.conformance import cases, run_case

    outcomes = [run_case(case, compiled=not numpy_only) for case in cases()]
    if as_json:
        _print_json([asdict(o) for o in outcomes])
        return
    for kind in dict.fromkeys(o.kind for o in outcomes):
        own = [o for o in outcomes if o.kind == kind]
        click.echo(f"{kind}: {sum(not o.reason for o in own)} of {len(own)}")
    reasons = Counter(o.reason.partition(" (")[0] for o in outcomes if o.reason)
    for reason, count in reasons.most_common():
        click.echo(f"{count:5} {reason}")


# ---- What there is ----------------------------------------------------------------------------------------


_markdown = click.option("--markdown", is_flag=True, help="Print the document in docs/.")

TARGETS_DOCUMENT = """\
# Targets

Printed by `teeny-embed targets --markdown`. A CPU has no memories, so no model is too large for it; its
programs run on the board named beside it. A board has the memories of the real part (an mps board: of its
FPGA system), and a model that does not fit is refused when it is built. Every build of ours also passes
`-std=c99 -ffp-contract=off`.
"""
OPS_DOCUMENT = """\
# Operators

Printed by `teeny-embed ops --markdown`. `te.NAME(*operands, **attributes)` records
any of them; layers of `nn` and the methods of `Tensor` are made of such calls. Layouts are NHWC and
OHWI. An attribute shown without a value must be given. None is what its text says, or stride 1 (of a pool:
its kernel), no padding, dilation 1.
"""


TFLITE_DOCUMENT = """\
# Operators of TensorFlow Lite

Printed by `teeny-embed tflite --markdown`. What TFLite Micro registers, custom operators last, and the
element types that can be imported; the types are those of the first operand, unless the note says otherwise.
[tflite.md](tflite.md) says how they are computed. Operators without types cannot be imported.
"""


@main.command("targets")
@_json
@_markdown
def list_targets(as_json: bool, markdown: bool) -> None:
    """List CPUs and boards."""
    rows = [_target_row(targets.load(name)) for name in targets.names()]
    if as_json:
        _print_json(rows)
        return
    header = ("target", "cpu", "compiler", "flags", "board", "memories")
    lines = [
        (
            row["name"], row["cpu"], row["compiler"], " ".join(row["flags"]), row["board"] or "",
            ", ".join(f"{m['name']} {m['length']:,} B" for m in row["memories"]),
        )
        for row in rows
    ]  # fmt: skip
    _print_table(header, lines, TARGETS_DOCUMENT if markdown else "")


def _target_row(target: targets.Target) -> dict[str, Any]:
    return {
        "name": target.name,
        "cpu": target.cpu,
        "compiler": target.compiler,
        "flags": [*target.flags, target.optimize],
        "board": target.board.name if target.board else None,
        "memories": [asdict(memory) for memory in target.memories],
    }


@main.command("ops")
@_json
@_markdown
def list_ops(as_json: bool, markdown: bool) -> None:
    """List operators."""
    ops = [REGISTRY[name] for name in sorted(REGISTRY)]
    if as_json:
        _print_json([_op_row(op) for op in ops])
        return
    header = ("operator", "meaning", "attributes", "gradient")
    lines = [
        (
            op.name, op.summary, _described(op) if markdown else ", ".join(op.attributes),
            "no" if op.vjp is NOT_DIFFERENTIABLE else "yes",
        )
        for op in ops
    ]  # fmt: skip
    _print_table(header, lines, OPS_DOCUMENT if markdown else "")


@main.command("tflite")
@_json
@_markdown
def list_tflite(as_json: bool, markdown: bool) -> None:
    """List the operators of .tflite files."""
    from teeny_embed.frontends.tflite.support import table

    header = ("operator", "types", "note")
    if as_json:
        _print_json([dict(zip(header, row, strict=True)) for row in table()])
        return
    _print_table(header, list(table()), TFLITE_DOCUMENT if markdown else "")


def _op_row(op: Op) -> dict[str, Any]:
    return {
        "name": op.name,
        "summary": op.summary,
        "attributes": {name: attribute.summary for name, attribute in op.attributes.items()},
        "differentiable": op.vjp is not NOT_DIFFERENTIABLE,
    }


def _described(op: Op) -> str:
    """Attributes with their defaults and summaries."""
    texts = []
    for name, attribute in op.attributes.items():
        default = "" if attribute.required else f"={attribute.default!r}"
        texts.append(f"`{name}{default}` {attribute.summary}")
    return "; ".join(texts)


def _print_table(header: Sequence[str], lines: Sequence[Sequence[str]], document: str) -> None:
    """In Markdown behind the text `document`, or as wide as the terminal if that is empty."""
    if document:
        rows = [" | ".join(cell.replace("|", r"\|") for cell in line) for line in (header, *lines)]
        rows.insert(1, " | ".join(["---"] * len(header)))
        click.echo("\n".join([document, *(f"| {row} |" for row in rows)]))
        return
    table = Table(*header)
    for line in lines:
        table.add_row(*map(escape, line))
    Console().print(table)


@main.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("build/demo"), show_default=True,
    help="Directory for the C files.")  # fmt: skip
def demo(out: Path) -> None:
    """Train a digit classifier on an emulated Cortex-M4F and compare every weight with NumPy."""
    digits_demo.run(Console(), out)
