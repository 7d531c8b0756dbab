"""Typed graphs, scalar expressions, operators, steps, evaluation. Importing this fills the registry."""

from teeny_embed.graph import ops

__all__ = ["ops"]
