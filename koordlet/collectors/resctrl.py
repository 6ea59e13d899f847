"""What classes and pods use of L3 cache and memory bandwidth, as far as the hardware counts it
(spec/metrics.md 2.14; D-5 mended. Linux ``Documentation/filesystems/resctrl.rst``).

It reads groups that the strategies ``resctrl-qos`` (classes) and ``resctrl-monitor`` (pods) and the
hook ``resctrl`` (pods with an allocation of their own) have made. Without any there is nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from koordlet.collectors.base import (
    CollectorPart,
    Round,
    SeriesStore,
    SlowCollectorOptions,
    series_of,
)
from koordlet.decision import metrics
from koordlet.decision.metrics import Metric
from koordlet.decision.resctrl import GROUP_PREFIX, control_group
from koordlet.kernel.host import Host
from koordlet.kernel.resctrl import control_groups, is_ours, monitor_groups, mount_point
from koordlet.kernel.resctrl_monitor import OCCUPANCY, TRAFFIC, Counting, counters, counting
from koordlet.protocol.qos import QoSClass

READ_FOR_S = 0.02
"""Time for the groups of one round. Each file waits for a CPU that shares the cache, so what is not
reached comes first in the next round."""

_CLASSES = (QoSClass.LSR, QoSClass.LS, QoSClass.BE)

Key = tuple[int, str]
"""(L3 cache id, event)."""


class _Subject(NamedTuple):
    """Whose a group is. ``label``: the class, or the uid of the pod."""

    group: str
    label: str
    is_pod: bool


@dataclass
class Traffic:
    """Counters of one group that only grow, as they were when they were last read: bytes and
    monotonic seconds. ``totals``: bytes since the group was made, or was first seen."""

    inode: int = 0
    read_s: float = float("-inf")
    marks: dict[Key, tuple[int, float]] = field(default_factory=dict)
    totals: dict[Key, int] = field(default_factory=dict)

    def take(self, inode: int, now_s: float, values: Mapping[Key, int]) -> dict[Key, float]:
        """Bytes a second since the reading before. None of a counter that starts anew: its group
        was made anew (``inode``), or resctrl was mounted anew."""
        if inode != self.inode:
            self.marks.clear()
        self.inode, self.read_s, rates = inode, now_s, {}
        for key, value in values.items():
            mark = self.marks.get(key)
            self.marks[key] = value, now_s
            if mark is None or value < mark[0] or now_s <= mark[1]:
                self.totals[key] = value
                continue
            rates[key] = (value - mark[0]) / (now_s - mark[1])
            self.totals[key] += value - mark[0]
        return rates

    def leave_out(self, monitor: Traffic) -> None:
        """What a monitor group counted is part of its control group's files as long as it is
        there."""
        for key, (value, _) in monitor.marks.items():
            if key in self.marks:
                sum_, at_s = self.marks[key]
                self.marks[key] = max(sum_ - value, 0), at_s


class ResctrlCollector:
    name = "resctrl"
    optional = True

    def __init__(
        self,
        host: Host,
        store: SeriesStore,
        interval_s: float = 10.0,
        sys_root: str = "/sys",
    ) -> None:
        self.interval_s = interval_s
        self._host = host
        self._store = store
        self._sys_root = sys_root
        self._root = mount_point(sys_root)
        self._known: dict[str, Traffic] = {}
        """By the path of the group below resctrl."""
        self._series: dict[str, dict[tuple[str, ...], int]] = {}
        """Of pods: uid -> kind and further labels -> id."""

    def collect(self, round_: Round) -> None:
        """Raises OSError where resctrl cannot be read."""
        what = counting(self._host, self._sys_root)
        groups = self._groups() if what.events else []
        subjects = list(_subjects(groups, {pod.uid for pod in round_.pods}))
        self._forget(groups, {subject.label for subject in subjects if subject.is_pod})
        pods: defaultdict[tuple[Metric, tuple[str, ...]], float] = defaultdict(float)
        first = self._host.monotonic()
        for subject in sorted(subjects, key=lambda each: self._traffic(each.group).read_s):
            if self._host.monotonic() - first > READ_FOR_S:
                break
            try:
                self._read(subject, what, round_, pods)
            except (OSError, ValueError) as error:
                round_.skip(f"{self._root}/{subject.group}/mon_data", error)
        for (metric, labels), value in pods.items():
            self._add(round_, metric, labels, value)

    def close(self) -> None:
        self._forget([], set())

    def _groups(self) -> list[str]:
        """Paths of all that can be ours."""
        found = [""] if self._host.exists(self._root) else []
        found += control_groups(self._host, self._root)
        monitors = (monitor_groups(self._host, self._root, each) for each in tuple(found))
        return [group for group in (*found, *chain.from_iterable(monitors)) if is_ours(group)]

    def _forget(self, groups: list[str], uids: set[str]) -> None:
        """What is no longer there."""
        for group in self._known.keys() - set(groups):
            self._left(group, self._known.pop(group))
        for uid in self._series.keys() - uids:
            for series in self._series.pop(uid).values():
                self._store.release(series)

    def _left(self, group: str, gone: Traffic) -> None:
        """A monitor group that went is no longer in the sums of its control group."""
        control = control_group(group)
        if control != group and control in self._known:
            self._known[control].leave_out(gone)

    def _traffic(self, group: str) -> Traffic:
        return self._known.setdefault(group, Traffic())

    def _read(
        self,
        subject: _Subject,
        what: Counting,
        round_: Round,
        pods: defaultdict[tuple[Metric, tuple[str, ...]], float],
    ) -> None:
        """Of a class into ``round_``; of a pod, which may have two groups while it is moved, into
        ``pods``."""
        directory = f"{self._root}/{subject.group}"
        found = counters(self._host, directory, what)
        traffic = self._traffic(subject.group)
        bytes_ = {key: value for key, value in found.items() if key[1] in TRAFFIC}
        inode, now_s = self._host.inode(directory), self._host.monotonic()
        if traffic.inode not in (0, inode):
            self._left(subject.group, traffic)
        rates = traffic.take(inode, now_s, bytes_)
        llc = {cache: value for (cache, event), value in found.items() if event == OCCUPANCY}
        if subject.is_pod:
            for cache, value in llc.items():
                pods[metrics.POD_RESCTRL_LLC, (subject.label, str(cache))] += value
            for (cache, event), rate in rates.items():
                pods[metrics.POD_RESCTRL_MB_RATE, (subject.label, str(cache), event)] += rate
            return
        for cache, value in llc.items():
            round_.add(metrics.RESCTRL_LLC, (subject.label, str(cache)), value)
        for cache, event in bytes_:
            labels, key = (subject.label, str(cache), event), (cache, event)
            round_.add(metrics.RESCTRL_MB, labels, traffic.totals[key])
            if key in rates:
                round_.add(metrics.RESCTRL_MB_RATE, labels, rates[key])

    def _add(self, round_: Round, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        """Of a pod, whose series are released when it goes."""
        series = self._series.setdefault(labels[0], {})
        key = metric.kind, *labels[1:]
        if key not in series:
            series[key] = series_of(self._store, metric, labels)
        round_.ids.append(series[key])
        round_.values.append(value)


def _subjects(groups: list[str], uids: set[str]) -> Iterator[_Subject]:
    for group in groups:
        label = group.rpartition("/")[2].removeprefix(GROUP_PREFIX)
        if label in _CLASSES and control_group(group) == group:
            yield _Subject(group, label, is_pod=False)
        elif label in uids:
            yield _Subject(group, label, is_pod=True)


COLLECTOR = CollectorPart(
    name=ResctrlCollector.name,
    help="L3 cache and memory traffic of classes and pods, where resctrl counts.",
    options=SlowCollectorOptions(),
    make=lambda machine, options: ResctrlCollector(
        machine.host, machine.store, options.interval_seconds, machine.sys_root
    ),
    metrics=(
        metrics.RESCTRL_LLC,
        metrics.RESCTRL_MB,
        metrics.RESCTRL_MB_RATE,
        metrics.POD_RESCTRL_LLC,
        metrics.POD_RESCTRL_MB_RATE,
    ),
)
