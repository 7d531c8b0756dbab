"""Graph to steps. Views become index maps, everything else one step per node; no bit changes from here on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from teeny_embed.graph import evaluate
from teeny_embed.graph import scalar as s
from teeny_embed.graph.affine import Affine, NotAffineError, dim, fixed
from teeny_embed.graph.node import CONSTANT, VARIABLE, Array, Graph, Node, Variable
from teeny_embed.graph.rewrite import expand_composites
from teeny_embed.graph.simplify import normalize
from teeny_embed.graph.step import (
    Access,
    Buffer,
    BufferCheck,
    Form,
    Operand,
    Output,
    Read,
    Schedule,
    Source,
    Step,
    whole,
)
from teeny_embed.graph.types import TensorType
from teeny_embed.graph.versions import separate_versions
from teeny_embed.graph.widen import widen

VariableBuffers = dict[Variable, Buffer]


def lower(graph: Graph, name: str, variables: VariableBuffers | None = None) -> Schedule:
    """One step per node that computes. `variables` holds the buffers of variables shared by entry points."""
    return _Lowering(variables if variables is not None else {}).run(expand_composites(graph), name)


class _Lowering:
    def __init__(self, variables: VariableBuffers) -> None:
        self.variables = variables
        self.access: dict[Node, Access] = {}
        self.steps: list[Step] = []
        self.versions: set[Buffer] = set()

    def run(self, graph: Graph, name: str) -> Schedule:
        for input_name, node in graph.inputs:
            buffer = Buffer(input_name, node.type, "input")
            buffer.quantization = graph.quantizations.get(input_name)
            self.access[node] = whole(buffer)
        for node in graph.nodes():
            if node not in self.access:
                self.access[node] = self._node(node)
        outputs = tuple(self._output(n, node) for n, node in graph.outputs)
        for buffer in outputs:
            buffer.quantization = graph.quantizations.get(buffer.name)
        assigns = tuple((self._variable(v), self._version(v, node)) for v, node in graph.assigns)
        checks = tuple(
            BufferCheck(c.kind, self._whole_buffer(c.node, c.node.name), c.bound) for c in graph.checks
        )
        inputs = tuple(self.access[node].buffer for _, node in graph.inputs)
        return separate_versions(Schedule(name, inputs, outputs, tuple(self.steps), assigns, checks))

    def _variable(self, variable: Variable) -> Buffer:
        if variable not in self.variables:
            buffer = Buffer(variable.name, variable.type, "variable", variable=variable)
            self.variables[variable] = buffer
        return self.variables[variable]

    def _node(self, node: Node) -> Access:
        if node.op is VARIABLE:
            return whole(self._variable(node.attributes["variable"]))
        if node.op is CONSTANT:
            return whole(Buffer(node.name, node.type, "constant", value=node.attributes["value"]))
        operands = [self.access[i] for i in node.inputs]
        if node.op.view is not None:
            viewed = _view(node, operands[0])
            if viewed is not None:
                return viewed
            copied = self._emit(node, _identity_form(node.inputs[0]), operands)
            return _reshaped(copied, node.type.shape) or copied
        return self._emit(node, _form(node), operands)

    def _emit(self, node: Node, form: Form, operands: Sequence[Access]) -> Access:
        buffer = Buffer(node.name, node.type, "activation")
        seen = [self._readable(node.inputs[n], a, n, form) for n, a in enumerate(operands)]
        self.steps.append(_step(node, form, seen, buffer))
        return whole(buffer)

    def _readable(self, operand: Node, access: Access, number: int, form: Form) -> Access:
        """The operand's access, or that of a copy where the form cannot look through it."""
        reads = [r for r in form.reads.values() if r.number == number]
        if all(_sees_through(access, r, operand.type.shape, form) for r in reads):
            return access
        self.access[operand] = whole(self._copy(operand, operand.name))
        return self.access[operand]

    def _whole_buffer(self, node: Node, name: str) -> Buffer:
        """The buffer that holds exactly this value, copied where the value is a part or a leaf's."""
        access = self.access[node]
        if (
            access.contiguous
            and access.buffer.type.count == node.type.count
            and access.buffer.kind != "variable"
        ):
            return access.buffer
        return self._copy(node, name)

    def _version(self, variable: Variable, node: Node) -> Buffer:
        """The buffer that becomes the variable: one of its own, which nobody else wants to keep."""
        buffer = self._whole_buffer(node, variable.name)
        if buffer.kind != "activation" or buffer in self.versions:
            buffer = self._copy(node, variable.name)
        self.versions.add(buffer)
        return buffer

    def _copy(self, node: Node, name: str) -> Buffer:
        buffer = Buffer(name, node.type, "activation")
        self.steps.append(_step(node, _identity_form(node), [self.access[node]], buffer, (node.type,)))
        return buffer

    def _output(self, name: str, node: Node) -> Buffer:
        """A buffer of kind output. What another use holds under its own name is copied."""
        buffer = self._whole_buffer(node, name)
        if buffer.kind != "activation":
            buffer = self._copy(node, name)
        buffer.kind, buffer.name, buffer.origin = "output", name, buffer.name
        if buffer.type.shape != node.type.shape:
            buffer.type = node.type
        return buffer


