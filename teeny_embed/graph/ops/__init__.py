"""Every operator, one module per family. Importing this package fills the registry."""

from teeny_embed.graph.ops import (
    activation,
    contraction,
    elementwise,
    fixed_point,
    movement,
    quantized,
    random,
    reduction,
    softmax,
    window,
)

__all__ = [
    "activation", "contraction", "elementwise", "fixed_point", "movement", "quantized", "random",
    "reduction", "softmax", "window",
]  # fmt: skip
