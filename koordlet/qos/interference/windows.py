"""What the newest window of waits says, from the snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from koordlet.decision.metrics import (
    HOST_APPLICATION_CPU_USAGE,
    POD_CPU_USAGE,
    WAITS,
    Aggregate,
    Metric,
    MetricView,
    WaitMetrics,
)
from koordlet.decision.snapshot import Snapshot

OLDEST_S = 12.0
"""Waits are read every 10 s at least."""


class Who(NamedTuple):
    """``kind``: pod, application, system, self, throttled ... (``docs/concepts/blame.md``)."""

    kind: str
    name: str


OTHERS = frozenset({"pod", "application", "system", "rest"})
"""Kinds of culprits that are not the victim's own doing."""


class Row(NamedTuple):
    """One victim in one window. ``shares``: waits by demand, by culprit. The demand is its running
    and its waiting for the resource."""

    victim: Who
    shares: Mapping[Who, float]

    @property
    def of_others(self) -> float:
        return sum(share for who, share in self.shares.items() if who.kind in OTHERS)


class Window(NamedTuple):
    """``time``: unix time of its samples; ``span_s``: their age when it was looked at."""

    resource: str
    time: float
    rows: tuple[Row, ...]


def sampled_at(snapshot: Snapshot, waits: WaitMetrics) -> float | None:
    """When waits for this resource were sampled last, unix time; None: not lately. All victims are
    sampled at the same instant, so the first that has a sample tells."""
    for victim, totals, _, _ in _victims(snapshot, waits):
        reading = snapshot.metrics.read(totals, (victim.name,), window_s=OLDEST_S)
        if reading is not None:
            return snapshot.time - reading.age_s
    return None


def windows(snapshot: Snapshot, seen: Mapping[str, float]) -> Iterator[Window]:
    """Those that are newer than ``seen`` says, by resource."""
    for waits in WAITS:
        time = sampled_at(snapshot, waits)
        if time is not None and time > seen.get(waits.resource, 0.0) + 0.001:
            yield _window(snapshot, waits, time, time - seen.get(waits.resource, time))


def _window(snapshot: Snapshot, waits: WaitMetrics, time: float, span_s: float) -> Window:
    view, age_s = snapshot.metrics, snapshot.time - time + 0.001
    cells: dict[Who, dict[Who, float]] = {}
    totals: dict[Who, float] = {}
    for kind, metric, in_all in (
        ("pod", waits.pod, waits.pod_total),
        ("application", waits.application, waits.app_total),
    ):
        for (name, culprit, culprit_kind), ms in view.newest(metric, window_s=age_s).items():
            cells.setdefault(Who(kind, name), {})[Who(culprit_kind, culprit)] = ms
        for (name,), ms in view.newest(in_all, window_s=age_s).items():
            totals[Who(kind, name)] = ms
    rows = []
    for victim, _, used, mean_s in _victims(snapshot, waits, span_s):
        if victim not in totals:
            continue
        shares: dict[Who, float] = {}
        # Most wait for nobody; an average of the use of each would be most of this decision's work.
        if found := cells.get(victim):
            demand_ms = totals[victim] + 1000 * _cores(view, used, victim.name, mean_s)
            shares = {who: ms / demand_ms for who, ms in found.items()} if demand_ms > 0 else {}
        rows.append(Row(victim, shares))
    return Window(waits.resource, time, tuple(rows))


def _victims(
    snapshot: Snapshot, waits: WaitMetrics, span_s: float = 0.0
) -> Iterable[tuple[Who, Metric, Metric, float]]:
    """With the metrics of its waits and of its use, and the span over which that is averaged."""
    mean_s = min(max(span_s, 1.0), OLDEST_S)
    for pod in snapshot.pods:
        if not pod.is_best_effort and pod.is_active:
            yield Who("pod", pod.uid), waits.pod_total, POD_CPU_USAGE, mean_s
    for app in snapshot.applications:
        if app.present and not app.is_best_effort:
            who = Who("application", app.name)
            yield who, waits.app_total, HOST_APPLICATION_CPU_USAGE, mean_s


def _cores(view: MetricView, metric: Metric, name: str, mean_s: float) -> float:
    """Its use in the window; the newest sample where there is none of exactly that time."""
    reading = view.read(metric, (name,), window_s=mean_s + 0.5, aggregate=Aggregate.AVG)
    return reading.value if reading is not None else 0.0
