"""Means of holding best effort tried by a whole daemon on the fake kernel."""

from __future__ import annotations

from collections.abc import Callable

from koordlet.decision.means import DEFAULT_MEANS
from koordlet.decision.resource import Resource
from koordlet.qos.cpu_means.strategy import MATRIX, MeansState
from tests.daemon.world import APPLICATIONS, CPU_QOS, CPUS, FEATURES, World, suppress

MakeWorld = Callable[..., World]
BODY = suppress("cpuset") + CPU_QOS + APPLICATIONS
IDLE = Resource.CPU_IDLE


def _state(world: World) -> MeansState:
    memory: MeansState = world.engine.runs["cpu-means"].memory
    return memory


def test_a_trial_runs_its_course(make_world: MakeWorld) -> None:
    world = make_world(BODY)
    world.application("shop", 1.0)
    world.application("batch", 2 * CPUS, 2 * CPUS)
    world.start((*FEATURES, MATRIX))
    held = set()
    for _ in range(240):
        world.run(1)
        if _state(world).trial is not None:
            held.add((world.value("batch", IDLE), world.value("batch", Resource.CPU_SPREAD)))
    assert _state(world).count == 1
    assert {idle for idle, _ in held} == {0, 1}
    assert {bool(spread) for _, spread in held} == {True, False}
    kept = _state(world).kept
    assert kept is not None and len(kept.figures) == 4
    shown = {row.name: row.result for row in world.views.status().strategies}
    assert "waits" in shown["cpu-means"] or "no other means" in shown["cpu-means"]
    world.views.pause(("cpu-means",), (), for_s=None, reason="", by="")
    world.run(2)
    assert world.engine.snapshot(world.engine._wake).means == DEFAULT_MEANS
