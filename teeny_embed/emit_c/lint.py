"""Checks the promises of generated C by parsing it: no heap, no recursion, bounded loops, no variables.

What is read is the portable branch of each `#if` on compiler or core, see preprocess.py.

    rule        allowed
    include     "te_abi.h", "NAME.h", "NAME_*.h", <stdint.h>, <stddef.h>, <float.h>
    heap        no malloc, calloc, realloc, free or alloca
    call        functions that the module defines, and callbacks of te_abi.h that are parameters
    recursion   the call graph has no cycle
    vla         array sizes are constant expressions
    mutable     objects at file scope and static locals are const
    cast        a pointer type is cast to only for bytes, NULL, or in NAME_init from void * to a type of NAME
    loop        for (int32_t i = A; i < B [&& ...]; i += C), or descending; the body changes neither i nor B
    goto        no goto
    syntax      pycparser can read the file
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pycparser import c_ast, c_parser

from teeny_embed.emit_c.preprocess import preprocess, without_tables

Node = Any
"""A pycparser node: the library has no types."""
Problem = tuple[Node, str]
"""Where, and what is wrong there."""

HEAP = frozenset({"malloc", "calloc", "realloc", "free", "alloca"})
CALLBACKS = frozenset({"te_read_t", "te_write_t"})
BYTES = frozenset({"char", "unsigned char", "signed char", "uint8_t", "int8_t"})
COUNTERS = frozenset({"int32_t", "uint32_t"})
LOADS = (c_ast.ArrayRef, c_ast.StructRef, c_ast.FuncCall)


@dataclass(frozen=True, order=True)
class Finding:
    """One broken rule. `line` counts from 1 in `file`, the name of a file without its folder."""

    file: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.message}"


@dataclass(frozen=True)
class Module:
    """All C files of one model: what a rule needs to know beside the file at hand."""

    name: str
    functions: dict[str, Node]
    typedefs: dict[str, Node]


def lint(paths: Sequence[Path], name: str) -> list[Finding]:
    """The rules broken by the C files (and headers) of the model `name`, sorted by file and line.

    Headers are found beside the file that includes them. Needs gcc's preprocessor: ToolError.
    """
    findings: set[Finding] = set()
    units = []
    for path in paths:
        foreign = set(include_findings(path, name))
        findings |= foreign
        try:
            units += [] if foreign else [parse(path)]  # what a foreign header declares is unknown
        except c_parser.ParseError as error:
            findings.add(syntax_finding(path, str(error)))
    module = collect(units, name)
    for unit in units:
        for rule, check in RULES.items():
            for node, message in check(unit, module):
                findings.add(Finding(Path(node.coord.file).name, node.coord.line, rule, message))
    return sorted(findings)


# ---- Reading ------------------------------------------------------------------------------------------


def parse(path: Path) -> Node:
    return c_parser.CParser().parse(without_tables(preprocess(path)), str(path))


def syntax_finding(path: Path, message: str) -> Finding:
    found = re.match(r"(.*?):(\d+)(?::\d+)?: (.*)", message, re.S)
    if found is None:
        return Finding(path.name, 1, "syntax", message)
    return Finding(Path(found[1]).name, int(found[2]), "syntax", found[3])


def include_findings(path: Path, name: str) -> Iterator[Finding]:
    """Includes are read from the text itself: the preprocessor's output has none."""
    allowed = {
        '"te_abi.h"',
        f'"{name}.h"',
        f'"{name}_store.h"',
        f'"{name}_selftest.h"',
        "<stdint.h>",
        "<stddef.h>",
        "<float.h>",
    }
    if path.name == "te_abi.h":
        allowed.add("TE_CONFIG_H")  # the user's own file, named on purpose
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        found = re.match(r"\s*#\s*include\s*(\S+)", line)
        if found and found[1] not in allowed:
            yield Finding(path.name, number, "include", f"{found[1]} is not allowed")


def collect(units: Sequence[Node], name: str) -> Module:
    items = [item for unit in units for item in unit.ext]
    functions = {item.decl.name: item for item in items if isinstance(item, c_ast.FuncDef)}
    typedefs = {item.name: item.type for item in items if isinstance(item, c_ast.Typedef)}
    return Module(name, functions, typedefs)


# ---- Looking ------------------------------------------------------------------------------------------


