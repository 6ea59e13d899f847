"""CPU used by pods and applications, each piece of work counted once.

A cgroup's counter includes everything inside it, so the use of an application inside another one,
or inside a pod, appears in two samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import msgspec

from koordlet.decision.cgroups import parent
from koordlet.decision.metrics import (
    HOST_APPLICATION_CPU_USAGE,
    NODE_CPU_USAGE,
    POD_CPU_USAGE,
    Aggregate,
    Metric,
    Reading,
)
from koordlet.decision.snapshot import Snapshot

# A counter gone wrong must not enter the sum; no machine has a million cores.
_MAX_CORES = 1e6


class SubjectUsage(msgspec.Struct, frozen=True):
    """One pod or application. ``cores``: without what other subjects inside it use; None when
    it has no usable sample."""

    cgroup: str
    is_pod: bool
    is_best_effort: bool
    cores: float | None = None
    age_s: float = 0.0


class Usage(msgspec.Struct, frozen=True):
    """Sum over some subjects, in cores.

    ``missing`` subjects had no usable sample in the window; what they use is then part of the
    subject around them, or of the system term. ``age_s`` is that of the oldest sample in the sum.
    """

    cores: float = 0.0
    count: int = 0
    missing: int = 0
    age_s: float = 0.0

    @property
    def milli(self) -> int:
        return math.trunc(self.cores * 1000)


def window_s(snapshot: Snapshot) -> float:
    """A sample older than two collect intervals does not exist (docs/reference/qos.md 1.6)."""
    return 2 * snapshot.collect_interval_s


def node_usage(snapshot: Snapshot) -> Usage | None:
    """CPU used by the whole node; None without a usable sample."""
    reading = read_usage(snapshot, NODE_CPU_USAGE, ())
    return None if reading is None else Usage(reading.value, 1, age_s=reading.age_s)


def usage_by_subject(
    snapshot: Snapshot, within_s: float | None = None, aggregate: Aggregate = Aggregate.LAST
) -> tuple[SubjectUsage, ...]:
    """Every pod, and every application that is present. ``within_s``: None = ``window_s``.

    Of a pod and an application with the same cgroup the use counts as the application's.
    """
    window = window_s(snapshot) if within_s is None else within_s
    of_pod = _use_of_each(snapshot, POD_CPU_USAGE, window, aggregate)
    of_application = _use_of_each(snapshot, HOST_APPLICATION_CPU_USAGE, window, aggregate)
    found = [
        _subject(pod.cgroup, True, pod.is_best_effort, of_pod(pod.uid)) for pod in snapshot.pods
    ]
    found += [
        _subject(app.cgroup, False, app.is_best_effort, of_application(app.name))
        for app in snapshot.applications
        if app.present
    ]
    # No pod is inside another one.
    return tuple(found) if len(found) == len(snapshot.pods) else _counted_once(found)


def _use_of_each(
    snapshot: Snapshot, metric: Metric, window: float, aggregate: Aggregate
) -> Callable[[str], Reading | None]:
    """The newest samples of all, which hundreds of pods need at each tick, come in one answer."""
    if aggregate is not Aggregate.LAST:
        return lambda label: read_usage(snapshot, metric, (label,), window, aggregate)
    newest = snapshot.metrics.newest(metric, window_s=window)
    return lambda label: _usable(newest.get((label,)))


def _subject(
    cgroup: str, is_pod: bool, is_best_effort: bool, reading: Reading | None
) -> SubjectUsage:
    if reading is None:
        return SubjectUsage(cgroup, is_pod, is_best_effort)
    return SubjectUsage(cgroup, is_pod, is_best_effort, reading.value, reading.age_s)


def _counted_once(subjects: list[SubjectUsage]) -> tuple[SubjectUsage, ...]:
    """Without what other subjects inside use; shorter paths first."""
    subjects.sort(key=lambda subject: len(subject.cgroup))
    own = [subject.cores or 0.0 for subject in subjects]
    holder: dict[str, int] = {}
    for index, subject in enumerate(subjects):
        if subject.cores is None or not subject.cgroup:
            continue
        around = subject.cgroup
        while around and around not in holder:
            around = parent(around)
        if around:
            own[holder[around]] -= subject.cores
        holder[subject.cgroup] = index
    return tuple(
        subject
        if subject.cores is None or subject.cores == cores
        else msgspec.structs.replace(subject, cores=max(cores, 0.0))
        for subject, cores in zip(subjects, own, strict=True)
    )


def total(subjects: Iterable[SubjectUsage]) -> Usage:
    cores, count, missing, age_s = 0.0, 0, 0, 0.0
    for subject in subjects:
        if subject.cores is None:
            missing += 1
            continue
        cores += subject.cores
        count += 1
        age_s = max(age_s, subject.age_s)
    return Usage(cores, count, missing, age_s)


def read_usage(
    snapshot: Snapshot,
    metric: Metric,
    labels: tuple[str, ...],
    within_s: float | None = None,
    aggregate: Aggregate = Aggregate.LAST,
) -> Reading | None:
    """Cores, if that is a finite, non-negative, possible number. ``within_s``: None =
    ``window_s``."""
    window = window_s(snapshot) if within_s is None else within_s
    reading = snapshot.metrics.read(metric, labels, window_s=window, aggregate=aggregate)
    return _usable(reading)


def _usable(reading: Reading | None) -> Reading | None:
    return reading if reading is not None and 0 <= reading.value <= _MAX_CORES else None
