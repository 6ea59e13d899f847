"""What a daemon's memory floors and limits do for the page cache of a service; cgroup v2."""

from __future__ import annotations

import os
import statistics

import pytest

from bench.effects import memory
from bench.effects.slices import of_arm
from bench.figures import NotMeasuredError

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(400),
]


def test_best_effort_is_reclaimed_and_ls_is_not() -> None:
    if os.geteuid():
        pytest.skip("needs root")
    try:
        slices = memory.measure(memory.SMOKE, rate=20, say=print)
    except NotMeasuredError as error:
        pytest.skip(str(error))
    [alone], [unmanaged], [managed] = (of_arm(slices, arm) for arm in memory.ARMS)
    # 100 requests look up 400 pages, and most of them are gone without help.
    assert unmanaged.read_again > 50
    assert managed.read_again < 0.2 * unmanaged.read_again
    assert managed.ls_mib > 0.9 * alone.ls_mib
    assert unmanaged.ls_mib < 0.8 * alone.ls_mib
    medians = [statistics.median(each.latencies_ms) for each in (managed, unmanaged)]
    assert medians[0] <= 1.5 * medians[1]
