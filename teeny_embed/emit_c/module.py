"""A planned program as plain data, ready for the templates: types, tables, node functions, entry points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from teeny_embed.emit_c import helpers
from teeny_embed.emit_c.formula import formulas
from teeny_embed.emit_c.interface import Argument, EntryPoint, Interface
from teeny_embed.emit_c.literals import C_TYPES
from teeny_embed.emit_c.names import Names, argument_names, identifier, layer_name
from teeny_embed.emit_c.nest import Segment, integer_segments, segments
from teeny_embed.emit_c.scalar_printer import function_definition
from teeny_embed.emit_c.scatter import ScatterNest, scatter_nest
from teeny_embed.emit_c.state import StateMember, Table, Tables, drawn_element, state_bytes, state_members
from teeny_embed.errors import GraphError
from teeny_embed.graph import scalar as s
from teeny_embed.graph.interval import Accumulator, Intervals, accumulator_of, intervals
from teeny_embed.graph.node import Variable
from teeny_embed.graph.quantization import Quantization
from teeny_embed.graph.step import Buffer, Read, Step
from teeny_embed.kernels.choose import Choice, distance
from teeny_embed.kernels.integers import simplified
from teeny_embed.kernels.quantized import Packed
from teeny_embed.kernels.tiles import is_brief
from teeny_embed.planner.plan import EntryPlan, Plan

OWN_NAMES = ("init", "reset", "state", "state_t", "arena", "arena_t", "ctx", "ctx_t")
"""What stands behind the prefix in every module."""
LOCAL_NAMES = ("lane", "cotangent", "w", "sum", *(f"sum{i}" for i in range(32)))
"""Variables of the kernels' templates."""


@dataclass(frozen=True)
class Parameter:
    """One argument of a node function, and what an entry point passes for it."""

    name: str
    declaration: str
    argument: str
    role: str
    """in, out or in,out"""
    type: str
    place: str
    """Where it lies: "arena 0..63", "state conv0_weight", "caller", "flash"."""


@dataclass(frozen=True)
class NodeFunction:
    """One step as a C function."""

    name: str
    title: str
    layers: tuple[str, ...]
    where: str
    parameters: tuple[Parameter, ...]
    body: tuple[Segment, ...] | ScatterNest | Packed
    kernel: str
    macs: int
    formulas: tuple[str, ...]
    uses: tuple[str, ...]
    """ "train_step node 3" for every call."""
    accumulator: Accumulator | None = None
    """Of all calls together; None unless this is a contraction of small integers."""
    distance_bytes: int | None = None
    """How far y must begin before x if it lies over it: of all calls the most; None if it must not."""
    integers: tuple[Segment, ...] = ()
    """The body in vectors of int32, which stands in its place where there are such instructions."""
    brief: bool = False
    """Whether it is to be compiled for size at any level: it does too little for anything else to pay."""


@dataclass(frozen=True)
class Call:
    """An entry point's call of a node function, and the check that follows it."""

    function: str
    arguments: tuple[str, ...]
    finite: str
    """Expression that must be finite, or empty."""


@dataclass(frozen=True)
class Entry:
    """One entry point."""

    name: str
    parameters: tuple[str, ...]
    pointers: tuple[str, ...]
    """Names of pointer arguments, which must not be NULL."""
    rates: tuple[str, ...]
    ranges: tuple[tuple[str, int, int], ...]
    """(argument, count, bound); count 0 for a value."""
    calls: tuple[Call, ...]
    counts_steps: bool
    macs: int
    interface: EntryPoint


@dataclass(frozen=True)
class ArenaMember:
    name: str
    offset: int
    type: str
    count: int
    size_bytes: int
    lifetimes: tuple[str, ...]


@dataclass(frozen=True)
class Count:
    """A macro that says how many elements an argument has."""

    macro: str
    count: int
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Slot:
    """A macro that says where in the arena an argument lies."""

    macro: str
    offset: int
    member: str
    use: str
    """ "read by infer" """


