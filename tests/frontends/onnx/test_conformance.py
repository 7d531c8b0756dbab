"""ONNX's own backend tests."""

from __future__ import annotations

from collections import Counter

import pytest

from teeny_embed.api.conformance import Case, cases, run_case

PASSED = {"node": 1267, "pytorch-converted": 82, "pytorch-operator": 30, "simple": 7}
"""At least: docs/onnx.md tells what the others lack."""
SAMPLE = 37
"""Of the cases every so many-th in every run."""


@pytest.fixture(scope="module")
def all_cases() -> list[Case]:
    pytest.importorskip("onnx")
    return list(cases())


def test_a_sample_passes_in_numpy_and_c(all_cases: list[Case]) -> None:
    """What a case lacks is said; no case that can be imported computes anything else."""
    outcomes = [run_case(case) for case in all_cases[::SAMPLE]]
    assert sum(not o.reason for o in outcomes) >= 30
    assert [o for o in outcomes if o.reason in ("another result", "C and NumPy differ")] == []


@pytest.mark.full
def test_the_suite(all_cases: list[Case]) -> None:
    outcomes = [run_case(case) for case in all_cases]
    passed = Counter(o.kind for o in outcomes if not o.reason)
    assert {kind: passed[kind] >= count for kind, count in PASSED.items()} == dict.fromkeys(PASSED, True)
    assert [o for o in outcomes if o.reason == "C and NumPy differ"] == []
