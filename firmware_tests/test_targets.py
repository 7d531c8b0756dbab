"""Descriptions of CPUs and boards."""

from __future__ import annotations

import pytest

from teeny_embed import target as targets
from teeny_embed.errors import TargetError


@pytest.mark.parametrize("name", targets.names())
def test_every_target_is_well_formed(name):
    target = targets.load(name)
    assert target.name == name
    assert target.cpu in targets.names()
    assert (target.board is None) == (name == "host")
    assert target.has("fpu") == (target.float_registers > 0)


@pytest.mark.parametrize("name", targets.names())
def test_a_board_has_one_code_and_one_data_memory_at_least(name):
    board = targets.load(name).board
    if board is not None:
        assert board.memory("code").length > 0
        assert board.memory("data").length > board.stack_bytes
        assert {memory.role for memory in board.memories} - {"constants"} == {"code", "data"}
        assert board.memory("constants").role in ("constants", "code")


def test_only_boards_have_memories():
    assert targets.load("cortex-m4f").memories == ()
    assert [memory.length for memory in targets.load("microbit").memories] == [256 * 1024, 16 * 1024]


def test_a_cpu_runs_on_a_board_that_can_run_its_code():
    assert targets.load("cortex-m0").board == targets.load("cortex-m3").board
    for name in targets.names():
        board = targets.load(name).board
        if board is not None and name != "cortex-m0":
            assert board.cpu == targets.load(name).cpu


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(TargetError, match="no target 'cortex-m4'") as raised:
        targets.load("cortex-m4")
    assert raised.value.hint == "did you mean cortex-m4f?"