@dataclass(frozen=True)
class RealArgument:
    """Macros and a function that say which real numbers the integers of an argument stand for."""

    macro: str
    """Prefix of the macros."""
    function: str
    quantization: Quantization
    type: str
    direction: str
    """An "in" is quantised, an "out" dequantised."""

    @property
    def scale(self) -> str:
        """Nine decimal digits: they name one binary32 number, in C++ too."""
        text = f"{self.quantization.scale:.9g}"
        return f"{text}f" if "." in text or "e" in text else f"{text}.0f"

    @property
    def scale_bits(self) -> str:
        return f"0x{np.float32(self.quantization.scale).view(np.uint32):08x}"

    @property
    def bounds(self) -> tuple[str, str]:
        """What real / scale is compared with."""
        low, high = (each - self.quantization.zero_point for each in self.quantization.limits)
        return f"{low}.0f", f"{high}.0f"


@dataclass(frozen=True)
class Module:
    """Everything the templates print."""

    name: str
    interface: Interface
    arena: tuple[ArenaMember, ...]
    state: tuple[StateMember, ...]
    tables: tuple[Table, ...]
    functions: tuple[str, ...]
    """Named scalar functions as C, callees first."""
    micro: tuple[str, ...]
    """Templates of the functions that kernels share, callees first."""
    nodes: tuple[NodeFunction, ...]
    entries: tuple[Entry, ...]
    counts: tuple[Count, ...]
    slots: tuple[Slot, ...]
    real_arguments: tuple[RealArgument, ...]
    constant_bytes: int


def build_module(
    name: str, plan: Plan, choose: Callable[[Step], Choice], drawn: Collection[Variable] = ()
) -> Module:
    """The module of a plan. `name` becomes the prefix of every external symbol; reset draws `drawn`."""
    return _Builder(name, plan, choose, drawn).module()


def _check_entry_names(name: str, entries: Sequence[str]) -> None:
    """Entry points become C functions beside those that every module has."""
    taken = {*OWN_NAMES, *helpers.names(), *s.FUNCTIONS}
    for entry in entries:
        if identifier(entry) != entry or entry in taken:
            hint = f"try {entry + '_step' if entry in taken else identifier(entry)!r}"
            raise GraphError(f"entry point {entry!r} of {name!r} cannot name a C function", hint=hint)


