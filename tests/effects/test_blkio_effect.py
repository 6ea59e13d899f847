"""What a daemon's limit of block I/O does: on a disk of this machine, with files of the test's
own."""

from __future__ import annotations

import os
import statistics

import pytest

from bench.effects import blkio
from bench.effects.slices import Size, of_arm
from bench.figures import NotMeasuredError

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(400),
]


def test_best_effort_is_held_to_its_limit_and_ls_does_not_wait_for_it() -> None:
    """Margins for a disk that others use too."""
    if os.geteuid():
        pytest.skip("needs root")
    try:
        effect = blkio.measure(Size(slices=1, slice_s=3.0), free_s=2.0, say=print)
    except NotMeasuredError as error:
        pytest.skip(str(error))
    [unmanaged], [limited] = (of_arm(effect.slices, arm) for arm in ("unmanaged", "managed"))
    read_bps, write_bps = effect.limits_bps
    assert unmanaged.read_bps > 2 * read_bps
    assert unmanaged.write_bps > 2 * write_bps
    # A start on credit and the last request before the end are more than the limit of 2 s.
    assert limited.read_bps < 1.5 * read_bps + 2 * blkio.MIB
    assert limited.write_bps < 1.5 * write_bps + 2 * blkio.MIB
    assert limited.write_bps > 0.3 * write_bps
    medians = [statistics.median(each.latencies_ms) for each in (limited, unmanaged)]
    assert medians[0] <= 1.5 * medians[1]
