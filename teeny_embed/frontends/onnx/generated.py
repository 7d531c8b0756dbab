"""What is made of numbers that are known when the model is read: ranges, windows, filter banks."""

from __future__ import annotations

from typing import NoReturn

from teeny_embed.frontends.onnx.model import Operation
from teeny_embed.frontends.onnx.registry import converter


@converter(
    "BlackmanWindow", "ConstantOfShape", "HammingWindow", "HannWindow", "MelWeightMatrix", "Range"
)  # fmt: skip
def of_known_numbers(op: Operation) -> NoReturn:
    """It would be computed by now if all its operands were known: says which one is not."""
    for number in range(op.count):
        op.known(number)
    raise op.error("its operands give no tensor")
