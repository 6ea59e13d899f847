"""A day in fast-forward on the fake kernel: memory and descriptors stay flat.

The real engine, store, journal and decision log; time and cgroups are simulated. Pods come and
go, the load of the latency-sensitive one follows the hour, so that there is always something to
collect, to decide, to write and to forget. Memory is that of this process, fake kernel included.
"""

from __future__ import annotations

import gc
import os
import random
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from koordlet_fakefs import FakeHost, Process, shape

from bench.figures import Figure
from koordlet.config.load import load
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability, Wake, WakeKind
from koordlet.engine.engine import Engine
from koordlet.engine.parts import Callbacks, Parts, build
from koordlet.engine.prediction.predictions import UPKEEP_S

CPUS = 8
HOUR_S = 3600
PODS = 4
_MIB = 1 << 20
_WARM_S = 900
"""After a quarter of an hour the hot window is full and every path has run."""
_CHURN_S = 60
_RESCAN_S = 10
_MAINTAIN_S = 5
_CONFIG = """
[evictions]
start_grace_seconds = 0
[node]
name = "bench"
[paths]
state_dir = "{0}/state"
run_dir = "{0}/run"
[api]
socket = "{0}/run/koordlet.sock"
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressPolicy = "cfsQuota"
[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
groupIdentity = -1
[[applications]]
name = "shop"
cgroup = "shop"
qos = "LS"
[[applications]]
name = "batch"
cgroup = "batch"
qos = "BE"
"""
_FEATURES = (Resource.CPU_QUOTA_US, Resource.CPUSET_CPUS, Resource.CPU_SHARES, Resource.CPU_IDLE)


@dataclass(frozen=True)
class Mark:
    """At one moment: simulated hours since the start, bytes, open files."""

    hour: float
    rss_bytes: int
    files: int


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    hours = 1 if smoke else 24
    with tempfile.TemporaryDirectory(prefix="koordlet-bench-day-") as directory:
        began = time.monotonic()
        day = Day(Path(directory))
        marks = day.run(hours * HOUR_S, say)
        took_s = time.monotonic() - began
        writes, decisions = day.parts.actuator.writes, day.parts.decisions.records
        day.stop()
    first, half, last = marks[0], marks[-3], marks[-1]
    growth = (last.rss_bytes - half.rss_bytes) / (last.hour - half.hour)
    return [
        Figure("ticks", hours * HOUR_S, f"in {took_s:.0f} s"),
        Figure("pods that came and went", day.replaced, ""),
        Figure("writes to the kernel", writes, ""),
        Figure("records in the decision log", decisions, ""),
        *(Figure(f"resident memory at {m.hour:.2f} h", m.rss_bytes / _MIB, "MiB") for m in marks),
        # In the first hour rings and indices fill up to their bounds.
        Figure("growth an hour in the second half", growth / 1024, "KiB", None if smoke else 64),
        Figure("descriptors at the start", first.files, ""),
        Figure("descriptors more at the end", last.files - first.files, "", 0),
    ]


class Day:
    """The machine and the daemon on it."""

    def __init__(self, directory: Path) -> None:
        self.replaced = 0
        self._rng = random.Random(1)
        self._host = FakeHost("hybrid", step_s=1.0, topology=shape(cores_per_l3=CPUS))
        self._pods: dict[str, tuple[str, Process]] = {}
        for _ in range(PODS):
            self._new_pod()
        self._shop, _ = self._application("shop"), self._application("batch")
        file = directory / "koordlet.toml"
        file.write_text(_CONFIG.format(directory))
        loaded = load(str(file))
        self._changed = True
        self._alarms: list[Wake] = []
        self.parts: Parts = build(
            self._host,
            loaded.config,
            Callbacks(self._change, self._alarm, lambda outcome: self._engine.heard(outcome)),
        )
        self._engine = Engine(self.parts, loaded)
        predictions, time_s = self.parts.predictions, self._host.time()
        predictions.took(predictions.load(time_s)(), time_s, self._host.monotonic())
        self.parts.state.start()
        self._engine.rescan()
        self._engine.set_capabilities([Capability(str(f), True, "") for f in _FEATURES])

    def run(self, seconds: int, say: Callable[[str], None]) -> list[Mark]:
        """Marks after the warm-up, at each quarter, and at the end."""
        marks = []
        quarters = {_WARM_S, *(seconds * quarter // 4 for quarter in (1, 2, 3, 4))}
        for second in range(1, seconds + 1):
            self._second(second)
            if second in quarters and second >= _WARM_S:
                marks.append(self._mark(second))
                say(f"{second / HOUR_S:.2f} h, {marks[-1].rss_bytes / _MIB:.1f} MiB")
        return marks

    def stop(self) -> None:
        self.parts.alarms.close()
        self.parts.state.stop()
        self.parts.runner.close()
        self.parts.decisions.close()
        self.parts.close_stores()

    def _second(self, second: int) -> None:
        if second % 10 == 0:
            busy = CPUS * (0.3 + 0.2 * self._rng.random())
            self._host.set_demand(self._shop, busy)
        if second % _CHURN_S == 0:
            self._replace_pod()
        self._host.advance(1.0)
        if self.parts.alarms.sampling:
            self.parts.alarms.sample()
        if second % _RESCAN_S == 0:
            self._engine.rescan()
        self._answer()
        self._engine.tick()
        if second % _MAINTAIN_S == 0:
            self.parts.maintain(int(self._host.time() * 1000))
        if second % UPKEEP_S == 0:
            self.parts.predictions.upkeep(self._host.monotonic())()
        # The fake kernel keeps what was written for tests to look at.
        self._host.written.clear()

    def _answer(self) -> None:
        if self._changed:
            self._changed = False
            self._engine.changed()
            self._engine.tick(Wake(WakeKind.CHANGE))
        if self._alarms:
            self._engine.tick(self._alarms[0])
            self._alarms.clear()

    def _application(self, cgroup: str) -> Process:
        self._host.make_cgroup(cgroup)
        return self._host.spawn(cgroup, demand_cores=float(CPUS), threads=CPUS)

    def _new_pod(self) -> None:
        uid = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        names = [f"{self._rng.getrandbits(256):064x}" for _ in range(2)]
        tier = self._rng.choice(("guaranteed", "burstable", "besteffort"))
        groups = self._host.make_pod(qos=tier, uid=uid, containers=names)
        process = self._host.spawn(groups.containers[0], demand_cores=0.2, memory_bytes=64 * _MIB)
        self._pods[uid] = (groups.pod, process)

    def _replace_pod(self) -> None:
        uid = self._rng.choice(sorted(self._pods))
        self._host.remove_cgroup(self._pods.pop(uid)[0])
        self._new_pod()
        self.replaced += 1

    def _mark(self, second: int) -> Mark:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        files = len(os.listdir("/proc/self/fd")) + len(self._host.open_files)
        return Mark(second / HOUR_S, pages * os.sysconf("SC_PAGE_SIZE"), files)

    def _change(self) -> None:
        self._changed = True

    def _alarm(self, wake: Wake) -> None:
        self._engine.alarmed(wake)
        self._alarms.append(wake)
