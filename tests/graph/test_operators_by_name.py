"""Operators under their own names: `te.exp(x)`."""

import numpy as np
import pytest

import teeny_embed as te


def test_an_operator_is_a_function_of_tensors_and_numbers() -> None:
    x = te.constant([0.0, 1.0])
    np.testing.assert_allclose(te.exp(x).numpy(), np.exp([0, 1]), rtol=1e-6)  # exp is within 1 ulp
    np.testing.assert_array_equal(te.concat(x, x, axis=0).numpy(), np.array([0, 1, 0, 1], "f4"))
    np.testing.assert_array_equal((x == 1.0).numpy(), [False, True])


def test_leaves_and_unknown_names_are_no_functions() -> None:
    for name in ("variable", "no_such_operator"):
        with pytest.raises(AttributeError):
            getattr(te, name)
