"""How long a limit was not in force."""

from __future__ import annotations

import pytest

from tests.cluster.v2.machine import Change, Seen
from tests.cluster.v2.slices import Gaps, gaps

FILE = "/sys/fs/cgroup/kubepods.slice/kubepods-besteffort.slice/cpu.max"


def _gaps(*changes: tuple[float, str], until_s: float) -> Gaps:
    seen = Seen([Change(at_s, FILE, value) for at_s, value in changes], until_s)
    return gaps(seen, FILE, lambda value: not value.startswith("max"))


@pytest.mark.parametrize(
    ("changes", "until_s", "total_s", "longest_s", "worst_minute_s"),
    [
        pytest.param([(0, "5 9")], 90, 0, 0, 0, id="always there"),
        pytest.param([(0, "max 9")], 90, 90, 90, 60, id="never"),
        pytest.param([(0, "5 9"), (10, "max 9"), (11, "5 9")], 90, 1, 1, 1, id="once"),
        pytest.param(
            [(0, "5 9"), (10, "max 9"), (11, "5 9"), (65, "max 9"), (67, "5 9")],
            90, 3, 2, 3, id="twice in a minute",
        ),
        pytest.param(
            [(0, "5 9"), (10, "max 9"), (11, "5 9"), (80, "max 9"), (82, "6 9")],
            90, 3, 2, 2, id="in two minutes",
        ),
        pytest.param([(0, "5 9"), (10, "max 9"), (20, "")], 90, 10, 10, 10, id="gone"),
        pytest.param([(0, "5 9"), (10, "6 9"), (80, "max 9")], 90, 10, 10, 10, id="at the end"),
    ],
)  # fmt: skip
def test_gaps(
    changes: list[tuple[float, str]],
    until_s: float,
    total_s: float,
    longest_s: float,
    worst_minute_s: float,
) -> None:
    found = _gaps(*changes, until_s=until_s)
    assert (found.total_s, found.longest_s) == (total_s, longest_s)
    assert found.worst_minute_s == worst_minute_s
    assert found.watched_s == 90


def test_a_file_that_nobody_saw() -> None:
    with pytest.raises(AssertionError, match="never there"):
        gaps(Seen([], 1.0), FILE, bool)
