"""Alarms: noticing at once that a latency-sensitive group has to wait for a CPU.

A kernel PSI trigger where this process may arm one with a short window; where it may not (no
CAP_SYS_RESOURCE: windows are multiples of 2 s, ``Documentation/accounting/psi.rst``) a sampler
that reads the same counter every few milliseconds. Throttling has no trigger and is always
sampled, for groups that have a quota; so is the node's memory, where it may lead to evictions, and
what latency-sensitive work uses, where a plan rests on it (``state/usage_alarm.py``).

On a full node there are hundreds of groups, so the pressure of burstable pods is looked at only
when that of the directory they share has risen: it is at least that of each of them.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from enum import StrEnum

import msgspec
import structlog

from koordlet.decision.cgroups import parent
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import WHOLE_NODE, Application, Pod, Wake, WakeKind
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.host import Host, Watch
from koordlet.kernel.parse import flat_keyed
from koordlet.kernel.parse_hot import pressure_some_total_us
from koordlet.protocol.qos import KubeQoS, QoSClass
from koordlet.state.memory_alarm import MemoryAlarm
from koordlet.state.pressure import AlarmOptions, Sample, detect, fit_reads
from koordlet.state.usage_alarm import Expected, UsageAlarm

log = structlog.get_logger()

_LATENCY_SENSITIVE = frozenset({QoSClass.LSE, QoSClass.LSR, QoSClass.LS})


class Mechanism(StrEnum):
    TRIGGER = "psi-trigger"
    SAMPLED = "sampled"
    NONE = "none"


class Armed(msgspec.Struct, frozen=True):
    """How one source is watched for one kind of alarm, and why that way."""

    source: str
    kind: WakeKind
    mechanism: Mechanism
    reason: str


class AlarmTarget(msgspec.Struct, frozen=True):
    """``source`` names it in alarms: its cgroup, or ``WHOLE_NODE``. ``pressure`` and ``stat`` are
    files; ``""`` where there is none or, for ``stat``, no quota that could throttle. ``shared``:
    the pressure file of the directory around, which holds latency-sensitive work alone."""

    source: str
    pressure: str
    stat: str
    shared: str = ""


GATE_HOLD_S = 1.0
"""How long koordlet looks at the groups in a directory after its pressure was last high."""
STALE_S = 1.0
"""A look this long ago says nothing about the last moments."""
LOOK_ANEW_S = 60.0
"""A quota may be put on a group, or taken away, while its pod stays the same."""


class _Loaded:
    """A target and what is known about it since it was armed. ``files``: what is sampled."""

    __slots__ = ("armed", "files", "history", "over_s", "raised_s", "target", "trigger")

    def __init__(self, target: AlarmTarget) -> None:
        self.target = target
        self.trigger: Watch | None = None
        self.files: dict[WakeKind, str] = {}
        self.armed: dict[WakeKind, Armed] = {}
        self.history: dict[WakeKind, deque[Sample]] = {}
        self.raised_s: dict[WakeKind, float] = {}
        self.over_s = -math.inf


_Probe = tuple[_Loaded, WakeKind]
"""One of the files of a group."""


class _Gate:
    """The pressure of a directory, which tells whether that of the groups in it can be high."""

    __slots__ = ("last", "open_until_s", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.last: tuple[float, int] | None = None
        self.open_until_s = -math.inf

    def look(self, files: Descriptors, now_s: float, ratio: float) -> bool:
        """Whether the groups are to be looked at. A directory that cannot be read tells nothing,
        so they are."""
        try:
            total_us = pressure_some_total_us(files.read(self.path), self.path)
        except (OSError, ValueError):
            self.last = None
            return True
        last, self.last = self.last, (now_s, total_us)
        if last is None or total_us - last[1] >= ratio * (now_s - last[0]) * 1e6:
            self.open_until_s = now_s + GATE_HOLD_S
        return now_s <= self.open_until_s


class Alarms:
    """``wake`` is called on the event loop's thread, from ``sample`` or from a trigger.

    The daemon calls ``watch`` after each change of the node state and at each slow rescan, and
    ``sample`` every ``options.sample_interval_s`` while ``sampling`` is true.
    """

    def __init__(
        self,
        host: Host,
        cgroups: Cgroups,
        wake: Callable[[Wake], None],
        options: AlarmOptions | None = None,
        proc_root: str = "/proc",
        cpu_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        self._host = host
        self._cgroups = cgroups
        self._wake = wake
        self.options = options or AlarmOptions()
        self._node_pressure = f"{proc_root}/pressure/cpu"
        self._cpu_seconds = cpu_seconds
        self._files = Descriptors(host)
        self._memory = MemoryAlarm(self._files, f"{proc_root}/meminfo", self.options.min_gap_s)
        self._usage = UsageAlarm(self._files, cgroups, self.options.min_gap_s)
        self._loaded: dict[str, _Loaded] = {}
        self._ring: deque[_Probe] = deque()
        """Those that are looked at in any case."""
        self._gated: deque[_Probe] = deque()
        """Those that are looked at while a gate is open."""
        self._gates: dict[str, _Gate] = {}
        self._refused = ""
        self._of_pods: dict[str, tuple[Pod, list[AlarmTarget]]] = {}
        self._looked_s = -math.inf
        self._reads = self.options.max_reads
        self._cost_s = 0.0
        self._cost_since_s = host.monotonic()
        self.cost_cores = 0.0
        """CPU that sampling used in the last full second."""

    @property
    def sampling(self) -> bool:
        watched = self._ring or self._gated or self._usage.active
        return bool(watched) or self._memory.limit_bytes is not None

    def watch_memory(self, limit_bytes: int | None) -> None:
        """An alarm of the node when no more than this is available; None: no such alarm."""
        self._memory.watch(limit_bytes if self.options.memory else None)

    def expect_usage(self, expected: Expected | None) -> None:
        """An alarm of the node when latency-sensitive work uses well more than a plan allowed for;
        None: no such alarm."""
        self._usage.expect(expected if self.options.usage else None, self._host.monotonic())

    def watch(self, pods: Iterable[Pod], applications: Iterable[Application]) -> None:
        """Arms what is wanted and not armed, also what could not be armed before; disarms the
        rest. Costs a few file operations for each latency-sensitive group of pods that changed,
        each ``LOOK_ANEW_S`` of all."""
        pods, applications = tuple(pods), tuple(applications)
        self._usage.follow(pods, applications)
        wanted = {target.source: target for target in self._targets(pods, applications)}
        for source, loaded in tuple(self._loaded.items()):
            broken = any(armed.mechanism is Mechanism.NONE for armed in loaded.armed.values())
            if broken or wanted.get(source) != loaded.target:
                self._unload(loaded)
                del self._loaded[source]
        for source, target in wanted.items():
            if source not in self._loaded:
                self._loaded[source] = self._load(target)
        self._sort()

    def describe(self) -> tuple[Armed, ...]:
        found = [
            armed
            for source in sorted(self._loaded)
            for armed in self._loaded[source].armed.values()
        ]
        limit, error = self._memory.limit_bytes, self._memory.error
        if limit is not None:
            mechanism = Mechanism.NONE if error else Mechanism.SAMPLED
            reason = error or f"available memory of at most {limit} bytes"
            found.append(Armed(WHOLE_NODE, WakeKind.MEMORY, mechanism, reason))
        if self._usage.active:
            error = self._usage.error
            mechanism = Mechanism.NONE if error else Mechanism.SAMPLED
            reason = error or self._usage.reason
            found.append(Armed(WHOLE_NODE, WakeKind.USAGE, mechanism, reason))
        return tuple(found)

    def close(self) -> None:
        for loaded in self._loaded.values():
            self._unload(loaded)
        self._loaded.clear()
        self._sort()
        self._memory.watch(None)
        self._usage.expect(None, self._host.monotonic())

    def sample(self) -> None:
        """One turn: looks at the next groups, at most as many files as the budget allows."""
        started = self._cpu_seconds()
        now_s = self._host.monotonic()
        ls_cores = self._usage.sounds(now_s)
        if ls_cores is not None:
            self._wake(Wake(WakeKind.USAGE, WHOLE_NODE, ls_cores))
        if self._memory.sounds(now_s):
            self._wake(Wake(WakeKind.MEMORY, WHOLE_NODE))
        ratio = self.options.stall_ratio
        opened = [gate.look(self._files, now_s, ratio) for gate in self._gates.values()]
        reads = self._reads - len(opened)
        if any(opened):
            reads = reads - reads // 2 + self._turn(self._gated, reads // 2)
        self._turn(self._ring, max(reads, 1))
        self._cost_s += self._cpu_seconds() - started
        elapsed_s = self._host.monotonic() - self._cost_since_s
        if elapsed_s >= 1.0:
            self.cost_cores = self._cost_s / elapsed_s
            self._reads = fit_reads(self._reads, self.cost_cores, self.options)
            self._cost_s = 0.0
            self._cost_since_s += elapsed_s

    def _turn(self, ring: deque[_Probe], reads: int) -> int:
        """Look at the next ones, at most ``reads``; what is left of that."""
        count = min(len(ring), reads)
        for _ in range(count):
            probe = ring[0]
            ring.rotate(-1)
            self._look(*probe)
        return reads - count

    def _sort(self) -> None:
        """Which groups to look at, and how. A gate is worth its reads for several groups."""
        every = [(loaded, kind) for loaded in self._loaded.values() for kind in loaded.files]
        behind = Counter(loaded.target.shared for loaded, kind in every if kind is WakeKind.PSI)
        wanted = {path for path, count in behind.items() if path and count > 1}
        for path in self._gates.keys() - wanted:
            self._files.forget(path)
        self._gates = {path: self._gates.get(path) or _Gate(path) for path in sorted(wanted)}
        self._ring.clear()
        self._gated.clear()
        for loaded, kind in every:
            is_gated = kind is WakeKind.PSI and loaded.target.shared in self._gates
            (self._gated if is_gated else self._ring).append((loaded, kind))

    def _targets(
        self, pods: Iterable[Pod], applications: Iterable[Application]
    ) -> list[AlarmTarget]:
        psi = self.options.psi
        now_s = self._host.monotonic()
        if now_s - self._looked_s >= LOOK_ANEW_S:
            self._of_pods.clear()
            self._looked_s = now_s
        before, self._of_pods = self._of_pods, {}
        found = [AlarmTarget(WHOLE_NODE, self._node_pressure, "")] if psi else []
        for pod in pods:
            if pod.qos in _LATENCY_SENSITIVE:
                known = before.get(pod.uid)
                if known is None or known[0] is not pod:
                    known = pod, self._of_pod(pod)
                self._of_pods[pod.uid] = known
                found += known[1]
        found += [
            self._target(application.cgroup, pressure=psi)
            for application in applications
            if application.present and application.qos in _LATENCY_SENSITIVE
        ]
        return found

    def _of_pod(self, pod: Pod) -> list[AlarmTarget]:
        inside = (self._target(each.cgroup, pressure=False) for each in pod.containers)
        own = self._target(pod.cgroup, pressure=self.options.psi)
        if own.pressure and pod.kube_qos is KubeQoS.BURSTABLE:
            around = parent(pod.cgroup)
            own = msgspec.structs.replace(own, shared=self._path(around, Resource.CPU_PRESSURE))
        return [own, *(target for target in inside if target.stat)]

    def _target(self, cgroup: str, *, pressure: bool) -> AlarmTarget:
        return AlarmTarget(
            cgroup,
            self._path(cgroup, Resource.CPU_PRESSURE) if pressure else "",
            self._path(cgroup, Resource.CPU_STAT) if self._has_quota(cgroup) else "",
        )

    def _path(self, cgroup: str, resource: Resource) -> str:
        try:
            return self._cgroups.path(cgroup, resource)
        except Unsupported:
            return ""

    def _has_quota(self, cgroup: str) -> bool:
        if not self.options.throttled:
            return False
        try:
            quota = self._cgroups.read(cgroup, Resource.CPU_QUOTA_US)
        except (OSError, ValueError, Unsupported):
            return False  # gone, or without the cpu controller: nothing limits it
        return isinstance(quota, int) and quota > 0

    def _load(self, target: AlarmTarget) -> _Loaded:
        loaded = _Loaded(target)
        if target.pressure:
            self._arm_pressure(loaded)
        elif self.options.psi and not target.stat:
            loaded.armed[WakeKind.PSI] = Armed(
                target.source,
                WakeKind.PSI,
                Mechanism.NONE,
                "this cgroup has no cpu.pressure file in any mounted hierarchy",
            )
        if target.stat:
            self._open(loaded, WakeKind.THROTTLED, target.stat, "the group has a CPU quota")
        return loaded

    def _unload(self, loaded: _Loaded) -> None:
        if loaded.trigger is not None:
            loaded.trigger.close()
        for path in loaded.files.values():
            self._files.forget(path)

    def _arm_pressure(self, loaded: _Loaded) -> None:
        options = self.options
        path = loaded.target.pressure
        if not self._refused:
            window_us = int(options.psi_window_s * 1e6)
            stall_us = int(window_us * options.stall_ratio)
            try:
                loaded.trigger = self._host.psi_trigger(
                    path, f"some {stall_us} {window_us}", lambda: self._fired(loaded)
                )
            except OSError as error:
                reason = f"kernel trigger refused: {os.strerror(error.errno or 0)}"
                if error.errno in (errno.EINVAL, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP):
                    # The same answer awaits every other file: ask no more.
                    self._refused = f"{reason} for a window of {options.psi_window_s} s"
                    reason = self._refused
            else:
                loaded.armed[WakeKind.PSI] = Armed(
                    loaded.target.source,
                    WakeKind.PSI,
                    Mechanism.TRIGGER,
                    f"some cpu {stall_us} us in {window_us} us",
                )
                return
        else:
            reason = self._refused
        self._open(loaded, WakeKind.PSI, path, reason)

    def _open(self, loaded: _Loaded, kind: WakeKind, path: str, reason: str) -> None:
        source = loaded.target.source
        try:
            self._files.read(path)
        except OSError as error:
            mechanism, reason = Mechanism.NONE, f"{path}: {error.strerror}"
        else:
            mechanism = Mechanism.SAMPLED
            loaded.files[kind] = path
        loaded.armed[kind] = Armed(source, kind, mechanism, reason)

    def _look(self, loaded: _Loaded, kind: WakeKind) -> None:
        path = loaded.files.get(kind)
        if path is None:
            return  # it could not be read the last time
        parse = pressure_some_total_us if kind is WakeKind.PSI else _nr_throttled
        try:
            counter = parse(self._files.read(path), path)
        except (OSError, ValueError) as error:
            # The cgroup is gone, or its file is not what it should be; ``watch`` tries again.
            self._files.forget(path)
            del loaded.files[kind]
            loaded.armed[kind] = Armed(loaded.target.source, kind, Mechanism.NONE, str(error))
            return
        now_s = self._host.monotonic()
        if kind is WakeKind.PSI:
            current = Sample(now_s, stall_us=counter)
        else:
            current = Sample(now_s, nr_throttled=counter)
        history = loaded.history.setdefault(kind, deque())
        if history and now_s - history[-1].at_s > STALE_S:
            history.clear()
        edge = current.at_s - self.options.window_s
        while len(history) > 1 and history[1].at_s <= edge:
            history.popleft()
        # A turn may come a little early; 80 % of the window is near enough to judge.
        if history and current.at_s - history[0].at_s >= 0.8 * self.options.window_s:
            for finding in detect(history[0], current, self.options):
                self._raise(loaded, finding.kind)
        history.append(current)

    def _fired(self, loaded: _Loaded) -> None:
        self._raise(loaded, WakeKind.PSI)

    def _raise(self, loaded: _Loaded, kind: WakeKind) -> None:
        now_s = self._host.monotonic()
        if loaded.target.source == WHOLE_NODE:
            # Best-effort work presses on the node for hours; only its beginning counts.
            is_new = now_s - loaded.over_s > 2 * self.options.psi_window_s
            loaded.over_s = now_s
            if not is_new:
                return
        if now_s - loaded.raised_s.get(kind, -math.inf) < self.options.min_gap_s:
            return
        loaded.raised_s[kind] = now_s
        self._wake(Wake(kind, loaded.target.source))


def _nr_throttled(data: bytes, path: str) -> int:
    return flat_keyed(data, (b"nr_throttled",), path)[0]
