"""A daemon on the fake kernel, recorded for some minutes: pods and applications that come and go,
alarms, other settings, pauses, restarts. What it decided is known, and made again by the tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.metrics import CPU_WAIT
from koordlet.decision.plan import Decision
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Resources
from koordlet.engine.recording import Recording
from koordlet.inputs import recorder
from koordlet.pause.model import Pause, Scope, ScopeKind
from koordlet.protocol.qos import KubeQoS
from koordlet.replay.trace import Trace
from koordlet.tsdb.files import DiskFiles
from tests.daemon.world import APPLICATIONS, FEATURES, World, suppress

MIB = 1 << 20
BURST = """
[slo.cpuBurstStrategy]
policy = "auto"
"""
MEMORY = """
[slo.resourceQOSStrategy.lsClass.memoryQOS]
enable = true
minLimitPercent = 100
throttlingPercent = 80
[slo.resourceQOSStrategy.beClass.memoryQOS]
enable = true
wmarkRatio = 95
[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
groupIdentity = -1
"""
ACT = """
[strategies.interference]
act = true
"""
EVICT = "memoryEvictThresholdPercent = 30\ncpuEvictTimeWindowSeconds = 5\n"
MEMORY_FEATURES = (
    *("memory.min", "memory.low", "memory.high", "memory.oom.group", "memory.reclaim"),
    *("cpu.cfs_burst_us", "memory.limit_in_bytes"),
)
Made = tuple[float, str, Decision]


class Recorded:
    """``made``: every decision of strategies and hooks, in order, with time and name."""

    def __init__(self, state: Path, made: list[Made]) -> None:
        self.state = state
        self.made = made

    @property
    def trace(self) -> Trace:
        return trace_of(self.state)


def trace_of(state: Path) -> Trace:
    inputs = str(state / "inputs")
    return Trace(DiskFiles(inputs), inputs, str(state / "tsdb"))


def live(world: World, seconds: int, waits_ms_per_s: float | None = None) -> None:
    """As ``World.run``, with some time between the answer to an alarm and the tick that follows, as
    it always takes. ``waits_ms_per_s``: what latency-sensitive work waits for best-effort work."""
    for _ in range(seconds):
        for step_s in (*(0.05,) * 19, 0.046):
            world.host.advance(step_s)
            if world.parts.alarms.sampling:
                world.parts.alarms.sample()
            world.answer()
        world.host.advance(0.002)  # a round of its own
        if waits_ms_per_s is not None:
            wait(world, waits_ms_per_s)
        world.host.advance(0.002)
        world.engine.tick()
        world.parts.maintain(int(world.host.time() * 1000))


def wait(world: World, ms_per_s: float) -> None:
    """What the collector of waits leaves, as if there were one: shop waits for batch and for a pod
    at once, so that their order has to be the same as well."""
    store, ids = world.parts.store, []
    for metric, labels in (
        (CPU_WAIT.application, ("shop", "batch", "application")),
        (CPU_WAIT.application, ("shop", "c" * 8, "pod")),
        (CPU_WAIT.app_total, ("shop",)),
    ):
        ids.append(store.series(metric.kind, tuple(zip(metric.labels, labels, strict=True))))
    store.append(int(world.host.time() * 1000), ids, [ms_per_s] * len(ids))


def describe(world: World) -> None:
    """The runtime tells of the pods that are there."""
    for pod in world.parts.state.pods():
        is_best_effort = pod.kube_qos is KubeQoS.BEST_EFFORT
        if not is_best_effort:
            for cgroup in (pod.cgroup, *(each.cgroup for each in pod.containers)):
                world.parts.knobs.write(cgroup, Resource.CPU_QUOTA_US, 50_000)
        resources = Resources() if is_best_effort else Resources(250, 500, 64 * MIB, 128 * MIB)
        world.parts.reported["nri"].upsert(
            PodFacts(
                pod.uid,
                cgroup=pod.cgroup,
                name=f"web-{pod.uid[0]}",
                namespace="shop",
                labels={"koordinator.sh/qosClass": "BE" if is_best_effort else "LS"},
                resources=resources,
                containers=tuple(
                    ContainerFacts(f"containerd://{c.id}", cgroup=c.cgroup, resources=resources)
                    for c in pod.containers
                ),
            )
        )


def play(world: World) -> None:
    """Some minutes with about everything in them."""
    world.start((*FEATURES, *MEMORY_FEATURES))
    shop = world.application("shop", 1.5)
    world.application("batch", 4.0)
    pods = [
        world.host.make_pod(qos=qos, uid=uid * 8, containers=[uid * 64])
        for qos, uid in (("besteffort", "a"), ("burstable", "b"))
    ]
    first, _ = (
        world.host.spawn(pod.containers[0], demand_cores=0.7, memory_bytes=64 * MIB) for pod in pods
    )
    live(world, 10)
    describe(world)
    live(world, 60)
    world.host.set_demand(shop, 3.5)
    live(world, 20)
    world.host.set_memory(first, 9000 * MIB)
    live(world, 20)
    world.host.remove_cgroup(pods[0].pod)
    late = world.host.make_pod(qos="burstable", uid="c" * 8, containers=["d" * 8])
    world.host.spawn(late.containers[0], demand_cores=2.0, memory_bytes=900 * MIB)
    live(world, 20)
    world.reload(suppress("cpuset") + APPLICATIONS + MEMORY)
    live(world, 15)
    world.engine.pause(
        (Pause(Scope(ScopeKind.OWNER, "cpu-suppress"), world.host.time(), by="somebody"),)
    )
    live(world, 10)
    world.engine.resume((Scope(ScopeKind.OWNER, "cpu-suppress"),), "somebody")
    world.host.set_demand(shop, 0.5)
    live(world, 10)
    world.stop()  # and started again, with other settings
    world.host.advance(7.0)
    world.file.write_text(world.file.read_text().replace("throttlingPercent = 80", ""))
    world.start((*FEATURES, *MEMORY_FEATURES))
    describe(world)
    live(world, 40)
    world.reload(suppress("cfsQuota") + EVICT + APPLICATIONS + BURST + ACT)
    live(world, 30, waits_ms_per_s=1.0)
    live(world, 15, waits_ms_per_s=900.0)
    world.stop()


@pytest.fixture(scope="session")
def soak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "FRAMES_PER_MEMORY", 2)
        patch.setattr(recorder, "FRAMES_PER_FILE", 3)
        directory = tmp_path_factory.mktemp("soak")
        world = World(directory, suppress("cfsQuota") + EVICT + APPLICATIONS + BURST + MEMORY)
        made = _heard(patch, world)
        play(world)
        yield Recorded(directory / "state", made)


def _heard(patch: pytest.MonkeyPatch, world: World) -> list[Made]:
    made: list[Made] = []
    decided, passed = Recording.decided, Recording.passed

    def one(self: Recording, name: str, decision: Decision) -> None:
        made.append((world.host.time(), name, decision))
        decided(self, name, decision)

    def several(self: Recording, names: list[str], decisions: tuple[Decision, ...]) -> None:
        made.extend(
            (world.host.time(), name, each) for name, each in zip(names, decisions, strict=True)
        )
        passed(self, names, decisions)

    patch.setattr(Recording, "decided", one)
    patch.setattr(Recording, "passed", several)
    return made


@pytest.fixture
def copied(soak: Recorded, tmp_path: Path) -> Callable[[], Path]:
    """A copy of what was recorded, to change it."""

    def copy() -> Path:
        return Path(shutil.copytree(soak.state, tmp_path / "state"))

    return copy
