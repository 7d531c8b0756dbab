"""Small neural networks as allocation-free C99 that infers and trains, bit for bit like NumPy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from teeny_embed.api import Build as Build
    from teeny_embed.api import FitReport as FitReport
    from teeny_embed.api import Program as Program
    from teeny_embed.api import VerificationReport as VerificationReport
    from teeny_embed.api import build as build
    from teeny_embed.api import compare as compare
    from teeny_embed.api import fit as fit
    from teeny_embed.api import from_torch as from_torch
    from teeny_embed.api import load as load
    from teeny_embed.api import load_safetensors as load_safetensors
    from teeny_embed.api import open_runner as open_runner
    from teeny_embed.api import profile as profile
    from teeny_embed.api import save_safetensors as save_safetensors
    from teeny_embed.api import to_state_dict as to_state_dict
    from teeny_embed.api import verify as verify
    from teeny_embed.autograd.reverse import grad as grad
    from teeny_embed.autograd.reverse import value_and_grad as value_and_grad
    from teeny_embed.autograd.training import train_step as train_step
    from teeny_embed.errors import AttributeValueError as AttributeValueError
    from teeny_embed.errors import DataError as DataError
    from teeny_embed.errors import DeviceError as DeviceError
    from teeny_embed.errors import DTypeError as DTypeError
    from teeny_embed.errors import GraphError as GraphError
    from teeny_embed.errors import PlanError as PlanError
    from teeny_embed.errors import ShapeError as ShapeError
    from teeny_embed.errors import TargetError as TargetError
    from teeny_embed.errors import TeenyError as TeenyError
    from teeny_embed.errors import ToolError as ToolError
    from teeny_embed.errors import VerificationError as VerificationError
    from teeny_embed.graph.node import Variable as Variable
    from teeny_embed.graph.node import name_scope as name_scope
    from teeny_embed.graph.tensor import Tensor as Tensor
    from teeny_embed.graph.tensor import assign as assign
    from teeny_embed.graph.tensor import constant as constant
    from teeny_embed.graph.tensor import input as input
    from teeny_embed.graph.tensor import read as read
    from teeny_embed.graph.tensor import trace as trace

_MODULES = {
    "teeny_embed.api": (
        "Build", "FitReport", "Program", "VerificationReport", "build", "compare", "fit",
        "from_torch", "load", "load_safetensors", "open_runner", "profile", "save_safetensors",
        "to_state_dict", "verify",
    ),
    "teeny_embed.autograd.reverse": ("grad", "value_and_grad"),
    "teeny_embed.autograd.training": ("train_step",),
    "teeny_embed.errors": (
        "AttributeValueError", "DTypeError", "DataError", "DeviceError", "GraphError", "PlanError",
        "ShapeError", "TargetError", "TeenyError", "ToolError", "VerificationError",
    ),
    "teeny_embed.graph.node": ("Variable", "name_scope"),
    "teeny_embed.graph.tensor": ("Tensor", "assign", "constant", "input", "read", "trace"),
}  # fmt: skip
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used: importing the package stays cheap."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name) if name in _HOME else _operator(name)
    globals()[name] = value
    return value


def _operator(name: str) -> Any:
    """Every operator is a function of its name: `te.exp(x)`, `te.concat(a, b, axis=-1)`."""
    registry = import_module("teeny_embed.graph.op").REGISTRY
    if name not in registry or registry[name].leaf:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("teeny_embed.graph.tensor").operator(name)


def __dir__() -> list[str]:
    return __all__
