"""Who uses up caches, by cycles for each instruction; on snapshots in memory."""

from __future__ import annotations

import pytest

from koordlet.decision.metrics import CONTAINER_CYCLES_PER_INSTRUCTION, POD_CPU_USAGE
from koordlet.decision.plan import Decision
from koordlet.decision.resource import Resource
from koordlet.qos.interference.strategy import InterferenceOptions, InterferenceState, decide
from tests.qos.build import Kernel, Metrics, be_pod, node, pod, snapshot

HELD = "kubepods/besteffort/podsort/c"


class Scene:
    """Pod ``web`` (LS) and best-effort pods ``sort`` and ``calm``; a window each minute."""

    def __init__(self, *, act: bool = False) -> None:
        self.metrics = Metrics(age_s=0.5)
        self.kernel = Kernel()
        for name in ("sort", "calm"):
            self.kernel.add(f"kubepods/besteffort/pod{name}/c", quota=-1, period=100_000)
        self.memory = InterferenceState()
        self.options = InterferenceOptions(act=act)
        self.now = 1000.0

    def window(self, cpi: float, sort: float, calm: float = 0.5) -> Decision:
        self.now += 60
        samples = self.metrics.samples
        samples[CONTAINER_CYCLES_PER_INSTRUCTION.kind, ("web", "w")] = cpi
        samples[POD_CPU_USAGE.kind, ("sort",)] = sort
        samples[POD_CPU_USAGE.kind, ("calm",)] = calm
        pods = (
            pod("web", name="web", namespace="d", containers=("w",)),
            be_pod("sort", name="sort", namespace="d", containers=("c",)),
            be_pod("calm", name="calm", namespace="d", containers=("c",)),
        )
        found = decide(
            snapshot(node(4), pods=pods, metrics_=self.metrics, in_force=self.kernel, now=self.now),
            self.memory,
            self.options,
        )
        self.memory = found.memory
        self.kernel.take(found.plan)
        return found


def test_the_one_that_is_busy_in_the_bad_windows_is_told() -> None:
    scene = Scene()
    for _ in range(20):
        assert scene.window(2.0, sort=0.0).notes == ()
    assert scene.window(4.0, sort=1.0).notes == ()
    assert scene.window(4.0, sort=1.0).notes == ()
    (note,) = scene.window(4.0, sort=1.0).notes
    assert note.rule == "interference.cpi"
    assert note.text == (
        "pod d/web needs more cycles for each instruction while pod d/sort is busy; "
        "it would be held back with act = true"
    )
    # All of its use was beside outliers: 1 - limit / cpi, the limit being 2.0 + 2 * 0.05 * 2.0.
    assert note.inputs[0].value == pytest.approx(1 - 2.2 / 4.0, abs=1e-3)


def test_it_alone_is_held_back_and_gets_its_cpu_again() -> None:
    scene = Scene(act=True)
    for _ in range(20):
        scene.window(2.0, sort=0.0)
    for _ in range(3):
        scene.window(4.0, sort=1.0)
    assert scene.kernel.value(HELD, Resource.CPU_QUOTA_US) < 100_000
    assert scene.kernel.value("kubepods/besteffort/podcalm/c", Resource.CPU_QUOTA_US) == -1
    for _ in range(30):
        scene.window(2.0, sort=0.1)
    assert scene.kernel.value(HELD, Resource.CPU_QUOTA_US) == -1


def test_without_a_counter_nobody_is_suspected() -> None:
    scene = Scene()
    scene.window(2.0, sort=1.0)
    scene.metrics.samples.pop((CONTAINER_CYCLES_PER_INSTRUCTION.kind, ("web", "w")))
    scene.now += 60
    assert scene.memory.by_cpi
    pods = (pod("web", name="web", namespace="d", containers=("w",)),)
    found = decide(
        snapshot(node(4), pods=pods, metrics_=self_metrics(scene), now=scene.now),
        scene.memory,
        scene.options,
    )
    assert found.notes == ()
    assert found.memory.by_cpi == {}


def self_metrics(scene: Scene) -> Metrics:
    return scene.metrics


def test_an_old_sample_counts_once() -> None:
    scene = Scene()
    for _ in range(20):
        scene.window(2.0, sort=0.0)
    scene.window(4.0, sort=1.0)
    for _ in range(10):
        scene.now += 1 - 60
        scene.metrics.age_s += 1
        assert scene.window(4.0, sort=1.0).notes == ()
