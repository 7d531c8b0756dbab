"""What an inference of int8 models costs on emulated cores: measured, and recorded.

docs/int8_figures.json holds the record, docs/int8_figures.md tells it. Instructions are the mean of SAMPLES
seeded random inputs, exactly what `teeny-embed profile MODEL.tflite --target CORE --samples 8` prints.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import teeny_embed as te
from support.figures import COMPILER, M4F, REPOSITORY, found_compiler
from support.figures_text import table
from support.int8_peers import CMSIS_NN, TFLITE_MICRO
from support.runners import CORES
from support.tflite import SharedModel, micro_arena

RECORD = REPOSITORY / "docs" / "int8_figures.json"
DOCUMENT = REPOSITORY / "docs" / "int8_figures.md"

MODELS = {
    "ad_autoencoder": "mlperf_tiny/ad_autoencoder_int8",
    "kws_dscnn": "mlperf_tiny/kws_dscnn_int8",
    "ic_resnet8": "mlperf_tiny/ic_resnet8_int8",
    "vww_mobilenetv1": "mlperf_tiny/vww_mobilenetv1_int8",
    "mnist_lstm": "tflm/mnist_lstm_int8",
}
"""Files of the shared models by name."""
SAMPLES = 8

WEIGHTS_AND_BIAS = {
    "CONV_2D": (1, 2),
    "DEPTHWISE_CONV_2D": (1, 2),
    "FULLY_CONNECTED": (1, 2),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (*range(1, 9), *range(12, 16)),
}
"""Which operands of an operator are its weights and its bias."""


# ---- Limits -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """What a model may cost; instructions by core. None for no limit."""

    instructions: Mapping[str, int] = field(default_factory=dict)
    m4_cycles: int | None = None
    flash_bytes: int | None = None
    stack_bytes: int = 256


def _limit(m4: int, m55: int, m3: int, m0: int, peer_m4_cycles: int, flash_bytes: int) -> Limit:
    """The estimate of cycles is to be 1.5 times below that of CMSIS-NN."""
    instructions = (m0, m3, m4, m4, m4, m55)
    return Limit(dict(zip(CORES, instructions, strict=True)), peer_m4_cycles * 2 // 3, flash_bytes)


LIMITS = {
    "ad_autoencoder": _limit(365_000, 48_000, 700_000, 1_200_000, 710_000, 3_000),
    "kws_dscnn": _limit(3_500_000, 920_000, 6_500_000, 12_500_000, 9_100_000, 9_000),
    "ic_resnet8": _limit(13_500_000, 2_300_000, 25_000_000, 44_000_000, 36_100_000, 8_000),
    "vww_mobilenetv1": _limit(10_300_000, 2_700_000, 16_500_000, 32_000_000, 29_100_000, 20_000),
    "mnist_lstm": Limit(),
}


# ---- Measuring ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Of one inference."""

    instructions: int
    m4_cycles: int | None
    arena_bytes: int
    stack_bytes: int
    """Worst case over all paths of calls, assembly included."""
    flash_bytes: int
    """Code and constants of the module's objects, less `weights_bytes` of the model file."""
    runtime_symbols: tuple[str, ...]
    """Routines of the compiler's runtime that are linked beside that."""


@dataclass(frozen=True)
class Node:
    """One row of `--nodes`: a mean, too."""

    name: str
    macs: int
    instructions: int


def model(shared: Path, name: str) -> SharedModel:
    return SharedModel(shared, MODELS[name])


def build(found: SharedModel, core: str, folder: Path, optimize: str = "speed") -> te.Build:
    name = found.path.stem
    program = te.Program(name, infer=te.load(found.path))
    return te.build(program, core, folder / f"{name}-{core}-{optimize}", optimize=optimize)


