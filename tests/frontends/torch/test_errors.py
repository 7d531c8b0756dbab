"""What `from_torch` refuses, and what it says."""

from __future__ import annotations

import re
from typing import Any

import pytest

import teeny_embed as te
from teeny_embed import nn

pytestmark = pytest.mark.full


@pytest.fixture(scope="session")
def odd() -> Any:
    """The module of odd nets, which needs torch."""
    return pytest.importorskip("support.torch_odd")


def test_operators_without_a_converter_are_listed_all_at_once(odd: Any) -> None:
    with pytest.raises(te.DataError) as caught:
        te.from_torch(odd.Unsupported(), odd.torch.ones(2, 3))
    lines = str(caught.value)
    assert re.search(r"aten\.median \(inner, torch_odd\.py:\d+\)", lines)
    assert re.search(r"aten\.cumprod \(the module itself, torch_odd\.py:\d+\)", lines)


def test_a_branch_on_values_is_refused(odd: Any) -> None:
    with pytest.raises(te.DataError, match=r"torch\.export refuses Branching"):
        te.from_torch(odd.Branching(), odd.torch.ones(2))


def test_float64_is_refused_by_name(odd: Any) -> None:
    with pytest.raises(te.DataError, match=r"'weight' is float64"):
        te.from_torch(odd.torch.nn.Linear(2, 2).double(), odd.torch.ones(1, 2))


def test_what_is_no_module_is_refused(odd: Any) -> None:
    with pytest.raises(te.DataError, match=r"a function is no torch\.nn\.Module"):
        te.from_torch(lambda x: x, odd.torch.ones(1))


def test_a_program_without_a_net_of_torch_has_nothing_for_torch(odd: Any) -> None:
    program = te.Program("own", infer=te.trace(nn.Linear(2, 2), te.input("x", (1, 2))))
    with pytest.raises(te.DataError, match="holds no nets of torch"):
        te.to_state_dict(program)
