"""The reverse pass: what is summed, what is pruned, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from teeny_embed.autograd.reverse import grad, value_and_grad
from teeny_embed.errors import ShapeError
from teeny_embed.graph.node import Variable, topological
from teeny_embed.graph.tensor import Tensor, call, constant, recording


def values(*shape: int) -> Tensor:
    return constant(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))


def used_ops(*tensors: Tensor) -> set[str]:
    return {n.op.name for n in topological(tuple(t.node for t in tensors))}


@pytest.mark.parametrize("shape", [(4,), (1, 4), (3, 1), (1, 1), ()])
def test_broadcasting_is_undone_by_sums_over_expanded_axes(shape: tuple[int, ...]) -> None:
    x, wide = values(*shape), values(3, 4)
    (g,) = grad((x * wide).sum(), [x])
    assert g.shape == shape
    expected = np.broadcast_to(np.float32(0), (3, 4)) + wide.numpy()
    lead = 2 - len(shape)
    axes = tuple(a for a in range(2) if a < lead or shape[a - lead] == 1)
    np.testing.assert_allclose(g.numpy(), expected.sum(axes).reshape(shape), rtol=1e-5)


def test_paths_to_one_operand_are_summed() -> None:
    x = constant(3.0)
    (g,) = grad(x * x + 2.0 * x, [x])
    assert float(g) == 8.0


def test_branches_without_a_target_are_pruned() -> None:
    x, other = values(2, 3), values(2, 3)
    (g,) = grad((x + call("exp", other)).sum(), [x])
    assert "exp" not in used_ops(g)


def test_input_gradient_of_the_first_layer_is_not_computed() -> None:
    image, weight = values(2, 3), values(4, 3)
    (g,) = grad(call("conv", image, weight).sum(), [weight])
    assert "conv_weight_grad" in used_ops(g) and "conv_input_grad" not in used_ops(g)


def test_target_that_the_output_does_not_depend_on_gets_zeros() -> None:
    x, other = values(2, 3), values(4)
    _, g = grad(x.sum(), [x, other])
    assert g.shape == (4,) and not g.numpy().any()


def test_integers_and_comparisons_carry_no_gradient() -> None:
    x = values(2, 3)
    cut = (x > 0.0).astype("float32")
    (g,) = grad((x.astype("int32").astype("float32") + cut).sum(), [x])
    assert not g.numpy().any()


def test_output_of_higher_rank_needs_a_seed() -> None:
    x = values(2, 3)
    with pytest.raises(ShapeError, match="rank 0"):
        grad(x * 2.0, [x])
    (g,) = grad(x * 2.0, [x], values(2, 3))
    np.testing.assert_array_equal(g.numpy(), 2 * values(2, 3).numpy())


def test_value_and_grad_of_a_variable() -> None:
    weight = Variable("weight", np.float32([1, 2, 3]))

    def loss(x: Tensor) -> Tensor:
        from teeny_embed.graph.tensor import read

        return (read(weight) * read(weight) * x).sum()

    with recording():
        value, (g,) = value_and_grad(loss, [weight])(constant(2.0))
    assert float(value) == 28.0
    np.testing.assert_array_equal(g.numpy(), [4, 8, 12])
