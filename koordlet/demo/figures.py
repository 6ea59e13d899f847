"""What was seen during one arm, and the figures that follow. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from koordlet.demo.model import ArmResult, ArmSpec, Moment, Request, Sample, Settings
from koordlet.demo.sampling import CpuClock, Periods, sample
from koordlet.demo.stats import be_share_of_left, percentile


@dataclass(frozen=True)
class Observation:
    """``clocks``: CPU clocks from the first request to the end, at least two. ``periods``: CFS
    periods (before, after) of LS and BE. ``client_s``: CPU seconds of the load generator."""

    requests: tuple[Request, ...]
    clocks: tuple[CpuClock, ...]
    ls_periods: tuple[Periods, Periods]
    be_periods: tuple[Periods, Periods]
    client_s: float = 0.0
    blocks: int | None = None
    moved_mib: int | None = None
    moments: tuple[Moment, ...] = ()


def arm_result(spec: ArmSpec, repeat: int, settings: Settings, seen: Observation) -> ArmResult:
    ordered = sorted(request.latency_ms for request in seen.requests)
    first, last = seen.clocks[0], seen.clocks[-1]
    mean = sample(first, last, first.t)
    client_cores = seen.client_s / mean.t
    share = be_share_of_left(settings.cpus, mean.ls, client_cores, mean.be)
    return ArmResult(
        arm=spec.name,
        repeat=repeat,
        seconds=mean.t,
        requests=len(ordered),
        p50_ms=percentile(ordered, 0.50),
        p99_ms=percentile(ordered, 0.99),
        p999_ms=percentile(ordered, 0.999),
        ls_throttled_ratio=_throttled(seen.ls_periods),
        be_throttled_ratio=_throttled(seen.be_periods),
        node_utilisation_ratio=mean.node / settings.cpus,
        ls_cores=mean.ls,
        client_cores=client_cores,
        be_cores=mean.be,
        other_cores=max(0.0, mean.node - mean.ls - mean.be - client_cores),
        capacity_cores=settings.cpus,
        be_share_of_left_ratio=share if spec.best_effort else None,
        be_blocks=seen.blocks,
        be_moved_mib=seen.moved_mib,
        timeline=_timeline(seen.clocks),
        latencies=seen.requests,
        moments=seen.moments,
    )


def _throttled(periods: tuple[Periods, Periods]) -> float:
    before, after = periods
    return after.ratio_since(before)


def _timeline(clocks: tuple[CpuClock, ...]) -> tuple[Sample, ...]:
    start = clocks[0].t
    return tuple(sample(before, after, start) for before, after in pairwise(clocks))
