"""The part of the collector that may block, for its thread: windows, by eBPF where the machine has
it, else by descriptors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from koordlet.decision.snapshot import Pod
from koordlet.kernel.background import Pause
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.cgroup.ids import MOST_IDS, ids_within
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.kernel.perf.counts import Count, Total, total
from koordlet.kernel.perf.events import directory_of
from koordlet.kernel.perf.groups import CgroupCounters, allowed, most
from koordlet.kernel.perf.pmu import described, try_pmu
from koordlet.kernel.topology import online_cpus
from koordlet.protocol.qos import QoSClass

_SENSITIVE = frozenset({QoSClass.LSE, QoSClass.LSR, QoSClass.LS})


class Subject(NamedTuple):
    """A container."""

    pod_uid: str
    container_id: str
    cgroup: str


@dataclass(frozen=True)
class Window:
    """``totals``: by container that was counted. ``left_out``: which were not, and why. ``cpu_s``:
    what its begin and its end took of koordlet's own CPU time."""

    totals: Mapping[Subject, Total]
    span_s: float
    left_out: tuple[str, ...] = ()
    costs: Mapping[str, Cost] = field(default_factory=dict)
    cpu_s: float = 0.0


class CannotCountError(Exception):
    """This machine does not count cycles and instructions; ``remedy``: what to do about it."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy


class Source(Protocol):
    """All raise OSError. ``began_s``: when the window began, monotonic."""

    began_s: float

    @property
    def about(self) -> str: ...

    def begin(self, subjects: Sequence[Subject], pause: Pause) -> None: ...

    def end(self, pause: Pause) -> Window: ...

    def close(self) -> None: ...


def subjects(pods: Iterable[Pod]) -> tuple[Subject, ...]:
    """Containers that run, latency-sensitive ones first: not all may have room."""
    active = [pod for pod in pods if pod.is_active]
    active.sort(key=lambda pod: pod.is_best_effort or pod.qos not in _SENSITIVE)
    return tuple(
        Subject(pod.uid, container.id, container.cgroup)
        for pod in active
        for container in pod.containers
        if not container.is_sandbox
    )


def open_source(host: Host, layout: Layout, max_descriptors: int, sys_root: str) -> Source:
    """Raises CannotCountError, OSError."""
    pmu = try_pmu(host.perf(), min(online_cpus(host, sys_root)))
    if pmu.error is not None:
        raise CannotCountError(pmu.why, pmu.remedy)
    try:
        return ByBpf(host, layout, sys_root)
    except OSError as error:
        why = described(error)
    if directory_of(layout, "") is None:
        without = "neither cgroup v2 nor the v1 controller perf_event is mounted"
        raise CannotCountError(f"{without}; no eBPF: {why}", "install libbpf1")
    return ByDescriptors(host, layout, max_descriptors, sys_root, why)


class Counting:
    """What one thread does; it alone uses the source."""

    def __init__(
        self, open_: Callable[[], Source], cpu_seconds: Callable[[], float] = time.thread_time
    ) -> None:
        self._open = open_
        self._cpu_seconds = cpu_seconds
        self._begin_cpu_s = 0.0
        self.source: Source | None = None
        """None until a window has begun."""

    def begin(self, wanted: Sequence[Subject], pause: Pause) -> None:
        """Raises CannotCountError, OSError."""
        began_s = self._cpu_seconds()
        if self.source is None:
            self.source = self._open()
        self.source.begin(wanted, pause)
        self._begin_cpu_s = self._cpu_seconds() - began_s

    def end(self, pause: Pause) -> Window | None:
        """Raises OSError."""
        if self.source is None:
            return None
        began_s = self._cpu_seconds()
        window = self.source.end(pause)
        cpu_s = self._begin_cpu_s + self._cpu_seconds() - began_s
        return replace(window, cpu_s=cpu_s)

    def shut(self) -> None:
        source, self.source = self.source, None
        if source is not None:
            source.close()


class ByBpf:
    """Raises OSError where the kernel or the machine lacks something."""

    def __init__(self, host: Host, layout: Layout, sys_root: str) -> None:
        self._host = host
        self._sys_root = sys_root
        self._root = layout.reference_root
        self._counters = host.cpi_counters(by_cpu_controller="cpu" in layout.v1)
        self._whose: dict[int, Subject] = {}
        self.began_s = 0.0
        self._left_out: tuple[str, ...] = ()

    @property
    def about(self) -> str:
        how = "one pair of counters on each CPU, read where the cgroup changes (eBPF)"
        unknown = self._counters.meter.unknown
        return f"{how}; what its programs use is not known ({unknown})" if unknown else how

    def begin(self, subjects: Sequence[Subject], pause: Pause) -> None:
        self._whose, self._left_out = self._placed(subjects, pause)
        cpus = sorted(online_cpus(self._host, self._sys_root))
        self._counters.begin(list(self._whose), cpus, pause)
        self.began_s = self._host.monotonic()
        self._counters.meter.begin(self.began_s)

    def end(self, pause: Pause) -> Window:
        now_s = self._host.monotonic()
        counts: dict[Subject, list[Count]] = {}
        for cgroup, found in self._counters.end(pause).items():
            if cgroup in self._whose:
                counts.setdefault(self._whose[cgroup], []).extend(found)
        costs = self._counters.meter.end(now_s)
        return Window(
            {subject: total(found) for subject, found in counts.items()},
            now_s - self.began_s,
            self._left_out,
            costs,
        )

    def close(self) -> None:
        self._counters.close()

    def _placed(
        self, subjects: Sequence[Subject], pause: Pause
    ) -> tuple[dict[int, Subject], tuple[str, ...]]:
        """Ids of the containers that are counted, each with all of its cgroups, and which are not.
        Where not all have room, those with many cgroups stay out, so that none takes the room of
        many."""
        within = {
            subject: ids_within(self._host, f"{self._root}/{subject.cgroup}", pause)
            for subject in subjects
        }
        room, left_out = self._counters.room, []
        whose: dict[int, Subject] = {}
        for subject in sorted(subjects, key=lambda each: len(within[each].found)):
            ids = within[subject]
            if ids.cut:
                left_out.append(f"{subject.container_id}: has more than {MOST_IDS} cgroups")
            elif len(whose) + len(ids.found) > room:
                left_out.append(f"{subject.container_id}: no room among the {room} cgroups")
            else:
                whose |= dict.fromkeys(ids.found, subject)
        return whose, tuple(left_out)


class ByDescriptors:
    def __init__(
        self, host: Host, layout: Layout, max_descriptors: int, sys_root: str, why: str
    ) -> None:
        """``why``: it is not by eBPF."""
        self._limit = allowed(max_descriptors)
        self._bound = f"{self._limit} counters"
        if self._limit < max_descriptors:
            self._bound += " (a quarter of the files that koordlet may open)"
        self.about = f"at most {self._bound}, one pair for each container and CPU; no eBPF: {why}"
        self._host = host
        self._layout = layout
        self._sys_root = sys_root
        self._counters = CgroupCounters(host.perf())
        self._whose: dict[str, Subject] = {}
        self.began_s = 0.0
        self._left_out: tuple[str, ...] = ()

    def begin(self, subjects: Sequence[Subject], pause: Pause) -> None:
        cpus = sorted(online_cpus(self._host, self._sys_root))
        room = most(self._limit, len(cpus))
        paths = {
            path: subject
            for subject in subjects[:room]
            if (path := directory_of(self._layout, subject.cgroup)) is not None
        }
        refused = self._counters.begin(tuple(paths), cpus, pause)
        self._whose = paths
        self._left_out = tuple(
            f"{path}: {described(error)}"
            for path, error in refused.items()
            if not _has_gone(path, error)
        )
        if len(subjects) > room:
            count = len(subjects) - room
            self._left_out += (f"{count} containers are beyond {self._bound}",)
        self.began_s = self._host.monotonic()

    def end(self, pause: Pause) -> Window:
        now_s = self._host.monotonic()
        counts = self._counters.end(pause)
        totals = {self._whose[path]: total(found) for path, found in counts.items()}
        return Window(totals, now_s - self.began_s, self._left_out)

    def close(self) -> None:
        self._counters.close()


def _has_gone(path: str, error: OSError) -> bool:
    """The cgroup itself. A counter that the kernel does not have is ENOENT too."""
    return isinstance(error, FileNotFoundError) and error.filename == path
