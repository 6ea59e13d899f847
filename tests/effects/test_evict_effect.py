"""Evictions by a daemon of its own: from outside, as an operator sees them."""

from __future__ import annotations

import os

import pytest

from bench.effects import memory_evict, satisfaction
from bench.figures import NotMeasuredError

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(400),
]


def test_a_leak_goes_and_ls_stays() -> None:
    """And the small one stays, where others do not need memory at the same time."""
    if os.geteuid():
        pytest.skip("needs root")
    try:
        seen = memory_evict.measure()
    except NotMeasuredError as error:
        pytest.skip(str(error))
    assert seen.victims[0] == "leak", seen.ways
    assert "evicted" in seen.ways[0]
    assert seen.ls_kept
    assert seen.disturbed or seen.victims == ("leak",)


@pytest.mark.parametrize("case", satisfaction.CASES, ids=lambda case: case.text)
def test_the_right_ones_go_when_best_effort_starves(case: satisfaction.Case) -> None:
    """In the right order, and nobody after them."""
    if os.geteuid():
        pytest.skip("needs root")
    assert satisfaction.measure(case, rounds_after=2).victims == case.expected()
