"""Reads the C declarations in a generated header and says them in ctypes."""

from __future__ import annotations

import ctypes
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teeny_embed.deploy import toolchain
from teeny_embed.errors import ToolError

# pycparser brings no headers; the sizes are those of every 64-bit host.
_FAKE_HEADERS = {
    "stdint.h": "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; "
    "typedef long long int64_t; typedef unsigned char uint8_t; typedef unsigned short uint16_t; "
    "typedef unsigned int uint32_t; typedef unsigned long long uint64_t; "
    "typedef unsigned long uintptr_t;\n",
    "stddef.h": "typedef unsigned long size_t;\n#define NULL ((void *)0)\n#define offsetof(t, m) 0\n",
    "stdbool.h": "#define bool _Bool\n#define true 1\n#define false 0\n",
}

_EMPTY_MACROS = ("TE_ALIGN(bytes)=", "TE_RESTRICT=", "TE_FLASH=", "TE_STATIC_ASSERT(condition,name)=")

_SCALARS: dict[str, Any] = {
    "signed char": ctypes.c_int8, "unsigned char": ctypes.c_uint8, "short": ctypes.c_int16,
    "unsigned short": ctypes.c_uint16, "int": ctypes.c_int32, "unsigned int": ctypes.c_uint32,
    "long long": ctypes.c_int64, "unsigned long long": ctypes.c_uint64, "unsigned long": ctypes.c_uint64,
    "float": ctypes.c_float, "double": ctypes.c_double, "_Bool": ctypes.c_bool,
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """A parameter's scalar type as ctypes says it (None: void or a struct), passed itself or by address."""

    scalar: Any
    by_address: bool

    @property
    def ctype(self) -> Any:
        """For `argtypes` and `_fields_`."""
        return ctypes.c_void_p if self.by_address else self.scalar


@dataclass(frozen=True)
class Declarations:
    """Functions of a header by name, and its types."""

    functions: dict[str, tuple[Parameter, ...]]
    typedefs: dict[str, Any]

    def structure(self, name: str) -> type[ctypes.Structure]:
        """A struct type of scalars and pointers, by its typedef name. Raises ToolError."""
        if name not in self.typedefs:
            raise ToolError(f"the header declares no type {name}")
        members = self.typedefs[name].type.decls or ()
        fields = [(member.name, _parameter(member.type, self.typedefs).ctype) for member in members]
        return type(name, (ctypes.Structure,), {"_fields_": fields})


def read(header: Path) -> Declarations:
    """All function declarations of a header and of what it includes. Raises ToolError."""
    from pycparser import c_ast, c_parser

    try:
        tree = c_parser.CParser().parse(_preprocess(header), header.name)
    except Exception as error:  # pycparser's ParseError is a plain Exception
        raise ToolError(f"the header cannot be read: {error}", where=header.name) from None
    typedefs = {node.name: node.type for node in tree.ext if isinstance(node, c_ast.Typedef)}
    functions = {
        node.name: tuple(_parameter(parameter.type, typedefs) for parameter in node.type.args.params)
        for node in tree.ext
        if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl) and node.type.args
    }
    return Declarations(functions, typedefs)


def _preprocess(header: Path) -> str:
    with tempfile.TemporaryDirectory() as directory:
        for name, text in _FAKE_HEADERS.items():
            (Path(directory) / name).write_text(text, encoding="utf-8")
        macros = [f"-D{macro}" for macro in _EMPTY_MACROS]
        options = ["-E", "-P", "-std=c99", "-nostdinc", "-U__GNUC__", f"-I{directory}", f"-I{header.parent}"]
        return toolchain.run("gcc", [*options, *macros, header], where=header.name)


def _parameter(node: Any, typedefs: dict[str, Any]) -> Parameter:
    """Pointers and arrays are addresses (of addresses too); scalars are looked up through their typedefs."""
    from pycparser import c_ast

    by_address = isinstance(node, c_ast.PtrDecl | c_ast.ArrayDecl)
    while isinstance(node, c_ast.PtrDecl | c_ast.ArrayDecl | c_ast.TypeDecl):
        node = node.type
    name = " ".join(node.names) if isinstance(node, c_ast.IdentifierType) else None
    if name in typedefs:
        aliased = _parameter(typedefs[name], typedefs)
        return Parameter(aliased.scalar, by_address or aliased.by_address)
    return Parameter(_SCALARS.get(name or ""), by_address)
