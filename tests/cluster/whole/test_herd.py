"""A thousand koordlets do not come back as a herd, and come back in time."""

from __future__ import annotations

import pytest

from tests.cluster.whole.crowd import SLOT_S, outage

NODES = 1000
KINDS = 3
RIGHT_WITHIN_S = 5.0
EVEN = NODES * KINDS * SLOT_S / 2.0
"""Requests in a slot if all came at an even rate over two seconds."""


@pytest.mark.parametrize("lasts_s", [1.0, 10.0, 45.0])
def test_they_come_back_one_after_the_other(lasts_s: float) -> None:
    outcome = outage(NODES, lasts_s)
    assert outcome.right_s < RIGHT_WITHIN_S, outcome
    if lasts_s > 5.0:  # before that, few have waited so long that their waits differ much
        assert outcome.peak < 2.0 * EVEN, outcome
    assert outcome.requests <= 1.1 * NODES * KINDS, outcome
    assert outcome.tries_per_s < NODES, outcome


def test_a_server_that_forgot_everything_is_listed_within_the_same_time() -> None:
    outcome = outage(NODES, 20.0, forgets=True)
    assert outcome.right_s < RIGHT_WITHIN_S, outcome
    assert outcome.peak < 4.0 * EVEN, outcome  # a refused watch, a list and a watch of each


def test_a_server_that_is_busy_when_it_returns_is_not_asked_more_often() -> None:
    outcome = outage(NODES, 15.0, busy_s=10.0)
    assert outcome.right_s < RIGHT_WITHIN_S, outcome
    assert outcome.peak < 2.0 * EVEN, outcome


def test_the_measure_finds_a_herd() -> None:
    """Without a draw all come at the same instant."""
    outcome = outage(NODES, 10.0, draw=lambda: 0.5)
    assert outcome.peak >= NODES, outcome
