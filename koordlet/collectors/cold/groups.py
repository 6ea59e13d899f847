"""What is known of the memory of one cgroup between two rounds, and the samples it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from koordlet.collectors.base import Round, SeriesStore, series_of
from koordlet.collectors.cold.confirmed import Confirmed
from koordlet.decision import memory_figures as m
from koordlet.decision.metrics import Metric
from koordlet.decision.snapshot import Application, Pod
from koordlet.kernel.cgroup.conversions import PAGE_BYTES
from koordlet.kernel.cold.cold import Cold
from koordlet.kernel.cold.refault import refault_pages
from koordlet.kernel.parse import MemoryStat, memory_stat

_POD, _APP = ("pod_uid",), ("host_app_name",)
_REFAULT = "memory a second that was reclaimed and wanted again"
_CONFIRMED = "memory that koordlet had reclaimed in the last ten minutes and nobody wanted again"

POD_MEMORY_REFAULT = Metric("pod_memory_refault", _POD, "bytes/s", _REFAULT)
POD_MEMORY_CONFIRMED_COLD = Metric("pod_memory_confirmed_cold", _POD, "bytes", _CONFIRMED)
HOST_APPLICATION_MEMORY_REFAULT = Metric(
    "host_application_memory_refault", _APP, "bytes/s", _REFAULT
)
HOST_APPLICATION_MEMORY_CONFIRMED_COLD = Metric(
    "host_application_memory_confirmed_cold", _APP, "bytes", _CONFIRMED
)


class Kinds(NamedTuple):
    """The series of one sort of group. Containers have the reference's two."""

    cold_file: Metric
    with_hot: Metric
    cold_anon: Metric | None = None
    cold_mapped: Metric | None = None
    refault: Metric | None = None
    confirmed: Metric | None = None


OF_PODS = Kinds(
    m.POD_MEMORY_COLD_PAGE_SIZE,
    m.POD_MEMORY_WITH_HOT_PAGE_USAGE,
    m.POD_MEMORY_COLD_ANON,
    m.POD_MEMORY_COLD_MAPPED,
    POD_MEMORY_REFAULT,
    POD_MEMORY_CONFIRMED_COLD,
)
OF_NODE = Kinds(
    m.NODE_MEMORY_COLD_PAGE_SIZE, m.NODE_MEMORY_WITH_HOT_PAGE_USAGE, m.NODE_MEMORY_COLD_ANON
)
OF_CONTAINERS = Kinds(m.CONTAINER_MEMORY_COLD_PAGE_SIZE, m.CONTAINER_MEMORY_WITH_HOT_PAGE_USAGE)
OF_APPLICATIONS = Kinds(
    m.HOST_APPLICATION_MEMORY_COLD_PAGE_SIZE,
    m.HOST_APPLICATION_MEMORY_WITH_HOT_PAGE_USAGE,
    m.HOST_APPLICATION_MEMORY_COLD_ANON,
    m.HOST_APPLICATION_MEMORY_COLD_MAPPED,
    HOST_APPLICATION_MEMORY_REFAULT,
    HOST_APPLICATION_MEMORY_CONFIRMED_COLD,
)
METRICS = tuple(
    metric
    for kinds in (OF_NODE, OF_PODS, OF_CONTAINERS, OF_APPLICATIONS)
    for metric in kinds
    if metric is not None
)


STILL_TURNS = 6
"""A cgroup in which nothing runs is read each so many turns: the kernel may have reclaimed some."""
CONTAINER_TURNS = 3
"""Any other container is read each so many turns, a part of them in each: a round is one turn of
the event loop."""


class Subject(NamedTuple):
    """``label``: uid, id or name. ``pod``: uid of the pod that it is, or is in."""

    kinds: Kinds
    label: str
    cgroup: str
    pod: str = ""