def weights_bytes(found: SharedModel) -> int:
    """Bytes of the weights and biases as the model file has them, each tensor once."""
    tensors: dict[tuple[int, int], int] = {}
    for number, subgraph in enumerate(found.imported.model.subgraphs):
        for op in subgraph.operators:
            for position in WEIGHTS_AND_BIAS.get(op.name, ()):
                index = op.inputs[position] if position < len(op.inputs) else -1
                data = subgraph.tensors[index].data if index >= 0 else None
                if data is not None:
                    tensors[number, index] = data.nbytes
    return sum(tensors.values())


def cost(found: SharedModel, core: str, folder: Path, optimize: str = "speed") -> Cost:
    """All that is recorded of a model on a core, compiled as the target says."""
    return _cost(te.profile(build(found, core, folder, optimize), SAMPLES), found, core)


def _cost(profile: Mapping[str, Any], found: SharedModel, core: str) -> Cost:
    return Cost(
        instructions=profile["instructions"]["infer"]["total"],
        m4_cycles=profile["cycles_estimate"]["infer"] if core == M4F else None,
        arena_bytes=profile["arena_bytes"],
        stack_bytes=profile["stack_bytes"]["infer"],
        flash_bytes=profile["code_bytes"] + profile["constant_bytes"] - weights_bytes(found),
        runtime_symbols=tuple(profile["runtime_symbols"]),
    )


def nodes(found: SharedModel, core: str, folder: Path) -> Iterator[Node]:
    """What each node costs, in the order in which they run."""
    built = build(found, core, folder)
    rows = te.profile(built, SAMPLES)["instructions"]["infer"]["nodes"]
    for row, step in zip(rows, built.plan.entries[0].schedule.steps, strict=True):
        yield Node(row["node"].removeprefix(f"{built.program.name}_"), step.macs, row["instructions"])


# ---- The record ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arena:
    """What TFLite Micro's interpreter allocates for a model on this host, as it prints it."""

    total_bytes: int
    tensors_bytes: int
    """Of that tensors and scratch; the rest are its own structures."""


@dataclass(frozen=True)
class Record:
    """What is committed."""

    costs: Mapping[str, Mapping[str, Cost]]
    """By core and model."""
    weights_bytes: Mapping[str, int]
    micro: Mapping[str, Arena]


def measure(shared: Path, cores: Sequence[str] = CORES, names: Iterable[str] = MODELS) -> Record:
    found = {name: model(shared, name) for name in names}
    with tempfile.TemporaryDirectory(prefix="teeny_embed_") as folder:
        costs = {c: {n: cost(m, c, Path(folder)) for n, m in found.items()} for c in cores}
    micro = {n: Arena(*micro_arena(m.path.read_bytes())) for n, m in found.items()}
    return Record(costs, {n: weights_bytes(m) for n, m in found.items()}, micro)


def as_json(record: Record) -> str:
    return json.dumps({"compiler": COMPILER, **asdict(record)}, indent=1) + "\n"


@cache
def read_record() -> Record:
    """As committed."""
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    costs = {core: {n: _read_cost(each) for n, each in row.items()} for core, row in found["costs"].items()}
    micro = {name: Arena(**each) for name, each in found["micro"].items()}
    return Record(costs, found["weights_bytes"], micro)


def _read_cost(fields: dict[str, Any]) -> Cost:
    return Cost(**fields | {"runtime_symbols": tuple(fields["runtime_symbols"])})


def update(shared: Path) -> None:
    """Measures everything anew; writes the record and its document."""
    if (found := found_compiler()) != COMPILER:
        raise SystemExit(f"the figures are those of {COMPILER}, this is {found}")
    record = measure(shared)
    RECORD.write_text(as_json(record), encoding="utf-8")
    DOCUMENT.write_text(document(record), encoding="utf-8")


# ---- Text ---------------------------------------------------------------------------------------------


def tables(record: Record) -> str:
    return "\n\n".join([_instructions(record), _memory(record)])