def _dims(node: Node) -> dict[str, int]:
    return {f"d{i}": e for i, e in enumerate(node.type.shape)}


def _point(node: Node) -> tuple[Affine, ...]:
    return tuple(dim(f"d{i}") for i in range(node.type.rank))


def _identity_form(node: Node) -> Form:
    return Form(_dims(node), s.var("x", node.type.dtype), {"x": Operand(0, _point(node))})


def _form(node: Node) -> Form:
    """What the node computes, over dims d0, d1, ... if it is a scalar expression."""
    types = [i.type for i in node.inputs]
    if node.op.form is not None:
        return node.op.form(*types, **node.attributes)
    assert node.op.scalar is not None
    names = [f"x{i}" for i in range(len(types))]
    operands = [s.var(n, t.dtype) for n, t in zip(names, types, strict=True)]
    reads = {}
    for number, (n, t) in enumerate(zip(names, types, strict=True)):
        lead = node.type.rank - t.rank
        index = tuple(dim(f"d{i + lead}") if e > 1 else fixed(0) for i, e in enumerate(t.shape))
        reads[n] = Operand(number, index)
    return Form(_dims(node), node.op.scalar(*operands, **node.attributes), reads)


def _view(node: Node, operand: Access) -> Access | None:
    """The operand's access seen through a view; None where the maps do not compose."""
    assert node.op.view is not None
    source = node.inputs[0].type
    index = node.op.view(source, node.type, **node.attributes)
    if index is None:
        return _reshaped(operand, node.type.shape, source.shape)
    mapping = {str(i): a for i, a in enumerate(index)}
    if not operand.shape and node.type.rank:  # one number seen as many: no longer the whole buffer in order
        return Access(operand.buffer, (1,), (fixed(0),))
    try:
        return Access(operand.buffer, operand.shape, tuple(a.substitute(mapping) for a in operand.index))
    except NotAffineError:
        return None


def _reshaped(access: Access, shape: tuple[int, ...], source: tuple[int, ...] | None = None) -> Access | None:
    """The access as another shape: any shape of a whole buffer, added or removed units of a part."""
    if access.contiguous:
        return whole(access.buffer, shape)
    if source is None or [e for e in source if e != 1] != [e for e in shape if e != 1]:
        return None
    kept = [str(i) for i, e in enumerate(shape) if e != 1]
    axes = [str(i) for i, e in enumerate(source) if e != 1]
    mapping = {str(i): fixed(0) for i, e in enumerate(source) if e == 1}
    mapping |= {old: dim(new) for old, new in zip(axes, kept, strict=True)}
    return Access(access.buffer, access.shape, tuple(a.substitute(mapping) for a in access.index))


def _step(
    node: Node,
    form: Form,
    operands: Sequence[Access],
    buffer: Buffer,
    types: Sequence[TensorType] | None = None,
) -> Step:
    """The step of a form over operands that are parts of buffers, of the types of the node's inputs."""
    types = types or [i.type for i in node.inputs]
    reads, replaced = {}, {}
    for name, operand in form.reads.items():
        access, dtype = operands[operand.number], types[operand.number].dtype
        value = access.buffer.value
        if access.buffer.kind == "constant" and value is not None and value.size == 1:
            replaced[s.var(name, dtype)] = s.const(value.item(), dtype)
        else:
            reads[name] = _read(access, operand, types[operand.number].shape)
    source = Source(node.op.name, node.name, node.where)
    step = Step(
        dims=tuple(form.dims.items()),
        levels=tuple(tuple(level.items()) for level in form.levels),
        reads=reads,
        folds=tuple(form.folds),
        outputs=(Output(buffer, form.value),),
        sources=(source,),
    )
    return normalize(step, replaced)