def walk(node: Node) -> Iterator[Node]:
    """`node` and all below it, in the order of the text."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(child for _, child in reversed(current.children()))


def find(node: Node, *kinds: type) -> Iterator[Node]:
    return (each for each in walk(node) if isinstance(each, kinds))


def functions_of(unit: Node) -> Iterator[Node]:
    return (item for item in unit.ext if isinstance(item, c_ast.FuncDef))


def calls(node: Node) -> Iterator[Node]:
    return find(node, c_ast.FuncCall)


def called_name(call: Node) -> str:
    """The name in front of the parentheses; empty where an expression is called."""
    return call.name.name if isinstance(call.name, c_ast.ID) else ""


def type_name(kind: Node) -> str:
    """The name of the type at the end of declarators; empty for a struct or union written out."""
    while not isinstance(kind, c_ast.IdentifierType):
        if not hasattr(kind, "type"):
            return ""
        kind = kind.type
    return " ".join(kind.names)


def parameter_types(function: Node) -> dict[str, Node]:
    """Declared type by parameter name."""
    arguments = function.decl.type.args
    declared = arguments.params if arguments else []
    return {each.name: each.type for each in declared if isinstance(each, c_ast.Decl)}


def is_pointer(kind: Node, module: Module) -> bool:
    if isinstance(kind, c_ast.TypeDecl) and type_name(kind) in module.typedefs:
        return is_pointer(module.typedefs[type_name(kind)], module)
    return isinstance(kind, c_ast.PtrDecl)


def is_const(kind: Node) -> bool:
    """Whether the object itself (the elements of an array, the pointer and not its target) is const."""
    while isinstance(kind, c_ast.ArrayDecl):
        kind = kind.type
    return isinstance(kind, c_ast.FuncDecl) or "const" in kind.quals


def changed_names(node: Node) -> set[str]:
    """Variables that are assigned, stepped or have their address taken in `node`."""
    targets = [each.lvalue for each in find(node, c_ast.Assignment)]
    unary = find(node, c_ast.UnaryOp)
    targets += [each.expr for each in unary if each.op in ("++", "--", "p++", "p--", "&")]
    return {each.name for each in targets if isinstance(each, c_ast.ID)}


def names(node: Node) -> set[str]:
    return {each.name for each in find(node, c_ast.ID)}


def constant(node: Node) -> int | None:
    """The value of an expression of integer literals with + - * /, else None."""
    if isinstance(node, c_ast.Constant):
        return int(node.value.rstrip("uUlL"), 0) if "int" in node.type else None
    if not isinstance(node, c_ast.BinaryOp):
        return None
    left, right = constant(node.left), constant(node.right)
    if left is None or right is None or (node.op == "/" and right == 0):
        return None
    values = {"+": left + right, "-": left - right, "*": left * right, "/": left // (right or 1)}
    return values.get(node.op)


# ---- Rules --------------------------------------------------------------------------------------------


def check_heap(unit: Node, module: Module) -> Iterator[Problem]:
    for call in calls(unit):
        if called_name(call) in HEAP:
            yield call, f"{called_name(call)} allocates"


def check_calls(unit: Node, module: Module) -> Iterator[Problem]:
    known = module.functions.keys() | HEAP
    for function in functions_of(unit):
        callbacks = {n for n, kind in parameter_types(function).items() if type_name(kind) in CALLBACKS}
        for call in calls(function):
            if called_name(call) not in known | callbacks:
                yield call, f"{called_name(call) or 'an expression'} is called but not defined in the module"


def check_recursion(unit: Node, module: Module) -> Iterator[Problem]:
    for function in functions_of(unit):
        if function.decl.name in reachable(function.decl.name, module):
            yield function.decl, f"{function.decl.name} can reach itself"


def reachable(name: str, module: Module) -> set[str]:
    """Functions that a call of `name` may run, itself only if it comes back to it."""
    seen: set[str] = set()
    pending = [name]
    while pending:
        callees = {called_name(call) for call in calls(module.functions[pending.pop()])}
        fresh = (callees & module.functions.keys()) - seen
        seen |= fresh
        pending.extend(fresh)
    return seen


def check_vla(unit: Node, module: Module) -> Iterator[Problem]:
    enumerators = {each.name for each in find(unit, c_ast.Enumerator)}
    for array in find(unit, c_ast.ArrayDecl):
        if array.dim is not None and names(array.dim) - enumerators:
            yield array, "the size of an array is not constant"


def check_mutable(unit: Node, module: Module) -> Iterator[Problem]:
    objects = [item for item in unit.ext if isinstance(item, c_ast.Decl) and item.name]
    for function in functions_of(unit):
        objects += [each for each in find(function.body, c_ast.Decl) if "static" in each.storage]
    for item in objects:
        if not is_const(item.type):
            yield item, f"{item.name} is a variable that outlives its function"


def check_casts(unit: Node, module: Module) -> Iterator[Problem]:
    for item in unit.ext:
        for cast in find(item, c_ast.Cast):
            if is_pointer(cast.to_type.type, module) and not is_harmless(cast, item, module):
                yield cast, f"a pointer is cast to {type_name(cast.to_type.type) or 'another type'} *"


def is_harmless(cast: Node, item: Node, module: Module) -> bool:
    target = type_name(cast.to_type.type)
    if target in BYTES or (target == "void" and constant(cast.expr) == 0):
        return True  # any object may be accessed as bytes; NULL
    if not isinstance(item, c_ast.FuncDef) or item.decl.name != f"{module.name}_init":
        return False
    source = parameter_types(item).get(getattr(cast.expr, "name", ""))
    return type_name(source) == "void" and target.startswith(f"{module.name}_")


def check_loops(unit: Node, module: Module) -> Iterator[Problem]:
    for loop in find(unit, c_ast.While, c_ast.DoWhile):
        yield loop, "while and do loops have no bound that can be read off"
    for loop in find(unit, c_ast.For):
        reason = unbounded(loop)
        if reason:
            yield loop, reason


def unbounded(loop: Node) -> str:
    """Why a for loop is not seen to end; empty if it is."""
    counter = counter_of(loop)
    if counter is None:
        return "a loop declares one counter, int32_t or uint32_t, with its first value"
    step, bound = step_of(loop.next, counter.name), first_condition(loop)
    if not is_comparison(bound, counter.name, step):
        return f"the condition is not {counter.name} < B with a constant step upwards, or > downwards"
    if any(find(bound.right, *LOADS)):
        return "the bound is read again each time: keep it in a const variable"
    if step < 0 and type_name(counter.type) != "int32_t":
        return "an unsigned counter that descends is never negative"
    changed = changed_names(loop.stmt) & ({counter.name} | names(bound.right))
    return f"the body changes {', '.join(sorted(changed))}" if changed else ""


def counter_of(loop: Node) -> Node | None:
    """The declaration of the only variable that the loop declares."""
    declared = loop.init.decls if isinstance(loop.init, c_ast.DeclList) else []
    if len(declared) != 1 or declared[0].init is None or type_name(declared[0].type) not in COUNTERS:
        return None
    return declared[0]


def step_of(node: Node, counter: str) -> int:
    """What a loop adds to its counter each time; 0 where that cannot be read off."""
    if isinstance(node, c_ast.UnaryOp) and getattr(node.expr, "name", None) == counter:
        return {"++": 1, "p++": 1, "--": -1, "p--": -1}.get(node.op, 0)
    if isinstance(node, c_ast.Assignment) and getattr(node.lvalue, "name", None) == counter:
        return {"+=": 1, "-=": -1}.get(node.op, 0) * (constant(node.rvalue) or 0)
    return 0


def first_condition(loop: Node) -> Node:
    """Whatever `&&` adds to a condition only ends the loop sooner."""
    condition = loop.cond
    while isinstance(condition, c_ast.BinaryOp) and condition.op == "&&":
        condition = condition.left
    return condition


def is_comparison(node: Node, counter: str, step: int) -> bool:
    """Whether `node` compares the counter with a bound that lies in the direction of `step`."""
    if not isinstance(node, c_ast.BinaryOp) or getattr(node.left, "name", None) != counter:
        return False
    towards = ("<", "<=") if step > 0 else (">", ">=")
    return step != 0 and node.op in towards and counter not in names(node.right)


def check_goto(unit: Node, module: Module) -> Iterator[Problem]:
    for jump in find(unit, c_ast.Goto):
        yield jump, f"goto {jump.name}"


RULES: dict[str, Callable[[Node, Module], Iterator[Problem]]] = {
    "heap": check_heap,
    "call": check_calls,
    "recursion": check_recursion,
    "vla": check_vla,
    "mutable": check_mutable,
    "cast": check_casts,
    "loop": check_loops,
    "goto": check_goto,
}
