"""What a group counted, computed by hand."""

from __future__ import annotations

import struct

import pytest

from koordlet.kernel.perf.counts import Count, Total, pair, total


def test_one_cpu_that_always_had_its_turn() -> None:
    assert total([Count(4000, 1000, 50, 50)]) == Total(4000, 1000, 50, 50)


def test_the_vector_of_the_specification() -> None:
    """docs/reference/metrics.md: value 1000, enabled 10, running 5 is 2000."""
    assert total([Count(1000, 500, 10, 5)]) == Total(2000, 1000, 10, 5)


def test_each_cpu_by_its_own_share() -> None:
    found = total([Count(1000, 500, 10, 5), Count(300, 100, 10, 10)])
    assert found == Total(2300, 1100, 20, 15)


def test_a_cpu_without_a_turn_counts_as_the_others() -> None:
    """10 of 15 ns were measured: what was counted there, by 1.5."""
    found = total([Count(1000, 500, 10, 10), Count(0, 0, 5, 0)])
    assert found == Total(1500, 750, 15, 10)


def test_no_turn_at_all_is_not_measured_and_not_zero_work() -> None:
    found = total([Count(0, 0, 10, 0), Count(0, 0, 20, 0)])
    assert (found.running_ns, found.enabled_ns) == (0, 30)


def test_nothing_ran() -> None:
    assert total([Count(0, 0, 0, 0)]) == total([]) == Total(0, 0, 0, 0)


def test_running_longer_than_enabled_scales_nothing_down() -> None:
    """The kernel reads the two clocks one after the other."""
    assert total([Count(100, 50, 10, 11)]).cycles == 100


def test_the_kernels_layout() -> None:
    assert pair(struct.pack("=5Q", 2, 30, 20, 400, 100)) == Count(400, 100, 30, 20)


@pytest.mark.parametrize("data", [b"", struct.pack("=4Q", 1, 30, 20, 400), bytes(40)])
def test_another_layout_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no group of two events"):
        pair(data)
