"""A whole daemon on the fake kernel, without clock, sockets and signals of its own: the test lets
time pass, and every tick, sample and answer happens inside ``run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from koordlet_fakefs import FakeHost, Process, shape

from koordlet.actuator.journal.journal import Journal
from koordlet.admin.model.usage import PodView
from koordlet.config.load import load
from koordlet.daemon.reload import until_restart
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import Capability, Wake, WakeKind
from koordlet.engine.engine import Engine
from koordlet.engine.parts import Callbacks, Parts, build
from koordlet.protocol.cpuset import parse_cpulist
from koordlet.views.views import Views

CPUS = 4
LAYOUTS = ("v1", "hybrid", "comount", "v2")
SUPPRESS = """
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressPolicy = "{policy}"
"""
CPU_QOS = """
[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
groupIdentity = -1
"""
APPLICATIONS = """
[[applications]]
name = "shop"
cgroup = "shop"
qos = "LS"

[[applications]]
name = "batch"
cgroup = "batch"
qos = "BE"
"""
NO_ALARMS = """
[alarms]
psi = false
throttled = false
memory = false
usage = false
"""
_HEAD = """
[node]
name = "node-1"
[paths]
state_dir = "{0}/state"
run_dir = "{0}/run"
[api]
socket = "{1}"
[evictions]
start_grace_seconds = 0
"""
FEATURES = (Resource.CPU_QUOTA_US, Resource.CPUSET_CPUS, Resource.CPU_SHARES, Resource.CPU_IDLE)
SAMPLE_S = 0.05


def suppress(policy: str = "cfsQuota") -> str:
    return SUPPRESS.format(policy=policy)


NOT_SERVED = "/run/koordlet-of-no-world/koordlet.sock"
"""A world has no sockets, and the directories of tests may be too long for them."""


def write_config(directory: Path, body: str, socket: str = "") -> Path:
    """``body`` is what differs between tests; a table ``[daemon]`` may be in it."""
    file = directory / "koordlet.toml"
    file.write_text(_HEAD.format(directory, socket or f"{directory}/run/koordlet.sock") + body)
    return file


class World:
    """``changed`` and ``alarms`` are what waits to be answered; ``woken`` is all that ever did."""

    def __init__(
        self, directory: Path, body: str = "", layout: str = "hybrid", **options: Any
    ) -> None:
        self.directory = directory
        options.setdefault("topology", shape(cores_per_l3=CPUS))
        self.host = FakeHost(layout, **options)
        self.file = write_config(directory, body, NOT_SERVED)
        self.changed = self.written = False
        self.alarms: list[Wake] = []
        self.woken: list[Wake] = []
        self.processes: dict[str, Process] = {}

    def application(self, cgroup: str, demand_cores: float, threads: int = CPUS) -> Process:
        """A process in a cgroup of its own."""
        self.host.make_cgroup(cgroup)
        process = self.host.spawn(cgroup, demand_cores=demand_cores, threads=threads)
        self.processes[cgroup] = process
        return process

    def start(self, features: tuple[str, ...] = FEATURES) -> None:
        """As `Daemon.run` does; ``features`` is what the probe found."""
        self.loaded = load(str(self.file))
        self.parts: Parts = build(
            self.host,
            self.loaded.config,
            Callbacks(
                self._change,
                self._alarm,
                lambda outcome: self.engine.heard(outcome),
                self._written,
            ),
        )
        self.engine = Engine(self.parts, self.loaded)
        self.views = Views(self.engine, self.reload)
        predictions, now = self.parts.predictions, self.host.monotonic()
        predictions.took(predictions.load(self.host.time())(), self.host.time(), now)
        self.parts.state.start()
        self.engine.rescan()
        self.engine.tick()
        self.engine.set_capabilities(
            [Capability(str(feature), True, "tried in a scratch cgroup") for feature in features]
        )
        self.engine.probed = True
        self._change()
        self.answer()

    def stop(self) -> None:
        """As a process that ends; the kernel's values stay."""
        parts = self.parts
        parts.alarms.close()
        parts.state.stop()
        parts.runner.close()
        parts.decisions.close()
        parts.close_stores()
        if isinstance(parts.journal, Journal):
            parts.journal.close()

    def reload(self, body: str | None = None) -> None:
        if body is not None:
            write_config(self.directory, body, NOT_SERVED)
        loaded, found = until_restart(self.engine.loaded, load(str(self.file)))
        self.engine.reconfigure(loaded)
        self.views.took(loaded, found)

    def run(self, seconds: float) -> None:
        """Time passes in steps of a sample; alarms and changes are answered at each, and each
        full second is a tick."""
        for _ in range(round(seconds / SAMPLE_S)):
            self.host.advance(SAMPLE_S)
            if self.parts.alarms.sampling:
                self.parts.alarms.sample()
            self.answer()
            if abs(self.host.monotonic() % 1.0) < 1e-6:
                self.engine.tick()

    def answer(self) -> None:
        if self.written:
            self.written = False
            self.engine.rewritten.look()
        if self.changed:
            self.engine.changed()
        if self.alarms:
            self.engine.tick(self.alarms[0])
        elif self.changed:
            self.engine.tick(Wake(WakeKind.CHANGE))
        self.changed = False
        self.alarms.clear()

    def value(self, cgroup: str, resource: Resource) -> Value:
        return self.parts.cgroups.read(cgroup, resource)

    def limit_cores(self, cgroup: str) -> float:
        """What the kernel lets a cgroup use, by quota and CPU list."""
        quota = self.value(cgroup, Resource.CPU_QUOTA_US)
        period = self.value(cgroup, Resource.CPU_PERIOD_US)
        assert isinstance(quota, int)
        assert isinstance(period, int)
        effective = self.value(cgroup, Resource.CPUSET_CPUS_EFFECTIVE)
        cpus = len(parse_cpulist(str(effective)))
        return min(quota / period if quota > 0 else CPUS, cpus)

    def pod(self, name: str) -> PodView:
        """An application by name, a pod by uid."""
        return next(pod for pod in self.views.pods()() if name in (pod.uid, pod.name))

    def texts(self) -> list[str]:
        """Events so far, as ``kind subject: text``."""
        return [
            f"{event.kind} {event.subject}: {event.text}" for event in self.parts.events.recent()
        ]

    def _change(self) -> None:
        self.changed = True

    def _written(self) -> None:
        self.written = True

    def _alarm(self, wake: Wake) -> None:
        self.engine.alarmed(wake)
        self.alarms.append(wake)
        self.woken.append(wake)
