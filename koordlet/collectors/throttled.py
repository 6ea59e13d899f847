"""Share of CFS periods in which a group was throttled (spec/metrics.md 2.7).

Only groups with a quota can be throttled, so only their ``cpu.stat`` is read; the quotas of the
others are looked at in turns.
"""

from __future__ import annotations

from koordlet.collectors.base import Round, SeriesStore, series_of
from koordlet.decision.metrics import (
    CONTAINER_CPU_THROTTLED,
    HOST_APPLICATION_CPU_THROTTLED,
    POD_CPU_THROTTLED,
    Metric,
)
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Pod
from koordlet.kernel.cgroup import Cgroups, Unsupported
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.parse_hot import cfs_periods

# Rounds until every quota has been looked at again. A look costs an open, and quotas of
# running groups seldom appear or disappear.
TURN_ROUNDS = 120


def throttled_ratio(last: tuple[int, int], now: tuple[int, int]) -> float:
    """Throttled share of the periods in between; 0 when none has passed. Each argument:
    periods so far, throttled ones among them."""
    periods = now[0] - last[0]
    return (now[1] - last[1]) / periods if periods > 0 else 0.0


class _Group:
    __slots__ = ("cgroup", "label", "last", "limited", "metric", "path", "series")

    def __init__(self, cgroup: str, label: str, metric: Metric, path: str) -> None:
        self.cgroup = cgroup
        self.label = label
        self.metric = metric
        self.path = path
        self.limited = False
        self.last: tuple[int, int] | None = None
        self.series = -1


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
        self._turn = 0
        self._seen: tuple[tuple[Pod, ...], tuple[Application, ...]] | None = None

    def collect(self, round_: Round) -> None:
        seen = (round_.pods, round_.applications)
        if self._seen is None or seen[0] is not self._seen[0] or seen[1] is not self._seen[1]:
            self._keep(round_)
            self._seen = seen
        self._turn = (self._turn + 1) % TURN_ROUNDS
        changed = [self._check_quota(group) for group in self._order[self._turn :: TURN_ROUNDS]]
        if any(changed):
            self._limited = [group for group in self._order if group.limited]
        for group in self._limited:
            self._read(group, round_)

    def close(self) -> None:
        for group in self._groups.values():
            self._forget(group)
        self._groups = {}
        self._order = []
        self._limited = []
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
        try:
            now = cfs_periods(self._files.read(group.path), group.path)
        except (OSError, ValueError) as error:
            group.last = None
            round_.skip(group.path, error)
            return
        last, group.last = group.last, now
        if last is None or now[0] < last[0]:
            return
        if group.series < 0:
            group.series = series_of(self._store, group.metric, (group.label,))
        round_.ids.append(group.series)
        round_.values.append(throttled_ratio(last, now))

    def _forget(self, group: _Group) -> None:
        self._files.forget(group.path)
        if group.series >= 0:
            self._store.release(group.series)
        group.series = -1
        group.last = None


_METRIC_OF = {
    metric.kind: metric
    for metric in (POD_CPU_THROTTLED, CONTAINER_CPU_THROTTLED, HOST_APPLICATION_CPU_THROTTLED)
}
