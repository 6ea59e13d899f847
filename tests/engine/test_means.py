"""Means of holding best effort back, tried by a whole daemon on the fake kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from koordlet_fakefs.bpf.run_queue import FakeRunQueue

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import DEFAULT_MEANS, Means
from koordlet.kernel.cgroup.layout import detect
from koordlet.qos.cpu_means.strategy import MeansState
from tests.daemon.world import APPLICATIONS, CPU_QOS, CPUS, NO_ALARMS, World, suppress

MakeWorld = Callable[..., World]
BODY = NO_ALARMS + suppress("cpuset") + CPU_QOS + APPLICATIONS
IDLE, SPREAD = Resource.CPU_IDLE, Resource.CPU_SPREAD
MS = 1_000_000


class Scene:
    """Service ``shop`` and BE work that fills the CPUs. ``wait_ms``: how long the service waits for
    itself in each second under ``cpu.idle``, and under the smallest weight."""

    def __init__(
        self, make_world: MakeWorld, idle_ms: float, weight_ms: float, **options: Any
    ) -> None:
        self.world = world = make_world(BODY, **options)
        self.queue = FakeRunQueue()
        world.host.make_run_queue = lambda: self.queue
        world.application("shop", 1.0)
        world.application("batch", 2 * CPUS, 2 * CPUS)
        self.shop = world.host.inode(f"{detect(world.host).reference_root}/shop")
        self.wait_ms = {1: idle_ms, 0: weight_ms}
        world.start()

    @property
    def state(self) -> MeansState:
        memory: MeansState = self.world.engine.runs["cpu-means"].memory
        return memory

    def held(self) -> tuple[object, bool]:
        """``cpu.idle`` of the BE work, and whether its threads are kept."""
        return self.world.value("batch", IDLE), bool(self.world.parts.knobs.read("batch", SPREAD))

    def second(self) -> None:
        waited_ms = self.wait_ms[int(str(self.world.value("batch", IDLE)))]
        self.queue.wait(self.shop, self.shop, round(waited_ms * MS))
        self.queue.waits_for_others_ns += round(waited_ms * MS)
        self.world.run(1)

    def trial(self) -> set[tuple[object, bool]]:
        """Returns what was tried."""
        tried = set()
        for _ in range(300):
            self.second()
            if self.state.trial is not None:
                tried.add(self.held())
            elif tried:
                return tried
        raise AssertionError("no trial came to an end")


def test_what_makes_the_service_wait_least_is_kept(make_world: MakeWorld) -> None:
    scene = Scene(make_world, idle_ms=100, weight_ms=20)
    assert scene.held() == (1, True), "the default"
    assert scene.trial() == {(1, True), (1, False), (0, True), (0, False)}
    assert scene.state.means is not None and scene.state.means.weight
    for _ in range(3):
        scene.second()
    assert scene.held()[0] == 0 and scene.world.value("batch", Resource.CPU_SHARES) == 2
    shown = {row.name: row.result for row in scene.world.views.status().strategies}
    assert "smallest weight" in shown["cpu-means"] and "0.2" in shown["cpu-means"]


def test_without_a_difference_the_default_stays(make_world: MakeWorld) -> None:
    scene = Scene(make_world, idle_ms=50, weight_ms=50)
    scene.trial()
    assert scene.state.means == DEFAULT_MEANS and scene.state.count == 1
    scene.second()
    assert scene.held() == (1, True)


def test_while_it_is_paused_the_default_counts(make_world: MakeWorld) -> None:
    scene = Scene(make_world, idle_ms=100, weight_ms=20)
    scene.trial()
    scene.world.views.pause(("cpu-means",), (), for_s=None, reason="", by="")
    scene.world.run(2)
    assert scene.held() == (1, True)


def test_the_default_is_that_of_the_kernel(make_world: MakeWorld) -> None:
    scene = Scene(make_world, idle_ms=50, weight_ms=50, kernel_release="7.2.13-fake")
    scene.second()
    assert scene.held() == (1, False)


def test_what_the_settings_name_is_not_tried(make_world: MakeWorld) -> None:
    """The list of CPUs is."""
    scene = Scene(make_world, idle_ms=100, weight_ms=20)
    for _ in range(40):
        scene.second()
    trial = scene.state.trial
    assert trial is not None
    assert set(trial.candidates) == {
        Means(weight=weight, spread=spread) for weight in (True, False) for spread in (True, False)
    }
