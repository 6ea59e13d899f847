"""Share of CFS periods in which a group was throttled
(docs/reference/metrics.md 2.7), and for how long.

Only groups with a quota can be throttled, so only their ``cpu.stat`` is read; the quotas of the
others are looked at in turns.
"""

from __future__ import annotations

from koordlet.collectors.base import CollectorOptions, CollectorPart, Round, SeriesStore, series_of
from koordlet.decision.metrics import (
    CONTAINER_CPU_THROTTLED,
    CONTAINER_CPU_THROTTLED_TIME,
    HOST_APPLICATION_CPU_THROTTLED,
    HOST_APPLICATION_CPU_THROTTLED_TIME,
    POD_CPU_THROTTLED,
    Metric,
)
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Pod
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.parse import cpu_stat
from koordlet.kernel.parse_hot import cfs_periods

# Rounds until every quota has been looked at again. A look costs an open, and quotas of
# running groups seldom change without koordlet, which says so itself (``wrote``).
TURN_ROUNDS = 30
NO_QUOTA = "no quota"
TOO_NEW = "measuring"
NOT_READ = "not read"


def throttled_ratio(last: tuple[int, int], now: tuple[int, int]) -> float:
    """Throttled share of the periods in between; 0 when none has passed. Each argument:
    periods so far, throttled ones among them. The kernel prints one after the other, and a period
    may end in between."""
    periods, throttled = now[0] - last[0], now[1] - last[1]
    return min(max(throttled / periods, 0.0), 1.0) if periods > 0 else 0.0


class _Group:
    __slots__ = (
        "cgroup", "cpu_ns", "label", "last", "limited", "metric", "path", "series", "stood_ns",
        "time_series"
    )  # fmt: skip

    def __init__(self, cgroup: str, label: str, metric: Metric, path: str) -> None:
        self.cgroup = cgroup
        self.label = label
        self.metric = metric
        self.path = path
        self.limited = False
        self.last: tuple[int, int] | None = None
        self.stood_ns = 0
        self.cpu_ns = -1
        self.series = self.time_series = -1