def _instructions(record: Record) -> str:
    header = (
        "instructions", "measured", "limit", "ratio", "CMSIS-NN", "TFLM", "m4cycles", "limit", "CMSIS-NN",
    )  # fmt: skip
    rows = [
        (f"{core}: {name}", c.instructions, limit, c.instructions / limit if limit else None,
         *(p[name].instructions.get(core) if name in p else None for p in (CMSIS_NN, TFLITE_MICRO)),
         *((c.m4_cycles, LIMITS[name].m4_cycles, cycles) if c.m4_cycles else [None] * 3))
        for core, costs in record.costs.items() for name, c in costs.items()
        for limit in (LIMITS[name].instructions.get(core),)
        for cycles in (CMSIS_NN[name].m4_cycles if name in CMSIS_NN else None,)
    ]  # fmt: skip
    return table(header, rows)


def _memory(record: Record) -> str:
    header = (
        "bytes", "arena", "TFLM's", "its tensors", "stack", "limit", "flash", "limit", "runtime routines",
    )  # fmt: skip
    rows = [
        (f"{core}: {name}", c.arena_bytes, record.micro[name].total_bytes, record.micro[name].tensors_bytes,
         c.stack_bytes, LIMITS[name].stack_bytes, c.flash_bytes, LIMITS[name].flash_bytes,
         len(c.runtime_symbols))
        for core, costs in record.costs.items() for name, c in costs.items()
    ]  # fmt: skip
    return table(header, rows)


def _beside_peers(record: Record) -> str:
    header = (M4F, "arena", "CMSIS-NN", "TFLM", "stack", "CMSIS-NN", "TFLM", "flash", "CMSIS-NN", "TFLM")
    rows = []
    for name in CMSIS_NN:
        cost, peers = record.costs[M4F][name], (CMSIS_NN[name], TFLITE_MICRO[name])
        flash_bytes = cost.flash_bytes + record.weights_bytes[name]
        rows.append((
            name, cost.arena_bytes, *(p.arena_bytes for p in peers),
            cost.stack_bytes, *(p.stack_bytes for p in peers), flash_bytes, *(p.flash_bytes for p in peers),
        ))  # fmt: skip
    return table(header, rows)


def document(record: Record) -> str:
    return f"""\
# int8 inference: figures

Written by `python benchmarks/int8_figures.py --write`, with {COMPILER}; tests compare them with what they
measure. Each model of MLPerf Tiny in int8, and mnist_lstm (20 units, 28 steps of 28 inputs, 107,520
multiply-accumulates), on each core, compiled as its target says, under QEMU.
[figures.md](figures.md) says how instructions are counted, and that m4cycles are an estimate.

- instructions: executed in one inference, the mean of {SAMPLES} seeded random inputs. The entry point and all
  that it calls. `teeny-embed profile MODEL.tflite --target CORE --samples {SAMPLES}` prints the same.
- limit: what this project has set itself. It was about half of what CMSIS-NN needs on a Cortex-M4; what
  misses its limit is listed in `firmware_tests/test_int8_figures.py`.
- CMSIS-NN, TFLM: its kernels called directly, and TFLite Micro's interpreter with them. Counted earlier, in
  the same way with the same compiler and emulator; the source is `shared/peers/figures.md`. An empty cell was
  not measured.

{_instructions(record)}

- arena: activations and scratch, beside the caller's input and output. TFLM's is what
  TFLite Micro's interpreter allocates, its portable kernels on a 64-bit host, input and output inside; its
  tensors are the part that is not structures of its own.
- stack: the deepest path of calls, functions in assembly included.
- flash: code and constant tables of the module's object files, less the weights and biases of
  convolutions and linear layers as they stand in the model file. So it counts code, multipliers and shifts,
  other tables, and all that packing adds to the weights; below 0 it saves more, as where zeros are left out.
  Routines of the compiler's runtime are not in it: how many of them are called is said beside it.

{_memory(record)}

Beside peers, in bytes, from the same source. Their arenas hold input and output, ours do not; TFLM's is the
smallest that works on the core. Their stack is what a run used. Flash is all code and constants, weights
inside: of theirs that of the whole image, with 1 to 3 KB of what measures it.

{_beside_peers(record)}
"""
