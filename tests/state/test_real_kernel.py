"""Discovery, collection and alarms on the real kernel, in cgroups made for the test."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from koordlet.collectors import COLLECTORS, collectors
from koordlet.collectors.base import Machine
from koordlet.collectors.budget import BudgetOptions
from koordlet.collectors.runner import Runner
from koordlet.decision.snapshot import Application, Wake, WakeKind
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.topology import read_topology
from koordlet.protocol.qos import KubeQoS, QoSClass
from koordlet.state.alarms import Alarms, Mechanism
from koordlet.state.applications import ApplicationSpec, ApplicationsSource
from koordlet.state.kubepods import KubepodsSource
from koordlet.state.node import NodeOptions, memory_bytes, node_of
from koordlet.state.node_state import NodeState
from koordlet.tsdb.store import Store
from tests.controllers import pass_on, passed_on

pytestmark = pytest.mark.kernel

UID = "6553a60b-2b97-442a-b6da-a5704d81dd98"
HASH = "a" * 64
# Generous: the machine may be busy. What is tested is that the event comes at all.
PATIENCE_S = 10.0
HELD_BYTES = 16 << 20
# The kernel charges a memory cgroup in batches of 64 pages on each CPU (MEMCG_CHARGE_BATCH), so
# its counters may lag behind by that much.
CHARGE_LAG_BYTES = 64 * os.sysconf("SC_PAGE_SIZE") * (os.cpu_count() or 1)
_number = itertools.count()


class Scratch:
    """A cgroup of its own in every hierarchy, and what is made below it."""

    def __init__(self, host: LinuxHost) -> None:
        self.host = host
        self.cgroups = Cgroups(host, detect(host))
        self.parent = f"koordlet-test-{os.getpid()}-state-{next(_number)}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.make("")

    def path(self, below: str) -> str:
        return f"{self.parent}/{below}" if below else self.parent

    def make(self, below: str) -> str:
        for root in self.cgroups.layout.roots:
            (Path(root) / self.path(below)).mkdir(parents=True, exist_ok=True)
        unified = self.cgroups.layout.v2
        if unified is not None:
            above = itertools.accumulate(self.path(below).split("/")[:-1], "{}/{}".format)
            for cgroup in above:
                pass_on(self.host, f"{unified}/{cgroup}")
        cpuset = self.cgroups.layout.v1.get("cpuset")
        if cpuset is not None:
            self._fill_cpuset(Path(cpuset), self.path(below))
        return self.path(below)

    def _fill_cpuset(self, root: Path, cgroup: str) -> None:
        """A v1 cpuset takes no task while it is empty."""
        here = root
        for part in Path(cgroup).parts:
            for name in ("cpuset.cpus", "cpuset.mems"):
                if not (here / part / name).read_text().strip():
                    (here / part / name).write_text((here / name).read_text())
            here = here / part

    def remove(self, below: str) -> None:
        for root in self.cgroups.layout.roots:
            base = Path(root) / self.path(below)
            inner = [path for path in base.rglob("*") if path.is_dir()] if base.exists() else []
            for path in [*sorted(inner, reverse=True), *([base] if base.exists() else [])]:
                path.rmdir()

    def burn(self, cgroup: str, cpu: int) -> None:
        """A process of the group, busy on one CPU and holding memory, until the test ends."""
        code = f"""
import os, sys
for directory in sys.argv[1:]:
    with open(directory + "/cgroup.procs", "w") as procs:
        procs.write("0")
held = bytearray(os.urandom(1)) * {HELD_BYTES}
os.sched_setaffinity(0, {{{cpu}}})
while True:
    pass
"""
        command = [sys.executable, "-S", "-c", code, *self.cgroups.directories(cgroup)]
        self._processes.append(subprocess.Popen(command))

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.remove("")
                return
            except OSError:  # the last task is still on its way out
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    host = LinuxHost()
    with passed_on(host, detect(host).v2):
        made = Scratch(host)
        try:
            yield made
        finally:
            made.close()


class Changes:
    """Waits for a change after which something holds, without polling in between."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __call__(self) -> None:
        self._event.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await self._event.wait()
                self._event.clear()


def test_pods_are_noticed_by_inotify(scratch: Scratch) -> None:
    async def follow() -> None:
        changes = Changes()
        source = KubepodsSource(scratch.host, scratch.cgroups.layout, scratch.parent)
        source.start(changes)
        try:
            assert source.synced and source.pods() == ()
            pod = f"kubepods/besteffort/pod{UID}"
            scratch.make(f"{pod}/{HASH}")
            await changes.until(lambda: any(len(p.containers) == 1 for p in source.pods()))
            (facts,) = source.pods()
            assert facts.uid == UID and facts.kube_qos is KubeQoS.BEST_EFFORT
            assert facts.cgroup == scratch.path(pod)
            scratch.remove(f"{pod}/{HASH}")
            await changes.until(lambda: not source.pods()[0].containers)
            scratch.remove(pod)
            await changes.until(lambda: not source.pods())
        finally:
            source.stop()

    asyncio.run(follow())


