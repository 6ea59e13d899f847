"""What the newest window of waits says, from the snapshot."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from typing import NamedTuple

from koordlet.decision.metrics import (
    HOST_APPLICATION_CPU_USAGE,
    POD_CPU_USAGE,
    WAITS,
    Aggregate,
    Metric,
    Reading,
    WaitMetrics,
)
from koordlet.decision.names import shown
from koordlet.decision.snapshot import Snapshot

OLDEST_S = 12.0
"""Waits are read every 10 s at least."""


class Who(NamedTuple):
    """``kind``: pod, application, system, self, throttled ... (``docs/concepts/blame.md``)."""

    kind: str
    name: str


OTHERS = frozenset({"pod", "application", "system", "rest"})
"""Kinds of culprits that are not the victim's own doing."""
JUDGED: Mapping[str, frozenset[str]] = {
    "cpu": OTHERS | {"self", "throttled"},
    "io": OTHERS,
    "memory": OTHERS | {"self"},
}
"""Kinds of culprits by resource about which there is something to say. A request's own service is
in ``self`` of a disk, the ``kernel`` works for somebody else, and nothing can be done about
``idle``, ``older`` and ``gone``."""


def follows(culprit: Who) -> bool:
    """Return whether it grows where another one disturbs: tasks of a victim pile up behind each
    other, and it reclaims more itself."""
    return culprit.kind == "self"


def hurries(culprit: Who) -> bool:
    """Whether it is worth a name after fewer windows, because it may be held back: it is somebody
    else, and no echo of what another one did a second ago."""
    return culprit.kind in OTHERS


class Antagonist(NamedTuple):
    """``share``: of the victim's demand that it waits for the culprit; where the resource is
    ``cpi``, a correlation. ``harms``: a window that came just now was bad, and the victim
    suffers."""

    resource: str
    victim: Who
    culprit: Who
    share: float
    harms: bool


class Row(NamedTuple):
    """One victim in one window. ``shares``: waits by demand, by culprit; the judged ones alone. The
    demand is its running and its waiting for the resource, milliseconds a second."""

    victim: Who
    shares: Mapping[Who, float]
    demand_ms_per_s: float

    @property
    def of_others(self) -> float:
        return sum(share for who, share in self.shares.items() if who.kind in OTHERS)


def sampled_at(snapshot: Snapshot, waits: WaitMetrics) -> float | None:
    """When waits for this resource were sampled last, unix time; None: not lately. All victims are
    sampled at the same instant, so the first that has a sample tells."""
    for victim in victims(snapshot):
        reading = _total(snapshot, waits, victim)
        if reading is not None:
            return snapshot.time - reading.age_s
    return None


def span_of(snapshot: Snapshot, waits: WaitMetrics, time: float, before: float) -> float:
    """Seconds that the samples at ``time`` stand for: since those before them. A look at once
    leaves two samples, one of the calm time and one of the last round. ``before``: of the newest
    samples at the decision before."""
    for victim in victims(snapshot):
        metric = _total_of(waits, victim)
        window_s = snapshot.time - before - 0.01
        new = snapshot.metrics.read(
            metric, (victim.name,), window_s=window_s, aggregate=Aggregate.AVG
        )
        if new is not None:
            span_s = snapshot.collect_interval_s if new.count > 1 else time - before
            return min(max(span_s, 1.0), OLDEST_S)
    return 1.0


def window(
    snapshot: Snapshot,
    waits: WaitMetrics,
    time: float,
    span_s: float,
    remembered: Collection[Who],
    here: Container[Who],
) -> tuple[Row, ...]:
    """Of those who wait, and of those who are ``remembered``, as far as they are among ``here`` and
    still measured, sorted; most wait for nobody. ``time``: of its samples (``sampled_at``).
    ``span_s``: its length."""
    judged = JUDGED.get(waits.resource, OTHERS)
    cells: dict[Who, dict[Who, float]] = {who: {} for who in remembered}
    for kind, metric in (("pod", waits.pod), ("application", waits.application)):
        found = snapshot.metrics.newest(metric, window_s=snapshot.time - time + 0.001)
        for (name, culprit, culprit_kind), waited in found.items():
            if culprit_kind in judged:
                cells.setdefault(Who(kind, name), {})[Who(culprit_kind, culprit)] = waited.value
    rows = []
    for victim, row in sorted(cells.items()):
        total = _total(snapshot, waits, victim) if victim in here else None
        if total is None or total.age_s > snapshot.time - time + 0.001:
            continue
        cores = _cores(snapshot, victim, time, span_s) if row else 0.0
        if cores is None:
            continue
        demand_ms = total.value + 1000 * cores
        shares = {who: ms / demand_ms for who, ms in sorted(row.items())} if demand_ms > 0 else {}
        rows.append(Row(victim, shares, demand_ms))
    return tuple(rows)


def busiest_process(snapshot: Snapshot, each: Antagonist) -> str:
    """Name the process of a culprit that is no pod; empty where it is not known."""
    for waits in WAITS:
        if waits.resource == each.resource:
            for labels in snapshot.metrics.newest(waits.process, window_s=OLDEST_S):
                if labels[:2] == (each.culprit.name, each.culprit.kind):
                    return shown(labels[2])
    return ""


def victims(snapshot: Snapshot) -> Iterator[Who]:
    """Pods and applications that are not best-effort."""
    for pod in snapshot.pods:
        if not pod.is_best_effort and pod.is_active:
            yield Who("pod", pod.uid)
    for app in snapshot.applications:
        if app.present and not app.is_best_effort:
            yield Who("application", app.name)


def _total(snapshot: Snapshot, waits: WaitMetrics, victim: Who) -> Reading | None:
    return snapshot.metrics.read(_total_of(waits, victim), (victim.name,), window_s=OLDEST_S)


def _total_of(waits: WaitMetrics, victim: Who) -> Metric:
    return waits.pod_total if victim.kind == "pod" else waits.app_total


def _cores(snapshot: Snapshot, victim: Who, time: float, span_s: float) -> float | None:
    """Its use in the window, else its newest; a sample stands for the time before it."""
    metric = POD_CPU_USAGE if victim.kind == "pod" else HOST_APPLICATION_CPU_USAGE
    window_s = snapshot.time - time + span_s - 0.5
    for length_s, how in ((window_s, Aggregate.AVG), (OLDEST_S, Aggregate.LAST)):
        reading = snapshot.metrics.read(metric, (victim.name,), window_s=length_s, aggregate=how)
        if reading is not None:
            return reading.value
    return None