def subjects(pods: tuple[Pod, ...], applications: tuple[Application, ...]) -> Iterator[Subject]:
    for pod in pods:
        yield Subject(OF_PODS, pod.uid, pod.cgroup, pod.uid)
        for container in pod.containers:
            yield Subject(OF_CONTAINERS, container.id, container.cgroup, pod.uid)
    for application in applications:
        if application.present:
            yield Subject(OF_APPLICATIONS, application.name, application.cgroup)


class Group:
    """``number``: its place among all. ``taken_bytes``: what koordlet had reclaimed since the last
    round."""

    def __init__(self, subject: Subject, number: int, store: SeriesStore) -> None:
        self.subject = subject
        self.taken_bytes = 0
        self._store = store
        self._series: dict[Metric, int] = {}
        self._stat: MemoryStat | None = None
        self._refaults: tuple[float, int | None] = (0.0, None)
        self._confirmed = Confirmed()
        self._calm_ns = -1
        self._turn = number

    @property
    def counts_refaults(self) -> bool:
        return self.subject.kinds.refault is not None

    def _take_turn(self, round_: Round) -> bool:
        """One more round has come. Whether the cgroup is read in it: not where nothing has run in
        its pod, nor where others have their turn."""
        cpu_ns = round_.pods_cpu_ns.get(self.subject.pod, -1)
        before, self._calm_ns = self._calm_ns, cpu_ns
        self._turn += 1
        if self._stat is None or self.taken_bytes:
            return True
        if 0 <= cpu_ns == before:
            return self._turn % STILL_TURNS == 0
        return self.counts_refaults or self._turn % CONTAINER_TURNS == 0

    def add_samples(self, round_: Round, cold: Cold | None, read: Callable[[], bytes]) -> None:
        """``read``: its ``memory.stat``. Raises OSError, Unsupported or ParseError."""
        pages = self._refaults[1]
        if self._take_turn(round_):
            data, self._stat = read(), None
            self._stat = memory_stat(data, self.subject.cgroup)
            pages = refault_pages(data, self.subject.cgroup) if self.counts_refaults else None
        taken, self.taken_bytes = self.taken_bytes, 0
        if cold is not None and self._stat is not None:
            self._add_cold(round_, cold, self._stat)
        if pages is not None:
            self._add_refaults(round_, pages, taken)

    def _add_refaults(self, round_: Round, pages: int, taken_bytes: int) -> None:
        """``pages``: the counter now. One that went back belongs to a cgroup that was made anew."""
        now_s, kinds = round_.now_s, self.subject.kinds
        (before_s, before), self._refaults = self._refaults, (now_s, pages)
        if before is None or pages < before or now_s <= before_s:
            return
        size = (pages - before) * PAGE_BYTES
        self._add(round_, kinds.refault, size / (now_s - before_s))
        self._confirmed.add(now_s, taken_bytes, size)
        self._add(round_, kinds.confirmed, self._confirmed.cold_bytes)

    def _add_cold(self, round_: Round, cold: Cold, stat: MemoryStat) -> None:
        """No more than there is now: what was cold may be gone (D-10)."""
        kinds, cache_bytes = self.subject.kinds, stat.active_file_bytes + stat.inactive_file_bytes
        if cold.file_bytes is not None:
            file_bytes = min(cold.file_bytes, cache_bytes)
            self._add(round_, kinds.cold_file, file_bytes)
            self._add(round_, kinds.with_hot, stat.usage_with_page_cache_bytes - file_bytes)
        if cold.anon_bytes is not None:
            self._add(round_, kinds.cold_anon, min(cold.anon_bytes, stat.usage_bytes))
        if cold.mapped_bytes is not None:
            most = stat.usage_with_page_cache_bytes
            self._add(round_, kinds.cold_mapped, min(cold.mapped_bytes, most))

    def close(self) -> None:
        for series in self._series.values():
            self._store.release(series)
        self._series = {}

    def _add(self, round_: Round, metric: Metric | None, value: float | None) -> None:
        if metric is None or value is None:
            return
        if metric not in self._series:
            self._series[metric] = series_of(self._store, metric, (self.subject.label,))
        round_.ids.append(self._series[metric])
        round_.values.append(value)
