"""What classes and pods use of L3 cache and memory bandwidth, as far as the hardware counts it
(docs/reference/metrics.md 2.14; D-5 mended. Linux ``Documentation/filesystems/resctrl.rst``).

It reads groups that the strategies ``resctrl-qos`` (classes) and ``resctrl-monitor`` (pods) and the
hook ``resctrl`` (pods with an allocation of their own) have made. Without any there is nothing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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
from koordlet.kernel.resctrl import monitor_groups, mount_point
from koordlet.kernel.resctrl_monitor import (
    OCCUPANCY,
    TRAFFIC,
    Counting,
    counters,
    counting,
    our_groups,
    without_counter,
)
from koordlet.protocol.qos import QoSClass

READ_FOR_S = 0.02
"""Time for the groups of one round. Each file waits for a CPU that shares the cache, so what is not
reached comes first in the next round."""

_CLASSES = (QoSClass.LSR, QoSClass.LS, QoSClass.BE)

Key = tuple[int, str]
"""(L3 cache id, event)."""

_Samples = defaultdict[tuple[Metric, tuple[str, ...]], float]


class _Subject(NamedTuple):
    """Whose a group is. ``label``: the class, or the uid of the pod."""

    group: str
    inode: int
    label: str
    is_pod: bool


@dataclass
class Traffic:
    """Counters of one group as they were when they were last read: bytes and monotonic seconds.
    ``totals``: bytes since the group was made, those of its monitor groups that have gone among
    them; they never fall."""

    inode: int
    read_s: float = float("-inf")
    marks: dict[Key, tuple[int, float]] = field(default_factory=dict)
    totals: dict[Key, int] = field(default_factory=dict)

    def take(self, now_s: float, values: Mapping[Key, int]) -> dict[Key, float]:
        """Bytes a second since the reading before. None of a counter that is lower than then: a
        monitor group has gone with what it counted, or AMD's events were set anew. How much was
        counted since is not known."""
        self.read_s, rates = now_s, {}
        for key, value in values.items():
            mark = self.marks.get(key)
            self.marks[key] = value, now_s
            if mark is None:
                self.totals[key] = value
            elif value >= mark[0] and now_s > mark[1]:
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


class _Found(NamedTuple):
    """What a group says: L3 cache id -> bytes occupied; memory traffic in bytes, and per second."""

    occupied: dict[int, int]
    traffic: dict[Key, int]
    rates: dict[Key, float]


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
        self._about = ""
        self._known: dict[str, Traffic] = {}
        """By the path of the group below resctrl."""
        self._series: dict[str, dict[tuple[str, ...], int]] = {}
        """Of pods: uid -> kind and further labels -> id."""

    def about(self) -> str:
        """How much is read, and at what cost; empty where there is nothing."""
        return self._about

    def collect(self, round_: Round) -> None:
        """Raises OSError where resctrl cannot be read."""
        began_s = time.thread_time()
        what = counting(self._host, self._sys_root)
        groups = our_groups(self._host, self._sys_root) if what.events else {}
        subjects = list(_subjects(groups, {pod.uid for pod in round_.pods}))
        self._forget(groups, {subject.label for subject in subjects if subject.is_pod})
        pods: _Samples = defaultdict(float)
        first, read = self._host.monotonic(), 0
        for subject in subjects:
            self._known.setdefault(subject.group, Traffic(subject.inode))
        for subject in sorted(subjects, key=lambda each: self._known[each.group].read_s):
            if self._host.monotonic() - first > READ_FOR_S:
                break
            read += 1
            try:
                found = self._read(subject, what)
            except (OSError, ValueError) as error:
                round_.skip(f"{self._root}/{subject.group}/mon_data", error)
            else:
                if subject.is_pod:
                    _add_pod(subject.label, found, pods)
                else:
                    self._write_class(subject, found, round_)
        for (metric, labels), value in pods.items():
            self._write_pod(round_, metric, labels, value)
        partial = list(self._uncounted(subjects, round_)) if what.assigned else []
        cpu_ms = (time.thread_time() - began_s) * 1000
        summary = _summary(read, len(subjects), cpu_ms, what) if subjects else ""
        self._about = "; ".join(filter(None, (summary, *partial)))

    def close(self) -> None:
        self._about = ""
        self._forget({}, set())

    def _forget(self, groups: Mapping[str, int], uids: set[str]) -> None:
        """What is no longer there, or is another one by the same name. What a monitor group
        counted has left the sums of its control group with it."""
        gone = {g: t for g, t in self._known.items() if t.inode != groups.get(g)}
        for group in gone:
            del self._known[group]
        for group, traffic in gone.items():
            control = self._known.get(control_group(group))
            if control is not None:
                control.leave_out(traffic)
        for uid in self._series.keys() - uids:
            for series in self._series.pop(uid).values():
                self._store.release(series)

    def _read(self, subject: _Subject, what: Counting) -> _Found:
        found = counters(self._host, f"{self._root}/{subject.group}", what)
        occupied = {cache: value for (cache, event), value in found.items() if event == OCCUPANCY}
        traffic = {key: value for key, value in found.items() if key[1] in TRAFFIC}
        rates = self._known[subject.group].take(self._host.monotonic(), traffic)
        return _Found(occupied, traffic, rates)

    def _uncounted(self, subjects: Iterable[_Subject], round_: Round) -> Iterator[str]:
        """Return what the sums of classes lack, as text. The kernel adds up those that have a
        counter."""
        for subject in subjects:
            if subject.is_pod:
                continue
            try:
                inside = monitor_groups(self._host, self._root, subject.group)
                groups = [f"{self._root}/{group}" for group in (subject.group, *inside)]
                lacking = sum(without_counter(self._host, group) for group in groups)
            except OSError as error:
                round_.skip(f"{self._root}/{subject.group}", error)
                continue
            round_.add(metrics.RESCTRL_UNCOUNTED, (subject.label,), lacking)
            if lacking:
                has = "has" if lacking == 1 else "have"
                yield (
                    f"memory traffic of class {subject.label} is too low: {lacking} of its "
                    f"{len(groups)} groups {has} no counter for all of it"
                )

    def _write_class(self, subject: _Subject, found: _Found, round_: Round) -> None:
        totals = self._known[subject.group].totals
        for cache, value in found.occupied.items():
            round_.add(metrics.RESCTRL_LLC, (subject.label, str(cache)), value)
        for key in found.traffic:
            labels = (subject.label, str(key[0]), key[1])
            round_.add(metrics.RESCTRL_MB, labels, totals[key])
            if key in found.rates:
                round_.add(metrics.RESCTRL_MB_RATE, labels, found.rates[key])

    def _write_pod(
        self, round_: Round, metric: Metric, labels: tuple[str, ...], value: float
    ) -> None:
        """Its series are released when it goes."""
        series = self._series.setdefault(labels[0], {})
        key = metric.kind, *labels[1:]
        if key not in series:
            series[key] = series_of(self._store, metric, labels)
        round_.ids.append(series[key])
        round_.values.append(value)


def _add_pod(uid: str, found: _Found, pods: _Samples) -> None:
    """A pod may have two groups while it is moved."""
    for cache, value in found.occupied.items():
        pods[metrics.POD_RESCTRL_LLC, (uid, str(cache))] += value
    for (cache, event), rate in found.rates.items():
        pods[metrics.POD_RESCTRL_MB_RATE, (uid, str(cache), event)] += rate


def _summary(read: int, groups: int, cpu_ms: float, what: Counting) -> str:
    text = f"{read} of {groups} groups in the last round, which took {cpu_ms:.1f} ms of CPU"
    return f"{text}; not the usual traffic: {', '.join(what.changed)}" if what.changed else text


def _subjects(groups: Mapping[str, int], uids: set[str]) -> Iterator[_Subject]:
    for group, inode in groups.items():
        label = group.rpartition("/")[2].removeprefix(GROUP_PREFIX)
        if label in _CLASSES and control_group(group) == group:
            yield _Subject(group, inode, label, is_pod=False)
        elif label in uids:
            yield _Subject(group, inode, label, is_pod=True)


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
        metrics.RESCTRL_UNCOUNTED,
        metrics.POD_RESCTRL_LLC,
        metrics.POD_RESCTRL_MB_RATE,
    ),
)