class _Builder:
    def __init__(
        self, name: str, plan: Plan, choose: Callable[[Step], Choice], drawn: Collection[Variable]
    ) -> None:
        self.name, self.plan = name, plan
        steps = [step for e in plan.entries for step in e.schedule.steps]
        self.choices = {step: choose(step) for step in steps}
        self.intervals = {step: intervals(step) for step in steps if self.choices[step].packed is None}
        self.printed = {step: simplified(step, known) for step, known in self.intervals.items()}
        self.member_names: dict[tuple[int, str, int, str], str] = {}
        self.members: dict[str, ArenaMember] = {}
        self.arena_names = Names(("bytes",))
        self.nodes: dict[Any, NodeFunction] = {}
        self.micro: dict[str, None] = {}
        roots = [r for step in self.printed.values() for r in _scalars(step)]
        self.functions = s.functions_used([*roots, *map(drawn_element, drawn)])
        entries = [e.schedule.name for e in plan.entries]
        _check_entry_names(name, entries)
        self.names = Names((*OWN_NAMES, *helpers.names(), *entries, *(f.name for f in self.functions)))
        self.argument_names = {b: n for e in plan.entries for b, n in argument_names(e.schedule).items()}
        self.counts: dict[str, Count] = {}
        self.slots: dict[str, Slot] = {}
        self.real_arguments = self._real_arguments()
        self.tables = Tables(name, self.names)
        self.state = state_members(name, _variables(plan), drawn, self.tables)
        self.state_of = {m.field.name: m.name for m in self.state}

    def module(self) -> Module:
        entries = tuple(self._entry(e) for e in self.plan.entries)
        fields = tuple(m.field for m in self.state)
        tables = self.tables.all()
        sources = (f"{self.name}.c", f"{self.name}_params.c") if tables else (f"{self.name}.c",)
        arena_bytes = max(4, self.plan.arena_bytes)
        interface = Interface(
            self.name, tuple(e.interface for e in entries), fields, state_bytes(fields), arena_bytes, sources
        )
        return Module(
            self.name, interface, tuple(self.members.values()), self.state, tables,
            tuple(function_definition(self.name, f) for f in self.functions), tuple(self.micro),
            tuple(self.nodes.values()), entries, tuple(self.counts.values()), tuple(self.slots.values()),
            self.real_arguments, sum(t.size_bytes for t in tables),
        )  # fmt: skip

    # ---- Entry points

    def _entry(self, entry: EntryPlan) -> Entry:
        schedule = entry.schedule
        names = self.argument_names
        arguments = [self._argument(entry, b, "in") for b in schedule.inputs]
        arguments += [self._argument(entry, b, "out") for b in schedule.outputs]
        interface = EntryPoint(schedule.name, tuple(arguments), ())
        calls = tuple(self._call(entry, i, step) for i, step in enumerate(schedule.steps))
        return Entry(
            name=schedule.name,
            parameters=tuple(self._declaration(schedule.name, a) for a in interface.passed),
            pointers=tuple(a.name for a in interface.passed if not a.by_value),
            rates=tuple(names[c.buffer] for c in schedule.checks if c.kind == "rate"),
            ranges=tuple(
                (
                    self._place(entry, c.buffer)[0],
                    0 if c.buffer.type.shape == () else c.buffer.type.count,
                    c.bound,
                )
                for c in schedule.checks
                if c.kind == "range"
            ),
            calls=calls,
            counts_steps=bool(schedule.assigns),
            macs=sum(step.macs for step in schedule.steps),
            interface=replace(interface, node_names=tuple(c.function for c in calls)),
        )

    def _argument(self, entry: EntryPlan, buffer: Buffer, direction: str) -> Argument:
        offset = entry.offsets.get(entry.storage[buffer])
        name, kind = self.argument_names[buffer], buffer.type
        found = Argument(name, kind.dtype, kind.shape, direction, offset, buffer.quantization)
        if offset is not None:
            others = {o for e in self.plan.entries for b, o in _slots(e) if self.argument_names[b] == name}
            self._count_macro(entry.schedule.name, found)
            macro = self._macro(entry.schedule.name, found, "offset", len(others) > 1)
            use = f"{'read' if direction == 'in' else 'written'} by {self.name}_{entry.schedule.name}"
            self.slots.setdefault(macro, Slot(macro, offset, self._member(entry, buffer), use))
        return found

    def _real_arguments(self) -> tuple[RealArgument, ...]:
        """One for each argument that is quantised, entry points sharing those that agree."""
        found: dict[Any, RealArgument] = {}
        prefixes = Names()
        for entry in self.plan.entries:
            schedule = entry.schedule
            for direction, verb, buffers in (
                ("in", "quantize", schedule.inputs),
                ("out", "dequantize", schedule.outputs),
            ):
                for buffer in buffers:
                    key = (self.argument_names[buffer], direction, q := buffer.quantization)
                    if q is not None and key not in found:
                        name = prefixes.unique(key[0])
                        function = f"{self.name}_{self.names.unique(f'{verb}_{name}')}"
                        macro = f"{self.name}_{name}".upper()
                        found[key] = RealArgument(macro, function, q, C_TYPES[q.dtype], direction)
        return tuple(found.values())

    def _declaration(self, entry: str, a: Argument) -> str:
        c_type = C_TYPES[a.dtype]
        if a.by_value:
            return f"{c_type} {a.name}"
        if a.shape == ():
            return f"{c_type} *{a.name}"
        const = "const " if a.direction == "in" else ""
        return f"{const}{c_type} {a.name}[{self._count_macro(entry, a)}]"

    def _count_macro(self, entry: str, a: Argument) -> str:
        """Named after the argument alone, unless entry points have arguments of that name and other sizes."""
        sizes = {b.type.count for b, n in self.argument_names.items() if n == a.name and b.type.shape}
        macro = self._macro(entry, a, "count", len(sizes) > 1)
        self.counts.setdefault(macro, Count(macro, a.count, a.dtype, a.shape))
        return macro

    def _macro(self, entry: str, a: Argument, what: str, of_entry: bool) -> str:
        return "_".join([self.name, *([entry] if of_entry else []), a.name, what]).upper()

    def _call(self, entry: EntryPlan, position: int, step: Step) -> Call:
        pointers = self._pointers(entry, step)
        choice = self.choices[step]
        accumulator = accumulator_of(step) if choice.packed is None else choice.packed.accumulator
        near = distance(step, choice, _input_of(step)) if choice.packed is not None else None
        distance_bytes = None if near is None else near.byte_count
        parts: tuple[Segment, ...] | ScatterNest | Packed
        integers: tuple[Segment, ...] = ()
        text: Any
        if choice.packed is not None:
            parts, parameters = choice.packed, self._kernel_parameters(entry, step, choice.packed)
            self.micro.update(dict.fromkeys(choice.packed.micro))
            text = (choice.packed.kernel, sorted(choice.packed.values.items()))
        else:
            printed = self.printed[step]
            printed, firsts = _from_first_element(printed, entry) if choice.scatter is None else (printed, {})
            parts = self._body(printed, choice, pointers, self.intervals[step])
            integers = integer_segments(printed, choice, self.name, pointers, self.intervals[step])
            parameters = self._parameters(entry, printed, pointers, firsts)
            text = parts
        parameters = _unrestricted(parameters, self._overlapping(entry, step))
        key = repr(([p.declaration for p in parameters], text))
        use = f"{entry.schedule.name} node {position}"
        known = self.nodes.get(key)
        name = known.name if known else f"{self.name}_{self.names.unique(_node_name(step, entry))}"
        uses = (*known.uses, use) if known else (use,)
        layers = tuple(dict.fromkeys(layer_name(x.name).replace("_grad", "'") for x in step.sources))
        where = next((x.where for x in step.sources if x.where), "")
        if known is not None and known.accumulator is not None and accumulator is not None:
            accumulator = accumulator.hull(known.accumulator)
        if known is not None and known.distance_bytes is not None and distance_bytes is not None:
            distance_bytes = max(distance_bytes, known.distance_bytes)
        self.nodes[key] = NodeFunction(
            name, step.title, layers, where, parameters, parts, choice.kernel, step.macs,
            tuple(formulas(step, pointers)), uses, accumulator, distance_bytes, integers, is_brief(step),
        )  # fmt: skip
        return Call(name, tuple(p.argument for p in parameters), self._finite(entry, step))

    def _body(
        self, step: Step, choice: Choice, pointers: dict[Buffer, str], known: Intervals
    ) -> tuple[Segment, ...] | ScatterNest:
        """What the kernel's template prints."""
        if choice.scatter is not None:
            return scatter_nest(step, choice.scatter, self.name, pointers, choice.lanes)
        return segments(step, choice, self.name, pointers, known)

    def _finite(self, entry: EntryPlan, step: Step) -> str:
        for check in entry.schedule.checks:
            if check.kind == "finite" and check.buffer in step.buffers_written():
                return f"{self._place(entry, check.buffer)[0]}[0]"
        return ""

    def _pointers(self, entry: EntryPlan, step: Step) -> dict[Buffer, str]:
        """Each buffer's name inside the step's function: one per storage."""
        names = Names((*LOCAL_NAMES, *step.sizes))
        of_storage: dict[Buffer, str] = {}
        pointers: dict[Buffer, str] = {}
        for buffer in dict.fromkeys([*step.buffers_read(), *step.buffers_written()]):
            root = entry.storage[buffer]
            if root not in of_storage:
                of_storage[root] = names.unique(_short_name(buffer))
            pointers[buffer] = of_storage[root]
        return pointers

    def _parameters(
        self, entry: EntryPlan, step: Step, pointers: dict[Buffer, str], firsts: Mapping[Buffer, int]
    ) -> tuple[Parameter, ...]:
        """Arguments of the step's function, one per storage; `firsts` are elements that they point to."""
        written = {entry.storage[b] for b in step.buffers_written()}
        read = {entry.storage[b] for b in step.buffers_read()}
        first: dict[Buffer, Buffer] = {}
        for buffer in [*step.buffers_read(), *step.buffers_written()]:
            first.setdefault(entry.storage[buffer], buffer)
        parameters = []
        for root, buffer in first.items():
            role = ("in,out" if root in read else "out") if root in written else "in"
            parameter = self._parameter(entry, buffer, root, pointers[buffer], role)
            if first_element := firsts.get(buffer):
                parameter = replace(parameter, argument=f"{parameter.argument} + {first_element}")
            parameters.append(parameter)
        return tuple(parameters)

    def _kernel_parameters(self, entry: EntryPlan, step: Step, packed: Packed) -> tuple[Parameter, ...]:
        """x and y, the scratch, and the tables under their roles."""
        x = _input_of(step)
        own = [(x, "x", "in"), (step.outputs[0].buffer, "y", "out")]
        own += [(step.scratch, "scratch", "scratch")] if step.scratch is not None else []
        found = [self._parameter(entry, b, entry.storage[b], name, role) for b, name, role in own]
        if packed.first:
            found[0] = replace(found[0], argument=f"{found[0].argument} + {packed.first}")
        layer = layer_name(step.sources[0].name)
        for role, values in packed.tables.items():
            c_type = C_TYPES[values.dtype.name]
            symbol = self.tables.add(f"{layer}_{role}", f"{step.sources[0].name}: {role}", values, 8)
            declaration = f"const {c_type} *TE_RESTRICT {role}"
            shape = f"{values.dtype}[{values.size}]"
            found.append(Parameter(role, declaration, symbol, "in", shape, "flash"))
        return tuple(found)

    def _parameter(self, entry: EntryPlan, buffer: Buffer, root: Buffer, name: str, role: str) -> Parameter:
        c_type = C_TYPES[root.type.dtype]
        argument, place = self._place(entry, buffer)
        by_value = root.kind == "input" and root.type.shape == ()
        const = "const " if role == "in" else ""
        declaration = f"{c_type} {name}" if by_value else f"{const}{c_type} *TE_RESTRICT {name}"
        return Parameter(name, declaration, argument, role, str(buffer.type), place)

    def _overlapping(self, entry: EntryPlan, step: Step) -> frozenset[str]:
        """Names in C of those arguments that share bytes of the arena."""
        places = {}
        for buffer in dict.fromkeys([*step.buffers_read(), *step.buffers_written()]):
            first = entry.offsets.get(entry.storage[buffer])
            if first is not None:
                places[buffer] = (first, first + buffer.type.size_bytes)
        return frozenset(
            self._place(entry, b)[0]
            for b, (first, end) in places.items()
            if any(
                o is not b and first < other_end and other < end for o, (other, other_end) in places.items()
            )
        )

    def _place(self, entry: EntryPlan, buffer: Buffer) -> tuple[str, str]:
        """What an entry point passes for a buffer, and where that lies."""
        root = entry.storage[buffer]
        if (first := entry.offsets.get(root)) is not None:
            member = self._member(entry, buffer)
            return f"ctx->arena->{member}.at", f"arena {first}..{first + root.type.size_bytes - 1}"
        if root.kind in ("input", "output"):
            return self.argument_names[root], "caller"
        if root.variable is not None and root.variable.name in self.state_of:
            member = self.state_of[root.variable.name]
            return f"ctx->state->{member}", f"state {member}"
        value = root.value if root.variable is None else root.variable.value
        assert value is not None
        return self.tables.add(layer_name(root.name), root.name, value, root.align_bytes), "flash"

    def _member(self, entry: EntryPlan, buffer: Buffer) -> str:
        """The member of the arena's union for a storage, or for the argument that lies in it.

        Equal ones are shared between entry points.
        """
        root = entry.storage[buffer]
        short = self.argument_names.get(buffer) or identifier(_short_name(root))
        key = (entry.offsets[root], root.type.dtype, root.type.count, short)
        lifetime = next(b for b in entry.problem.buffers if b.name == entry.names[root])
        text = f"{entry.schedule.name} {lifetime.lower}..{lifetime.upper - 1}"
        name = self.member_names.setdefault(key, "") or self.arena_names.unique(short)
        self.member_names[key] = name
        known = self.members.get(name)
        lifetimes = tuple(dict.fromkeys([*(known.lifetimes if known else ()), text]))
        self.members[name] = ArenaMember(
            name,
            entry.offsets[root],
            C_TYPES[root.type.dtype],
            root.type.count,
            root.type.size_bytes,
            lifetimes,
        )
        return name


