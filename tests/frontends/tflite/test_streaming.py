"""Operators with state: carried from call to call, the same from a reset on."""

from __future__ import annotations

import numpy as np
import pytest

from support.tflite import assert_equals_micro
from support.tflite_files import Op, T, model
from teeny_embed.errors import DataError
from teeny_embed.frontends.tflite import import_model


def buffered(cycles: int) -> bytes:
    x = T((1, 1, 1, 4), "int8", scale=0.1, zero_point=5)
    y = T((1, 3, 1, 4), "int8", scale=0.1, zero_point=5, is_variable=True)
    return model([x, y], [Op("CIRCULAR_BUFFER", [0], [1], {"cycles_max": cycles})], [0], [1])


def test_a_circular_buffer_keeps_the_last_inputs() -> None:
    samples = [(np.full((1, 1, 1, 4), i, np.int8),) for i in range(5)]
    assert_equals_micro(buffered(1), samples)


def test_a_buffer_that_makes_the_net_wait_is_refused() -> None:
    with pytest.raises(DataError, match="cycles_max is 2"):
        import_model(buffered(2), "net.tflite")


def test_custom_options_that_are_no_map_are_no_options() -> None:
    x, y = T((1, 1, 1, 4), "int8", scale=0.1), T((1, 3, 1, 4), "int8", scale=0.1)
    with pytest.raises(DataError, match="option cycles_max is missing"):
        import_model(model([x, y], [Op("CIRCULAR_BUFFER", [0], [1])], [0], [1]), "net.tflite")
