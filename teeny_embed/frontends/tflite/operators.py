"""Every converter, one module per family. Importing this module fills the registry."""

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

__all__ = [
    "activation", "contraction", "elementwise", "movement", "normalization", "pooling", "recurrent",
    "reduction", "resizing", "signal", "space", "streaming", "variables",
]  # fmt: skip
