"""When rounds of training are, and how much of one a tick does."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from koordlet.engine.prediction import kept
from koordlet.engine.prediction.predictions import Predictions
from koordlet.engine.prediction.trainer import AT_ONCE
from koordlet.tsdb import Store
from tests.engine.prediction.rig import GIB, MIB, NODE, OPTIONS, START_MS, MakeRig, Rig, pod


def test_nothing_is_learned_before_the_files_are_read(tmp_path: Path) -> None:
    predictions = Predictions(Store(None), OPTIONS, str(tmp_path))
    assert predictions.is_waiting
    assert not predictions.turn(START_MS, 5000.0, 1.0, NODE, (pod("a"),), ())
    assert predictions.models == {}


def test_a_tick_does_a_bounded_part_of_a_round(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = tuple(pod(f"pod-{number}") for number in range(3 * AT_ONCE + 1))
    used = {each.uid: (1.0, 1.0 * GIB) for each in rig.pods}
    learned = []
    ended = 0
    while not ended:
        ended = rig.tick(used)
        learned.append(len(rig.predictions.models))
    growth = [after - before for before, after in zip([0, *learned], learned, strict=False)]
    assert growth[:5] == [AT_ONCE, AT_ONCE, AT_ONCE, 1, 7]  # the node and its classes
    assert max(growth) == AT_ONCE
    assert len(growth) < 10


def test_a_round_is_of_one_moment_however_long_it_takes(make_rig: MakeRig) -> None:
    """What changes after it has begun is in the next one, also of the pods that come last."""
    rig = make_rig()
    rig.pods = tuple(pod(f"pod-{number:02}") for number in range(3 * AT_ONCE))
    rig.minutes(1, {each.uid: (0.1, 100.0 * MIB) for each in rig.pods}, node=(6.0, 8.0 * GIB))
    busy = {each.uid: (8.0, 8.0 * GIB) for each in rig.pods}
    while not rig.tick(busy, node=(6.0, 8.0 * GIB)):
        pass
    last = rig.predictions.models["pod-47"].subject.cpu.histogram.percentile(1.0)
    assert last < 0.2
    total = rig.predictions.models["__node-koord-prod__"].subject.cpu.histogram.percentile(1.0)
    assert 48 * 0.1 <= total < 48 * 0.1 * 1.06


def test_a_round_that_stood_still_too_long_is_dropped(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = tuple(pod(f"pod-{number:02}") for number in range(2 * AT_ONCE))
    used = {each.uid: (1.0, 1.0 * GIB) for each in rig.pods}
    assert not rig.tick(used)
    assert not rig.tick(used, seconds=400)  # begins another
    assert len(rig.predictions.models) == AT_ONCE


def cadence(
    rig: Rig, pods: int, tick_s: float, minutes: int, interval_s: float = 60.0
) -> tuple[list[float], int]:
    """Seconds between the beginnings of rounds, after the first, and models that have learned."""
    rig.predictions.adapt(msgspec.structs.replace(OPTIONS, training_interval_s=interval_s))
    rig.pods = tuple(pod(f"pod-{number:04}") for number in range(pods))
    used = {each.uid: (0.1, 1.0 * MIB) for each in rig.pods}
    rig.tick_s = tick_s
    begun = [
        rig.predictions.figures.time_s
        for _ in range(int(minutes * 60 / tick_s))
        if rig.tick(used, seconds=tick_s)
    ]
    learned = sum(each.subject.cpu.histogram.total > 0 for each in rig.predictions.models.values())
    return [after - before for before, after in pairwise(begun)], learned


@pytest.mark.parametrize(
    ("pods", "tick_s", "interval_s", "gaps"),
    [
        (300, 1.0, 60.0, {60.0}),
        (1000, 1.0, 60.0, {60.0}),
        (300, 1.0, 10.0, {10.0}),
        (1000, 1.0, 10.0, {10.0}),
        (20, 0.1, 10.0, {10.0}),
        (200, 10.0, 60.0, {60.0}),
        (300, 10.0, 60.0, {60.0}),
        (20, 60.0, 60.0, {60.0}),
        (300, 60.0, 60.0, {60.0}),
        (300, 7.0, 60.0, {56.0, 63.0}),
    ],
)
def test_a_round_ends_before_the_next_one_is_due(
    make_rig: MakeRig, pods: int, tick_s: float, interval_s: float, gaps: set[float]
) -> None:
    """With any tick, so that each minute is in a window."""
    minutes = 2 if tick_s < 1 else 3 if tick_s < 5 else 8
    found, learned = cadence(make_rig(), pods, tick_s, minutes, interval_s)
    assert {round(each, 1) for each in found} <= gaps
    assert len(found) >= minutes * 60 / interval_s - 3
    assert learned == pods + 7


def test_a_full_node_with_the_longest_tick_takes_three_ticks_and_says_so(make_rig: MakeRig) -> None:
    """No tick does more than so many steps."""
    rig = make_rig()
    found, learned = cadence(rig, 1000, 60.0, 12)
    assert set(found) == {180.0}
    assert rig.predictions.every_s == 180.0
    assert learned == 1007


def test_ticks_that_come_a_little_early_cost_no_round(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.tick_s = 60.0
    ends = [rig.tick({"a": (1.0, GIB)}, seconds=60 + late) for late in (0.004, -0.003, 0.002) * 4]
    assert all(ends)


def test_no_more_models_than_there_may_be(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_MOST", 10)
    rig = make_rig()
    rig.pods = tuple(pod(f"pod-{number:02}") for number in range(20))
    rig.minutes(2, {each.uid: (1.0, 1.0 * GIB) for each in rig.pods})
    assert len(rig.predictions.models) == 10
