"""A long run with nothing but the usual in it: what may not grow does not."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
from koordlet_fakefs import shape

from koordlet.engine.events import RING
from koordlet.engine.prediction.predictions import UPKEEP_S
from koordlet.views.publish import publish
from tests.daemon.world import APPLICATIONS, CPU_QOS, CPUS, NO_ALARMS, World, suppress
from tests.engine.test_kubepods import BOX

MakeWorld = Callable[..., World]
TICKS = 6_000
WARM = 4_000
"""Until the ring of events is full."""
SCORES = 8
"""Series of how good predictions were: they begin after two hours."""


def _tick(world: World, count: int) -> None:
    """Each second a tick; each hundred a pod goes and another comes."""
    for number in range(count):
        world.host.advance(1)
        world.answer()
        world.engine.tick()
        if number % UPKEEP_S == 0:
            world.parts.predictions.upkeep(world.host.monotonic())()
        if number % 100 == 99:
            uid = f"{number:08d}-0000-4000-8000-{world.host.monotonic():012.0f}"
            pod = world.host.make_pod("cgroupfs", "burstable", uid, [BOX])
            world.host.spawn(pod.containers[0], demand_cores=0.1)
            world.host.advance(1)
            world.answer()
            world.engine.tick()
            world.host.remove_cgroup(pod.pod)
            world.engine.rescan()
            publish(world.engine, world.views)


@pytest.mark.slow
def test_thousands_of_ticks(make_world: MakeWorld) -> None:
    world = make_world(
        suppress("cfsQuota") + CPU_QOS + NO_ALARMS + APPLICATIONS,
        "hybrid",
        step_s=1.0,
        topology=shape(cores_per_l3=CPUS),
    )
    world.application("shop", 1.0)
    world.application("batch", CPUS)
    world.start()
    _tick(world, WARM)
    before = world.views.status()
    records = before.decision_log.records
    open_files, objects = len(world.host.open_files), _objects()
    _tick(world, TICKS - WARM)
    after = world.views.status()
    assert len(world.host.open_files) == open_files
    assert after.tsdb.series <= before.tsdb.series + SCORES
    assert after.tsdb.memory_bytes < 1.1 * before.tsdb.memory_bytes
    # The limit follows usage up and down; a note that came each second would be one a tick.
    assert after.decision_log.records - records < 0.75 * (TICKS - WARM)
    assert len(world.parts.events.recent()) <= RING
    assert after.journal.entries == before.journal.entries
    assert _objects() < 1.05 * objects + 2000
    assert after.problems == ()
    assert after.conflicts == ()


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())
