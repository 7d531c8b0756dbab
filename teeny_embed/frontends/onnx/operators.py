"""Every converter, one module per family: importing this module fills the registry."""

from teeny_embed.frontends.onnx import (
    attention,
    contraction,
    elementwise,
    generated,
    loss,
    movement,
    normalization,
    pooling,
    recurrent,
    reduction,
    resizing,
    scattering,
    selection,
)
from teeny_embed.frontends.onnx.registry import CONVERTERS

__all__ = [
    "CONVERTERS", "attention", "contraction", "elementwise", "generated", "loss", "movement",
    "normalization", "pooling", "recurrent", "reduction", "resizing", "scattering", "selection",
]  # fmt: skip
