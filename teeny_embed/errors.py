"""Errors that a user of teeny_embed sees: what went wrong, where, and what to do about it."""

from __future__ import annotations


class TeenyError(Exception):
    """Base of every error that teeny_embed raises on purpose.

    `what` is one sentence; `where` a layer path, file or source line; `hint` says what to do.
    The command line prints `str(error)` and exits with 2.
    """

    def __init__(self, what: str, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = self.what
        if self.where:
            text += f"\n  at {self.where}"
        if self.hint:
            text += f"\n  hint: {self.hint}"
        return text


class ShapeError(TeenyError):
    """Shapes do not fit together."""


class DTypeError(TeenyError):
    """An element type does not fit the operation."""


class AttributeValueError(TeenyError):
    """An operator attribute is missing, unknown or out of range."""


class GraphError(TeenyError):
    """A graph breaks one of its rules."""


class PlanError(TeenyError):
    """A memory plan breaks a rule, or does not fit the target."""


class TargetError(TeenyError):
    """A target or board is unknown, or its description is wrong."""


class ToolError(TeenyError):
    """A compiler, emulator or other program is missing or failed."""


class DeviceError(TeenyError):
    """A device did not answer, or answered something unexpected."""


class DataError(TeenyError):
    """Data given by the user (vectors, parameters, data sets) cannot be used."""


class VerificationError(TeenyError):
    """The C computes other bits than NumPy."""