def _sees_through(access: Access, operand: Operand, shape: tuple[int, ...], form: Form) -> bool:
    """Whether the operand's index composes with the access.

    Not so for a gather, a regrouping of axes, or an index that leaves the operand: what lies beyond the edge
    of a part of a buffer is the buffer's next element, not nothing.
    """
    if access.contiguous:
        return True
    sizes = dict(form.dims)
    for level in form.levels:
        sizes |= level
    extents = shape if operand.shape is None else operand.shape
    index = [i for i in operand.index if isinstance(i, Affine)]
    inside = len(index) == len(extents) and all(
        i.in_range(e, sizes) for i, e in zip(index, extents, strict=True)
    )
    if not inside:
        return False
    try:
        return _read(access, operand, shape) is not None
    except NotAffineError:
        return False


def _read(access: Access, operand: Operand, shape: tuple[int, ...]) -> Read:
    """The operand's index seen through the access. Raises NotAffineError where the two do not compose."""
    if operand.shape is not None and operand.shape != shape:
        reshaped = _reshaped(access, operand.shape, shape)
        if reshaped is None:
            raise NotAffineError
        access = reshaped
    if access.contiguous:
        return Read(access.buffer, access.shape, operand.index, operand.fill)
    mapping = {str(i): a for i, a in enumerate(operand.index) if isinstance(a, Affine)}
    index = tuple(a.substitute(mapping) for a in access.index)
    return Read(access.buffer, access.shape, index, operand.fill)


# ---- Evaluating graphs ---------------------------------------------------------------------------------


def evaluate_graph(graph: Graph, feed: Mapping[str, Any]) -> tuple[dict[str, Array], dict[Variable, Array]]:
    """Outputs by name and new values of variables; nothing is assigned. `feed` holds the inputs by name."""
    return Evaluator(graph)(feed)


class Evaluator:
    """A graph ready to run in NumPy, in the stated order. Lowering happens once.

    With `float64` the floats are float64, and functions such as exp are NumPy's own: for checks of gradients.
    """

    def __init__(self, graph: Graph, float64: bool = False) -> None:
        self.graph = graph
        self.variables: VariableBuffers = {}
        schedule = lower(graph, "evaluate", self.variables)
        self.schedule = widen(schedule) if float64 else schedule

    def __call__(self, feed: Mapping[str, Any]) -> tuple[dict[str, Array], dict[Variable, Array]]:
        values = {v: v.value for v in self.variables}
        return self.run(feed, values)

    def run(
        self, feed: Mapping[str, Any], values: Mapping[Variable, Array]
    ) -> tuple[dict[str, Array], dict[Variable, Array]]:
        """As a call, with the variables' values given."""
        env = environment(self.schedule, feed, values)
        evaluate.run(self.schedule, env)
        outputs = {b.name: env[b] for b in self.schedule.outputs}
        assigned = {b.variable: env[b] for b, _ in self.schedule.assigns if b.variable is not None}
        return outputs, assigned


def environment(
    schedule: Schedule, feed: Mapping[str, Any], values: Mapping[Variable, Array]
) -> evaluate.Environment:
    """Values of inputs, constants and variables."""
    env: evaluate.Environment = {}
    for buffer in schedule.buffers():
        if buffer.kind == "input":
            env[buffer] = np.ascontiguousarray(feed[buffer.name], buffer.type.dtype).reshape(
                buffer.type.shape
            )
        elif buffer.value is not None:
            env[buffer] = np.ascontiguousarray(buffer.value).reshape(buffer.type.shape)
        elif buffer.variable is not None:
            env[buffer] = values[buffer.variable].astype(buffer.type.dtype)
    return env


def evaluate_nodes(nodes: tuple[Node, ...]) -> list[Array]:
    """The values of nodes that depend on no input."""
    graph = Graph((), tuple((str(i), n) for i, n in enumerate(nodes)))
    outputs, _ = evaluate_graph(graph, {})
    return [outputs[str(i)] for i in range(len(nodes))]
