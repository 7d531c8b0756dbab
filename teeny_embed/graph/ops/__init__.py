"""Every operator, one module per family. Importing this package fills the registry."""

from teeny_embed.graph.ops import (
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
    "contraction", "elementwise", "fixed_point", "movement", "quantized", "random", "reduction", "softmax",
    "window",
]  # fmt: skip
