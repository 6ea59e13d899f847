"""The pure part of the alarms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.snapshot import WakeKind
from koordlet.state.pressure import AlarmOptions, Finding, Sample, detect, fit_reads

OPTIONS = AlarmOptions(stall_ratio=0.15, throttled_periods=1)


@pytest.mark.parametrize(
    ("previous", "current", "expected"),
    [
        (Sample(0, 0), Sample(0.1, 15_000), [Finding(WakeKind.PSI, 0.15)]),
        (Sample(0, 0), Sample(0.1, 14_000), []),
        (Sample(0, 5_000_000), Sample(0.1, 5_050_000), [Finding(WakeKind.PSI, 0.5)]),
        (Sample(0, 50_000), Sample(0.1, 10), []),  # a new cgroup of the same name
        (Sample(0, None), Sample(0.1, 90_000), []),
        (Sample(0, 0), Sample(0.1, None), []),
        (Sample(1, 0), Sample(1, 90_000), []),
        (Sample(2, 0), Sample(1, 90_000), []),
        (Sample(0, None, 3), Sample(0.1, None, 4), [Finding(WakeKind.THROTTLED, 1)]),
        (Sample(0, None, 3), Sample(0.1, None, 3), []),
        (Sample(0, None, 3), Sample(0.1, None, 1), []),
        (
            Sample(0, 0, 0),
            Sample(0.2, 200_000, 2),
            [Finding(WakeKind.PSI, 1.0), Finding(WakeKind.THROTTLED, 2)],
        ),
    ],
)
def test_detect(previous: Sample, current: Sample, expected: list[Finding]) -> None:
    found = detect(previous, current, OPTIONS)
    assert [f.kind for f in found] == [f.kind for f in expected]
    assert [f.share for f in found] == pytest.approx([f.share for f in expected])


@given(
    elapsed=st.floats(0.001, 10),
    stall=st.integers(0, 10**7),
    base=st.integers(0, 2**62),
    at=st.floats(0, 1e6),
)
def test_a_finding_is_the_share_that_was_stalled(
    elapsed: float, stall: int, base: int, at: float
) -> None:
    previous, current = Sample(at, base), Sample(at + elapsed, base + stall)
    share = stall / 1e6 / (current.at_s - previous.at_s)
    found = detect(previous, current, OPTIONS)
    if share >= OPTIONS.stall_ratio:
        assert [f.share for f in found] == [pytest.approx(share)]
    else:
        assert found == ()


@given(reads=st.integers(2, 40), used=st.lists(st.floats(0, 0.1), max_size=30))
def test_reads_stay_in_bounds(reads: int, used: list[float]) -> None:
    for cores in used:
        reads = fit_reads(reads, cores, OPTIONS)
        assert 2 <= reads <= OPTIONS.max_reads


def test_a_new_bound_counts_at_once() -> None:
    steady_cores = OPTIONS.max_cores * 0.8
    assert fit_reads(OPTIONS.max_reads + 1, steady_cores, OPTIONS) == OPTIONS.max_reads


def test_reads_shrink_over_the_budget_and_grow_back() -> None:
    reads = fit_reads(40, 0.02, OPTIONS)
    assert reads == 20
    assert fit_reads(reads, 0.004, OPTIONS) == reads
    for _ in range(10):
        reads = fit_reads(reads, 0.0001, OPTIONS)
    assert reads == OPTIONS.max_reads