def _unrestricted(parameters: tuple[Parameter, ...], overlapping: Collection[str]) -> tuple[Parameter, ...]:
    """Without the promise that nothing else points to the same bytes, where that is in `overlapping`."""
    return tuple(
        replace(p, declaration=p.declaration.replace("TE_RESTRICT ", ""))
        if p.argument.partition(" + ")[0] in overlapping
        else p
        for p in parameters
    )


def _input_of(step: Step) -> Buffer:
    """What a quantised contraction is of, beside its weights."""
    return next(r.buffer for r in step.fold_reads().values() if r.buffer.kind != "constant")


def _slots(entry: EntryPlan) -> list[tuple[Buffer, int]]:
    """The arguments of an entry point that lie in the arena, and where."""
    arguments = (*entry.schedule.inputs, *entry.schedule.outputs)
    offsets = ((b, entry.offsets.get(entry.storage[b])) for b in arguments)
    return [(b, offset) for b, offset in offsets if offset is not None]


def _from_first_element(step: Step, entry: EntryPlan) -> tuple[Step, dict[Buffer, int]]:
    """The step as it reads tensors from the first element that it needs, and which element that is.

    So steps that do the same with different parts of a tensor have the same text, and share one function.
    """
    buffers = [*step.buffers_read(), *step.buffers_written()]
    storages = Counter(entry.storage[b] for b in dict.fromkeys(buffers))
    flat = {name: read.flat() for name, read in step.reads.items()}
    firsts: dict[Buffer, int] = {}
    for buffer in dict.fromkeys(step.buffers_read()):
        names = [name for name, read in step.reads.items() if read.buffer is buffer]
        maps = [m for name in names if step.reads[name].fill is None and (m := flat[name]) is not None]
        ascending = all(c > 0 for m in maps for _, c in m.terms)
        if len(maps) == len(names) and ascending and storages[entry.storage[buffer]] == 1:
            firsts[buffer] = min(m.constant for m in maps)
    firsts = {buffer: first for buffer, first in firsts.items() if first > 0}
    reads = dict(step.reads)
    for name, read in step.reads.items():
        index = flat[name]
        if read.buffer in firsts and index is not None:
            first = firsts[read.buffer]
            reads[name] = Read(read.buffer, (read.buffer.type.count - first,), (index - first,))
    return replace(step, reads=reads) if firsts else step, firsts


