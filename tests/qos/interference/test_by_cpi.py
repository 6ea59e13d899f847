"""Who uses up caches, by cycles for each instruction; on snapshots in memory."""

from __future__ import annotations

import pytest

from koordlet.decision.metrics import (
    CONTAINER_CPU_USAGE,
    CONTAINER_CYCLES_PER_INSTRUCTION,
    POD_CPU_USAGE,
)
from koordlet.decision.plan import Decision
from koordlet.decision.resource import Resource
from koordlet.qos.interference.strategy import InterferenceOptions, InterferenceState, decide
from tests.qos.build import Kernel, Metrics, be_pod, node, pod, snapshot


class Scene:
    """Pod ``web`` (LS) and best-effort pods ``sort`` and ``calm``; a window each minute."""

    def __init__(self, *, act: bool = False, interval_s: float = 60.0) -> None:
        self.metrics = Metrics(age_s=0.5)
        self.kernel = Kernel()
        for name in ("sort", "calm"):
            self.kernel.add(f"kubepods/besteffort/pod{name}/{name}", quota=-1, period=100_000)
        self.memory = InterferenceState()
        self.options = InterferenceOptions(act=act)
        self.now = 1000.0
        self.interval_s = interval_s

    def window(self, cpi: float, sort: float, calm: float = 0.5) -> Decision:
        self.now += self.interval_s
        self.metrics.age_s = 0.5
        samples = self.metrics.samples
        samples[CONTAINER_CYCLES_PER_INSTRUCTION.kind, ("web", "w")] = cpi
        for name, cores in (("sort", sort), ("calm", calm)):
            samples[POD_CPU_USAGE.kind, (name,)] = cores
            samples[CONTAINER_CPU_USAGE.kind, (name,)] = cores
        return self.again()

    def seconds(self, count: int) -> Decision:
        """Ticks without a new window."""
        for _ in range(count):
            self.now += 1
            self.metrics.age_s += 1
            found = self.again()
        return found

    def again(self) -> Decision:
        pods = (
            pod("web", name="web", namespace="d", containers=("w",)),
            be_pod("sort", name="sort", namespace="d", containers=("sort",)),
            be_pod("calm", name="calm", namespace="d", containers=("calm",)),
        )
        found = decide(
            snapshot(node(4), pods=pods, metrics_=self.metrics, in_force=self.kernel, now=self.now),
            self.memory,
            self.options,
        )
        self.memory = found.memory
        self.kernel.take(found.plan)
        return found

    def quota(self, name: str) -> object:
        return self.kernel.value(f"kubepods/besteffort/pod{name}/{name}", Resource.CPU_QUOTA_US)


def test_the_one_that_is_busy_in_the_bad_windows_is_reported() -> None:
    scene = Scene()
    for _ in range(20):
        assert scene.window(2.0, sort=0.0).notes == ()
    assert scene.window(4.0, sort=1.0).notes == ()
    assert scene.window(4.0, sort=1.0).notes == ()
    found = scene.window(4.0, sort=1.0)
    (note,) = found.notes
    assert note.rule == "interference.cpi.web.sort"
    assert note.text == (
        "pod d/web needs more cycles for each instruction while pod d/sort is busy; "
        "with act = true it would be held back while the victim suffers"
    )
    inputs = {each.name: each.value for each in note.inputs}
    # All of its use was beside outliers: 1 - limit / cpi, the limit being 2.0 + 2 * 0.05 * 2.0.
    assert inputs["correlation"] == pytest.approx(1 - 2.2 / 4.0, abs=1e-3)
    assert inputs["cycles per instruction"] == 4.0
    assert (inputs["normal"], inputs["limit"]) == (2.0, 2.2)
    assert inputs["its CPU use"] == 1.0
    (gauge,) = found.gauges
    assert gauge.labels == ("cpi", "pod", "web", "pod", "sort")


def test_it_alone_is_held_back_and_gets_its_cpu_again() -> None:
    scene = Scene(act=True)
    for _ in range(20):
        scene.window(2.0, sort=0.0)
    for _ in range(3):
        found = scene.window(4.0, sort=1.0)
    assert scene.quota("sort") == 50_000
    assert scene.quota("calm") == -1
    assert "it is held back" in found.notes[0].text
    (setting,) = found.plan.settings
    assert "because of it pod d/web needs more cycles for each instruction" in setting.why.text
    for _ in range(30):
        scene.window(2.0, sort=0.1)
    assert scene.quota("sort") == -1


def test_a_hold_is_cut_once_for_each_window() -> None:
    scene = Scene(act=True)
    for _ in range(20):
        scene.window(2.0, sort=0.0)
    for _ in range(3):
        scene.window(4.0, sort=1.0)
    scene.seconds(58)
    assert scene.quota("sort") == 50_000
    scene.interval_s = 2
    scene.window(4.0, sort=1.0)
    assert scene.quota("sort") == 25_000


def test_of_two_suspects_the_better_one_is_held_back_and_reported() -> None:
    scene = Scene(act=True)
    for _ in range(20):
        scene.window(2.0, sort=0.0, calm=0.05)
    for _ in range(3):
        found = scene.window(4.0, sort=1.0, calm=1.0)
    (note,) = found.notes
    assert "pod d/sort" in note.text
    assert scene.quota("calm") == -1


def test_without_a_counter_nobody_is_suspected() -> None:
    scene = Scene()
    scene.window(2.0, sort=1.0)
    scene.metrics.samples.pop((CONTAINER_CYCLES_PER_INSTRUCTION.kind, ("web", "w")))
    scene.now += 60
    assert scene.again().notes == ()


def test_what_is_known_of_a_victim_ends_with_its_windows() -> None:
    scene = Scene(act=True)
    for _ in range(20):
        scene.window(2.0, sort=0.0)
    for _ in range(3):
        scene.window(4.0, sort=1.0)
    assert scene.seconds(170).notes
    assert scene.seconds(20).notes == ()
    assert not scene.memory.cpi.victims
    scene.seconds(20)
    assert scene.quota("sort") == -1


def test_windows_may_be_ten_minutes_apart() -> None:
    scene = Scene(interval_s=600)
    for _ in range(20):
        scene.window(2.0, sort=0.0)
    for _ in range(3):
        found = scene.window(4.0, sort=1.0)
    assert found.notes
    assert scene.seconds(590).notes


def test_an_old_sample_counts_once() -> None:
    scene = Scene()
    for _ in range(20):
        scene.window(2.0, sort=0.0)
    scene.window(4.0, sort=1.0)
    assert scene.seconds(50).notes == ()
    assert sum(scene.memory.cpi.victims["w"].cpi.bad) == 1