class ThrottledCollector:
    name = "throttled"
    optional = False

    def __init__(
        self, cgroups: Cgroups, files: Descriptors, store: SeriesStore, interval_s: float = 1.0
    ) -> None:
        self.interval_s = interval_s
        self._cgroups = cgroups
        self._files = files
        self._store = store
        self._groups: dict[tuple[str, str], _Group] = {}
        self._order: list[_Group] = []
        self._limited: list[_Group] = []
        self._written: set[str] = set()
        self._turn = 0
        self._seen: tuple[tuple[Pod, ...], tuple[Application, ...]] | None = None

    def collect(self, round_: Round) -> None:
        seen = (round_.pods, round_.applications)
        if self._seen is None or seen[0] is not self._seen[0] or seen[1] is not self._seen[1]:
            self._keep(round_)
            self._seen = seen
        self._turn = (self._turn + 1) % TURN_ROUNDS
        due = self._order[self._turn :: TURN_ROUNDS]
        if self._written:
            due += [group for group in self._order if group.cgroup in self._written]
            self._written.clear()
        changed = [self._check_quota(group) for group in due]
        if any(changed):
            self._limited = [group for group in self._order if group.limited]
        for group in self._limited:
            self._read(group, round_)

    def wrote(self, cgroup: str, resource: Resource) -> None:
        """The actuator wrote this file: the next round looks at the quota again."""
        if resource is Resource.CPU_QUOTA_US:
            self._written.add(cgroup)

    def why_none(self, metric: Metric, label: str) -> str:
        """Why a pod, container or application (``label``: its uid, id or name) has no sample."""
        group = self._groups.get((metric.kind, label))
        if group is None:
            return NOT_READ
        return TOO_NEW if group.limited else NO_QUOTA

    def close(self) -> None:
        for group in self._groups.values():
            self._forget(group)
        self._groups = {}
        self._order = []
        self._limited = []
        self._written.clear()
        self._seen = None

    def _keep(self, round_: Round) -> None:
        wanted = {(POD_CPU_THROTTLED.kind, pod.uid): pod.cgroup for pod in round_.pods}
        for pod in round_.pods:
            for container in pod.containers:
                wanted[CONTAINER_CPU_THROTTLED.kind, container.id] = container.cgroup
        for app in round_.applications:
            if app.present:
                wanted[HOST_APPLICATION_CPU_THROTTLED.kind, app.name] = app.cgroup
        for key, group in tuple(self._groups.items()):
            if wanted.get(key) != group.cgroup:
                self._forget(group)
                del self._groups[key]
        for key, cgroup in wanted.items():
            if key not in self._groups:
                try:
                    path = self._cgroups.path(cgroup, Resource.CPU_STAT)
                except Unsupported:
                    break  # no cpu controller anywhere: nothing throttles
                group = self._groups[key] = _Group(cgroup, key[1], _METRIC_OF[key[0]], path)
                self._check_quota(group)
        self._order = list(self._groups.values())
        self._limited = [group for group in self._order if group.limited]

    def _check_quota(self, group: _Group) -> bool:
        """Whether the group got or lost a quota since the last look."""
        try:
            quota = self._cgroups.read(group.cgroup, Resource.CPU_QUOTA_US)
        except (OSError, ValueError, Unsupported):
            quota = -1  # gone, or without the cpu controller: nothing limits it
        limited = isinstance(quota, int) and quota > 0
        changed = group.limited != limited
        if changed and not limited:
            self._forget(group)
        group.limited = limited
        return changed

    def _read(self, group: _Group, round_: Round) -> None:
        last, before_ns = group.last, group.stood_ns
        cpu_ns = -1
        if group.metric is POD_CPU_THROTTLED:
            cpu_ns = round_.pods_cpu_ns.get(group.label, -1)
        if 0 <= cpu_ns == group.cpu_ns and last is not None and group.series >= 0:
            # Nothing in the pod has run, so nothing was throttled.
            round_.ids.append(group.series)
            round_.values.append(0.0)
            return
        group.cpu_ns = cpu_ns
        try:
            data = self._files.read(group.path)
            now = cfs_periods(data, group.path)
            if last is None or now[1] != last[1]:
                group.stood_ns = cpu_stat(data, group.path).throttled_ns
        except (OSError, ValueError) as error:
            group.last = None
            round_.skip(group.path, error)
            return
        group.last = now
        if last is None or now[0] < last[0] or now[1] < last[1]:
            return  # counters that run backwards are those of another cgroup: nothing is known
        if group.series < 0:
            group.series = series_of(self._store, group.metric, (group.label,))
        round_.ids.append(group.series)
        round_.values.append(throttled_ratio(last, now))
        if now[1] > last[1] and group.stood_ns >= before_ns and group.metric in _TIME_OF:
            if group.time_series < 0:
                metric = _TIME_OF[group.metric]
                group.time_series = series_of(self._store, metric, (group.label,))
            round_.ids.append(group.time_series)
            round_.values.append((group.stood_ns - before_ns) / 1000 / (now[1] - last[1]))

    def _forget(self, group: _Group) -> None:
        self._files.forget(group.path)
        for series in (group.series, group.time_series):
            if series >= 0:
                self._store.release(series)
        group.series = group.time_series = -1
        group.last = None


_TIME_OF = {
    CONTAINER_CPU_THROTTLED: CONTAINER_CPU_THROTTLED_TIME,
    HOST_APPLICATION_CPU_THROTTLED: HOST_APPLICATION_CPU_THROTTLED_TIME,
}
_METRIC_OF = {
    metric.kind: metric
    for metric in (POD_CPU_THROTTLED, CONTAINER_CPU_THROTTLED, HOST_APPLICATION_CPU_THROTTLED)
}


COLLECTOR = CollectorPart(
    name=ThrottledCollector.name,
    help="CPU throttling of pods, containers and applications.",
    options=CollectorOptions(),
    make=lambda machine, options: ThrottledCollector(
        machine.cgroups, machine.files, machine.store, options.interval_seconds
    ),
    metrics=(
        POD_CPU_THROTTLED,
        CONTAINER_CPU_THROTTLED,
        CONTAINER_CPU_THROTTLED_TIME,
        HOST_APPLICATION_CPU_THROTTLED,
        HOST_APPLICATION_CPU_THROTTLED_TIME,
    ),
)
