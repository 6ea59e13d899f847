"""The NRI connection as the local API and the metrics page show it."""

from __future__ import annotations

from collections.abc import Sequence

from koordlet.admin.model.nri import NriView
from koordlet.decision.metrics import BUCKETS_MS
from koordlet.nri.status import Durations, Phase, Status
from koordlet.nri.versions import why_not
from koordlet.report import metrics as r
from koordlet.report.registry import Histogram, Metrics


def nri_view(status: Status, now: float, *, awaited: bool) -> NriView:
    """``now``: unix seconds. ``awaited``: see NriView."""
    waits = status.phase is not Phase.CONNECTED and status.next_attempt_at is not None
    connected = status.phase is Phase.CONNECTED
    no_push = why_not(status.runtime_name, status.nri_version) if connected else ""
    return NriView(
        enabled=True,
        connected=connected,
        awaited=awaited,
        phase=status.phase,
        socket=status.socket,
        since=status.since,
        runtime=status.runtime_name,
        version=status.runtime_version,
        pods=status.pods,
        containers=status.containers,
        events=dict(sorted(status.events.items())),
        adjusted=status.adjusted,
        updated=status.updated,
        pushed=status.pushed,
        pushes=connected and not no_push,
        no_push_why=no_push,
        refused=status.refused,
        errors=status.errors,
        last_error=status.last_error,
        reconnects=max(0, status.sessions - 1),
        next_attempt_s=max(0.0, (status.next_attempt_at or now) - now) if waits else None,
        handler_p50_ms=percentile_ms(list(status.durations.values()), 0.5),
        handler_p99_ms=percentile_ms(list(status.durations.values()), 0.99),
    )


def percentile_ms(durations: Sequence[Durations], share: float) -> float | None:
    """The quantile of all of them together, interpolated inside its bucket; what is above
    all buckets counts as the last bound. None when there is nothing."""
    counts: list[int] = [sum(each) for each in zip(*(d.counts for d in durations), strict=True)]
    rank: float = share * sum(counts)
    if not rank:
        return None
    bounds: tuple[float, ...] = BUCKETS_MS
    below, lower = 0, 0.0
    for count, upper in zip(counts, bounds, strict=False):
        if below + count >= rank:
            return lower + (upper - lower) * (rank - below) / count
        below, lower = below + count, upper
    return bounds[-1]


def publish_nri(metrics: Metrics, status: Status) -> None:
    """On the metrics page."""
    metrics.set(r.NRI_CONNECTED, status.phase is Phase.CONNECTED)
    metrics.set(r.NRI_ERRORS, status.errors)
    metrics.set(r.NRI_RECONNECTS, max(0, status.sessions - 1))
    metrics.replace(r.NRI_EVENTS, {(event,): n for event, n in status.events.items()})
    metrics.histograms[r.NRI_HANDLER_DURATION] = {
        (method,): Histogram(list(each.counts), each.sum_ms / 1000)
        for method, each in status.durations.items()
    }
