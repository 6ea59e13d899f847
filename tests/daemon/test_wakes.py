"""Alarms and changes are gathered, answered together, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from koordlet_fakefs import FakeHost

from koordlet.daemon.wakes import ALARM_GAP_S, CHANGE_GATHER_S, WORK_SHARE, Wakes
from koordlet.decision.snapshot import Wake, WakeKind
from tests.daemon.virtual import run_virtually

PSI, THROTTLED = Wake(WakeKind.PSI, "a"), Wake(WakeKind.THROTTLED, "b")
CHANGE = Wake(WakeKind.CHANGE)
Heard = list[tuple[float, Wake, bool]]


def play(
    scene: Callable[[Wakes], Coroutine[Any, Any, None]],
    work_s: float = 0.0,
    counted: list[Wake] | None = None,
) -> Heard:
    """Answers as (seconds since the start, wake, changed); each takes ``work_s``. ``counted``
    gets every alarm."""
    host = FakeHost()
    heard: Heard = []
    counted = [] if counted is None else counted

    async def run() -> None:
        start = host.monotonic()

        def answer(wake: Wake, changed: bool, asked_s: float) -> None:
            assert asked_s <= host.monotonic()
            heard.append((host.monotonic() - start, wake, changed))
            host.advance(work_s)

        wakes = Wakes(answer, counted.append, host.monotonic)
        await scene(wakes)
        await asyncio.sleep(10)
        wakes.close()

    run_virtually(host, run())
    return heard


def test_each_alarm_is_counted_also_where_one_answer_serves_several() -> None:
    async def scene(wakes: Wakes) -> None:
        for _ in range(3):
            wakes.alarmed(PSI)
        wakes.changed()

    counted: list[Wake] = []
    assert len(play(scene, counted=counted)) < 3
    assert counted == [PSI, PSI, PSI]


def test_an_alarm_is_answered_at_once() -> None:
    async def scene(wakes: Wakes) -> None:
        wakes.alarmed(PSI)

    ((when, wake, changed),) = play(scene)
    assert when == pytest.approx(0, abs=1e-3)
    assert (wake, changed) == (PSI, False)


def test_changes_are_gathered() -> None:
    async def scene(wakes: Wakes) -> None:
        for _ in range(10):
            wakes.changed()
            await asyncio.sleep(0.001)

    ((when, wake, changed),) = play(scene)
    assert when == pytest.approx(CHANGE_GATHER_S, abs=1e-3)
    assert (wake, changed) == (CHANGE, True)


@pytest.mark.parametrize("change_first", [True, False])
def test_a_change_and_an_alarm_are_one_answer_and_both_count(change_first: bool) -> None:
    async def scene(wakes: Wakes) -> None:
        if change_first:
            wakes.changed()
        wakes.alarmed(PSI)
        wakes.alarmed(THROTTLED)
        if not change_first:
            wakes.changed()

    ((when, wake, changed),) = play(scene)
    assert when == pytest.approx(0, abs=1e-3)
    assert (wake, changed) == (PSI, True)


def test_the_second_alarm_waits_for_the_gap_and_gathers_the_third() -> None:
    async def scene(wakes: Wakes) -> None:
        wakes.alarmed(PSI)
        await asyncio.sleep(0.001)
        wakes.alarmed(THROTTLED)
        wakes.alarmed(PSI)

    (first, second) = play(scene)
    assert second[0] - first[0] == pytest.approx(ALARM_GAP_S, abs=1e-3)
    assert second[1] == THROTTLED


def test_a_storm_takes_a_bounded_share_of_a_core() -> None:
    work_s = 0.01

    async def scene(wakes: Wakes) -> None:
        for _ in range(1000):
            wakes.alarmed(PSI)
            wakes.changed()
            await asyncio.sleep(0.001)

    heard = play(scene, work_s)
    storm_s = heard[-1][0] - heard[0][0]
    assert len(heard) * work_s < 1.2 * WORK_SHARE * storm_s + 2 * work_s
    assert len(heard) > 5


def test_closed_it_answers_nothing() -> None:
    async def scene(wakes: Wakes) -> None:
        wakes.changed()
        wakes.alarmed(PSI)
        wakes.close()

    assert play(scene) == []


def test_a_figure_that_comes_while_another_alarm_waits_is_not_lost() -> None:
    async def scene(wakes: Wakes) -> None:
        wakes.alarmed(PSI)
        wakes.alarmed(Wake(WakeKind.USAGE, "/", 1.5))
        wakes.alarmed(THROTTLED)

    ((_, wake, _),) = play(scene)
    assert wake == Wake(WakeKind.PSI, "a", 1.5)
