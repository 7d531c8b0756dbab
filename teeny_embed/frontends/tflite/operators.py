"""Every converter, one module per family: importing this module fills the registry."""

from teeny_embed.frontends.tflite import (
    activation,
    contraction,
    elementwise,
    movement,
    normalization,
    pooling,
    recurrent,
    reduction,
    resizing,
    signal,
    space,
    streaming,
    variables,
)
from teeny_embed.frontends.tflite.registry import CONVERTERS

__all__ = [
    "CONVERTERS", "activation", "contraction", "elementwise", "movement", "normalization", "pooling",
    "recurrent", "reduction", "resizing", "signal", "space", "streaming", "variables",
]  # fmt: skip
