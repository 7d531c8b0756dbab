"""Every converter, one module per family: importing this module fills the registry."""

from teeny_embed.frontends.torch import contraction, elementwise, movement, normalization, pooling, reduction
from teeny_embed.frontends.torch.registry import CONVERTERS

__all__ = ["CONVERTERS", "contraction", "elementwise", "movement", "normalization", "pooling", "reduction"]
