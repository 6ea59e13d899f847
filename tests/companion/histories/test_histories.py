"""Random histories of the scheduler and the descheduler: see docs/testing.md for how to repeat one,
and to play more of them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.companion.histories.history import play_now, prepare

HISTORIES = int(os.environ.get("KOORDLET_CENTRAL_HISTORIES", "80"))
"""`make central-histories` plays 50,000."""
FIRST = int(os.environ.get("KOORDLET_CENTRAL_SEED", "1"))
PARTS = 10 if HISTORIES <= 1000 else HISTORIES // 100
EVENTS = (
    *("bound", "decisions", "gangs", "quotas", "cards", "reserved cards"),
    *("preempted", "jobs", "migrated"),
)
"""What must have come about, so that the histories are about something. They run in real time: on a
busy machine a hundred of them may see no migration."""
MEASURED_FROM = 500
COUNTS: Counter[str] = Counter()

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("central histories")]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    context = get_context("forkserver")
    with ProcessPoolExecutor(2, mp_context=context, initializer=prepare) as executor:
        yield executor


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_what_must_hold_holds_in_random_histories(part: int, pool: ProcessPoolExecutor) -> None:
    seeds = [FIRST + number for number in range(part, HISTORIES, PARTS)]
    halves = [half for half in (seeds[::2], seeds[1::2]) if half]
    for told in pool.map(play_now, halves):
        for each in told:
            COUNTS.update(each.seen)
            assert not each.broken, (
                f"KOORDLET_CENTRAL_SEED={each.seed} KOORDLET_CENTRAL_HISTORIES=1:"
                f" {each.broken[:5]} after {' '.join(each.steps)}"
            )


def test_the_histories_are_about_something() -> None:
    if HISTORIES < MEASURED_FROM or sum(COUNTS.values()) == 0:
        pytest.skip("too few histories for rare events")
    assert not [each for each in EVENTS if not COUNTS[each]], COUNTS