def _variables(plan: Plan) -> list[Variable]:
    """Variables that some entry point assigns, parameters first: in an order that no target changes."""
    found = dict.fromkeys(b.variable for e in plan.entries for b, _ in e.schedule.assigns)
    return sorted((v for v in found if v is not None), key=lambda v: v.kind != "parameter")


def _scalars(step: Step) -> list[s.Scalar]:
    """Every expression of a step."""
    gathers = [i for r in step.reads.values() for i in r.index if isinstance(i, s.Scalar)]
    return [*(o.value for o in step.outputs), *(f.update for f in step.folds), *gathers]


def _node_name(step: Step, entry: EntryPlan) -> str:
    """What it updates, or the layer; with the operator where that is not the layer's own contraction."""
    updated = [entry.storage[b] for b in step.buffers_written() if entry.storage[b].kind == "variable"]
    if updated:
        variable = min(updated, key=lambda b: b.variable is None or b.variable.kind != "parameter")
        return f"{variable.name}_update"
    source = next((x for x in step.sources if x.op.startswith("conv")), step.sources[0])
    layer = layer_name(source.name).removesuffix("_grad")
    if source.op.startswith("conv"):
        return layer + source.op.removeprefix("conv")
    grad = "_grad" if ".grad" in source.name else ""
    single = len(step.sources) == 1 and not source.op.endswith("_grad") and source.op not in layer
    return f"{layer}{grad}_{source.op}" if single else layer + grad


def _short_name(buffer: Buffer) -> str:
    """What a buffer is called inside a function: alike for an output and for the same value in the arena."""
    if buffer.kind in ("activation", "output"):
        return layer_name(buffer.origin or buffer.name)
    if buffer.kind == "variable":
        return buffer.name.partition(".")[2] or buffer.name
    return buffer.name