def test_a_burst_of_pods_is_complete(scratch: Scratch) -> None:
    async def follow() -> None:
        changes = Changes()
        source = KubepodsSource(scratch.host, scratch.cgroups.layout, scratch.parent)
        source.start(changes)
        try:
            uids = {f"{n:08x}-0000-4000-8000-000000000000" for n in range(40)}
            for uid in uids:
                scratch.make(f"kubepods/burstable/pod{uid}/{HASH}")
            await changes.until(lambda: {p.uid for p in source.pods() if p.containers} == uids)
        finally:
            source.stop()

    asyncio.run(follow())


def test_an_application_is_noticed_by_inotify(scratch: Scratch) -> None:
    async def follow() -> None:
        changes = Changes()
        source = ApplicationsSource("config", scratch.host, scratch.cgroups)
        source.set((ApplicationSpec("web", QoSClass.LS, cgroup=scratch.path("tenant/web")),))
        source.start(changes)
        try:
            assert not source.applications()[0].present
            scratch.make("tenant/web")
            await changes.until(lambda: source.applications()[0].present)
            scratch.remove("tenant")
            await changes.until(lambda: not source.applications()[0].present)
        finally:
            source.stop()

    asyncio.run(follow())


def test_collection_of_a_busy_pod(scratch: Scratch) -> None:
    host, cgroups = scratch.host, scratch.cgroups
    container = scratch.make(f"kubepods/burstable/pod{UID}/{HASH}")
    store = Store(None)
    always = [
        part.with_options(msgspec.structs.replace(part.options, interval_seconds=0.0))
        for part in COLLECTORS.values()
    ]
    machine = Machine(host, cgroups, Descriptors(host), store)
    runner = Runner(collectors(always, machine), store, host, BudgetOptions(cores=100.0))

    async def run() -> dict[tuple[str, ...], float]:
        source = KubepodsSource(host, cgroups.layout, scratch.parent)
        state = NodeState([source], lambda: None)
        state.start()
        try:
            node = node_of(
                NodeOptions("n"), read_topology(host), memory_bytes(host), {}, source.tree()
            )
            runner.run(node, state.pods(), ())
            scratch.burn(container, 0)
            seen: dict[tuple[str, ...], float] = {}
            end = host.monotonic() + PATIENCE_S
            # The burner takes its time to start: look until it shows.
            while host.monotonic() < end and (
                seen.get(("container_cpu_usage", HASH), 0.0) < 0.05
                or seen.get(("pod_memory_usage", UID), 0.0) < HELD_BYTES - CHARGE_LAG_BYTES
            ):
                await asyncio.sleep(0.3)
                round_ = runner.run(node, state.pods(), ())
                for series, value in zip(round_.ids, round_.values, strict=True):
                    kind, labels = store.describe(series)
                    seen[(kind, *(text for _, text in labels))] = value
            return seen
        finally:
            state.stop()

    seen = asyncio.run(run())
    assert 0.05 <= seen["container_cpu_usage", HASH] <= 1.1
    assert 0.05 <= seen["pod_cpu_usage", UID] <= 1.1
    held = seen["pod_memory_usage", UID]
    assert HELD_BYTES - CHARGE_LAG_BYTES <= held < 10 * HELD_BYTES
    assert seen["node_cpu_usage",] > 0 and seen["node_memory_usage",] > 0
    assert seen["koordlet_memory_rss",] > 0 and seen["koordlet_cpu_usage",] > 0
    for health in runner.health():
        assert health.success, f"{health.name}: {health.error}"
        assert health.skipped == 0, f"{health.name}: {health.skipped_example}"
    runner.close()


def test_an_alarm_of_a_stalled_group(scratch: Scratch) -> None:
    """Two tasks that want the same CPU: one of them always waits."""
    host, cgroups = scratch.host, scratch.cgroups
    web = scratch.make("web")
    wakes: list[Wake] = []

    async def run() -> Alarms:
        alarms = Alarms(host, cgroups, wakes.append)
        alarms.watch((), (Application("web", web, QoSClass.LS),))
        told = {armed.source: armed for armed in alarms.describe()}
        if told[web].mechanism is Mechanism.NONE:
            pytest.skip(told[web].reason)
        for _ in range(2):
            scratch.burn(web, 0)
        async with asyncio.timeout(PATIENCE_S):
            while Wake(WakeKind.PSI, web) not in wakes:
                await asyncio.sleep(alarms.options.sample_interval_s)
                alarms.sample()
        alarms.close()
        return alarms

    alarms = asyncio.run(run())
    assert not alarms.sampling
