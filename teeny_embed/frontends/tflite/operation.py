"""What a converter works with: one operator, its operands and the file's description of them."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from teeny_embed.errors import DataError
from teeny_embed.frontends.tflite.model import ABSENT, Array, Model, OperatorInfo, Subgraph, TensorInfo
from teeny_embed.frontends.tflite.reader import names_of, schema
from teeny_embed.graph.node import CONSTANT, Variable
from teeny_embed.graph.tensor import Tensor, constant


@dataclass(eq=False)
class Context:
    """What the operators of a model share. `variables` are resource variables and state, by name.

    `call(number, inputs)` converts a subgraph over given values and returns its outputs.
    """

    model: Model
    rounding: str
    call: Callable[[int, Sequence[Tensor]], list[Tensor]]
    variables: dict[str, Variable] = field(default_factory=dict)


def known_value(tensor: Tensor) -> Array | None:
    """That of a constant of the graph."""
    value: Array | None = tensor.node.attributes["value"] if tensor.node.op is CONSTANT else None
    return value


class Operation:
    """One operator of a subgraph while it is converted. Operands and results are numbered from 0."""

    def __init__(
        self, info: OperatorInfo, subgraph: Subgraph, values: MutableMapping[int, Tensor], context: Context
    ) -> None:
        self.info, self.subgraph, self.context = info, subgraph, context
        self._values = values

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def where(self) -> str:
        return self.info.where

    @property
    def rounding(self) -> str:
        """What the import equals: "tflite" (TFLite Micro) or "litert"."""
        return self.context.rounding

    @property
    def input_count(self) -> int:
        return len(self.info.inputs)

    def has_input(self, number: int) -> bool:
        """Whether the optional operand is given."""
        return number < len(self.info.inputs) and self.info.inputs[number] != ABSENT

    def input_info(self, number: int) -> TensorInfo:
        """Raises DataError for an operand that is left out."""
        if not self.has_input(number):
            raise DataError(f"{self.name}: operand {number} is missing", where=self.where)
        return self.subgraph.tensors[self.info.inputs[number]]

    def output_info(self, number: int = 0) -> TensorInfo:
        if number >= len(self.info.outputs) or self.info.outputs[number] == ABSENT:
            raise DataError(f"{self.name}: result {number} is missing", where=self.where)
        return self.subgraph.tensors[self.info.outputs[number]]

    def input(self, number: int) -> Tensor:
        """The operand as a Tensor; a constant one is made a constant of the graph."""
        info = self.input_info(number)
        if info.index not in self._values:
            if info.data is None:
                raise DataError(
                    f"{self.name}: tensor {info.name!r} is used before it is computed", self.where
                )
            self._values[info.index] = constant(info.data, info.data.dtype.name)
        return self._values[info.index]

    def known(self, number: int) -> Array | None:
        """The value of an operand if it is known now: stored in the file, or computed from what is."""
        info = self.input_info(number)
        if info.data is None and info.index in self._values:
            return known_value(self._values[info.index])
        return info.data

    def constant(self, number: int) -> Array:
        """The value of an operand that must be known now. Raises DataError."""
        value = self.known(number)
        if value is None:
            hint = "only models whose shapes are fixed can be compiled"
            what = f"{self.name}: operand {self.input_info(number).name!r} is no constant"
            raise DataError(what, self.where, hint)
        return value

    def option(self, name: str, default: Any = None) -> Any:
        """A field of the operator's options; `default` where the file has no options at all."""
        if default is not None and not self.info.options:
            return default
        if name not in self.info.options:
            raise DataError(f"{self.name}: option {name} is missing", where=self.where)
        return self.info.options[name]

    def enum_option(self, name: str, enumeration: str, default: str) -> str:
        """A field whose numbers have names in the schema."""
        if name not in self.info.options:
            return default
        number = self.info.options[name]
        names = names_of(getattr(schema(), enumeration))
        if number not in names:
            raise DataError(f"{self.name}: option {name} is {number}", where=self.where)
        return names[number]

    @property
    def activation(self) -> str:
        """The fused activation: NONE, RELU, RELU_N1_TO_1, RELU6, ..."""
        return self.enum_option("fused_activation_function", "ActivationFunctionType", "NONE")

    def error(self, what: str, hint: str | None = None) -> DataError:
        """What is wrong with this operator."""
        return DataError(f"{self.name}: {what}", where=self.where, hint=hint)
