"""From results to charts: the arms side by side, on the same scales. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from koordlet.decision.resource import CFS_PERIOD_US
from koordlet.demo.model import ARMS, ArmResult, DemoResult, Moment, Request
from koordlet.demo.stats import of_arm, percentile
from koordlet.drawing.charts import Chart, Line, Mark
from koordlet.protocol.cpuset import parse_cpulist

_BUCKET_S = 0.25
# Above this multiple of the calmest arm's p99.9 the scale is cut, or one stalled request of the
# unmanaged arm would flatten every other curve.
_SCALE = 4.0
LATENCY = "latency of the service in ms"
CPU = "CPU in cores"


def shown(demo: DemoResult) -> list[ArmResult]:
    """Return results in the order of ``ARMS``."""
    return [result for name in ARMS if (result := of_arm(demo, name)) is not None]


def latency_charts(arms: Sequence[ArmResult]) -> Iterator[Chart]:
    most_ms = _SCALE * min((result.p999_ms for result in arms), default=1.0)
    for result in arms:
        slowest = [(r.t, r.latency_ms) for r in result.latencies if r.latency_ms > result.p99_ms]
        above = [r.latency_ms for r in result.latencies if r.latency_ms > most_ms]
        yield Chart(
            ARMS[result.arm].title,
            LATENCY,
            _seconds(arms),
            most_ms,
            _latency_lines(result.latencies),
            dots=slowest,
            note=f"▲ {len(above)} above, up to {max(above):.0f} ms" if above else "",
        )


def cpu_charts(arms: Sequence[ArmResult]) -> Iterator[Chart]:
    """Best-effort work at the bottom, so that its limit is a line over its own use."""
    for result in arms:
        limit = limits(result)
        until_end = [(result.seconds, limit[-1][1])] if limit else []
        lines = [
            Line("rest", [(s.t, max(s.node, s.ls + s.be)) for s in result.timeline], area=True),
            Line("ls", [(s.t, s.ls + s.be) for s in result.timeline], area=True),
            Line("be", [(s.t, s.be) for s in result.timeline], area=True),
            Line("limit", [*limit, *until_end], steps=True),
        ]
        marks = [_mark(moment) for moment in result.moments if moment.t <= result.seconds]
        yield Chart(
            ARMS[result.arm].title,
            CPU,
            _seconds(arms),
            result.capacity_cores,
            lines,
            marks=marks,
        )


def limits(result: ArmResult) -> list[tuple[float, float]]:
    """(time, cores that best-effort work may use) at each change; what was set in the warm-up
    holds from the beginning. No limit is the whole node."""
    found: list[tuple[float, float]] = []
    for moment in sorted(result.moments, key=lambda moment: moment.t):
        cores = _cores(moment, result.capacity_cores)
        if cores is None or moment.t > result.seconds:
            continue
        if moment.t <= 0:
            found = [(0.0, cores)]
        else:
            found.append((moment.t, cores))
    return found


def _cores(moment: Moment, capacity: float) -> float | None:
    """None for what does not limit the CPU."""
    if moment.result != "written":
        return None
    try:
        if moment.resource == "cpu.cfs_quota_us":
            quota_us = float(moment.wanted)
            return min(quota_us / CFS_PERIOD_US, capacity) if quota_us > 0 else capacity
        if moment.resource == "cpuset.cpus":
            return min(float(len(parse_cpulist(moment.wanted))), capacity)
    except ValueError:
        return capacity  # "unlimited"
    return None


def _seconds(arms: Sequence[ArmResult]) -> float:
    return max((result.seconds for result in arms), default=1.0)


def _latency_lines(requests: Sequence[Request]) -> tuple[Line, ...]:
    buckets: dict[int, list[float]] = {}
    for request in requests:
        buckets.setdefault(int(request.t / _BUCKET_S), []).append(request.latency_ms)
    middles = [((index + 0.5) * _BUCKET_S, sorted(v)) for index, v in sorted(buckets.items())]
    return (
        Line("ls thin", [(t, percentile(values, 0.50)) for t, values in middles]),
        Line("ls", [(t, percentile(values, 0.99)) for t, values in middles]),
    )


def _mark(moment: Moment) -> Mark:
    """What was decided in the warm-up stands at the left edge."""
    return Mark(max(0.0, moment.t), "decision" if moment.resource else "alarm")
