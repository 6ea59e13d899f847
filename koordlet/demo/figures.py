"""Figures of an arm, from what was seen in its slices. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from koordlet.demo.meter import Reading, used
from koordlet.demo.model import ArmResult, Moment, Request, Sample, Settings, Slice, Waits
from koordlet.demo.slices import DROP_S
from koordlet.demo.stage import BE, LS
from koordlet.demo.stats import be_share_of_left, percentile


def slice_of(
    arm: str,
    number: int,
    readings: Sequence[Reading],
    *,
    requests: tuple[Request, ...],
    client_s: float = 0.0,
    waits: Waits | None = None,
    work: tuple[int, int] | None = None,
) -> Slice:
    """``readings``: from the beginning of what is measured to its end, at least two. ``client_s``:
    CPU seconds of the load generator meanwhile; ``work``: blocks hashed and MiB moved by BE."""
    first, last = readings[0], readings[-1]
    whole = used(first, last)
    ls, be, client = whole.cores[LS], whole.cores[BE], client_s / whole.seconds
    return Slice(
        arm=arm,
        number=number,
        seconds=whole.seconds,
        requests=requests,
        timeline=tuple(_sample(first.at, *pair) for pair in pairwise(readings)),
        node_cores=whole.node_cores,
        ls_cores=ls,
        client_cores=client,
        be_cores=be,
        other_cores=max(0.0, whole.node_cores - ls - be - client),
        ls_throttled_ratio=last.periods[LS].ratio_since(first.periods[LS]),
        be_throttled_ratio=last.periods[BE].ratio_since(first.periods[BE]),
        waits=waits,
        be_blocks=work[0] if work is not None else None,
        be_moved_mib=work[1] if work is not None else None,
    )


def _sample(start: float, before: Reading, after: Reading) -> Sample:
    since = used(before, after)
    return Sample(t=after.at - start, ls=since.cores[LS], be=since.cores[BE], node=since.node_cores)


def requests_between(
    requests: Iterable[Request], begins: float, ends: float
) -> tuple[Request, ...]:
    """Return those that were to be sent within, with ``t`` from ``begins``."""
    return tuple(
        Request(each.t - begins, each.latency_ms) for each in requests if begins <= each.t < ends
    )


def arm_result(
    arm: str,
    slices: Sequence[Slice],
    settings: Settings,
    *,
    best_effort: bool,
    moments: tuple[Moment, ...] = (),
) -> ArmResult:
    """``moments``: of the daemon, with ``t`` as in the result. Raises ValueError without slices."""
    if not slices:
        raise ValueError(f"arm {arm} has no slice")
    seconds = sum(each.seconds for each in slices)

    def mean(value: Callable[[Slice], float]) -> float:
        return sum(value(each) * each.seconds for each in slices) / seconds

    latencies, timeline = _one_after_the_other(slices)
    ordered = sorted(request.latency_ms for request in latencies)
    ls, be = mean(lambda s: s.ls_cores), mean(lambda s: s.be_cores)
    client = mean(lambda s: s.client_cores)
    waited, own, behind_be, others = _waits_per_s(slices, seconds)
    return ArmResult(
        arm=arm,
        seconds=seconds,
        requests=len(ordered),
        p50_ms=percentile(ordered, 0.50),
        p99_ms=percentile(ordered, 0.99),
        p999_ms=percentile(ordered, 0.999),
        ls_throttled_ratio=mean(lambda s: s.ls_throttled_ratio),
        be_throttled_ratio=mean(lambda s: s.be_throttled_ratio),
        node_utilisation_ratio=mean(lambda s: s.node_cores) / settings.cpus,
        ls_cores=ls,
        client_cores=client,
        be_cores=be,
        other_cores=mean(lambda s: s.other_cores),
        capacity_cores=settings.cpus,
        be_share_of_left_ratio=(
            be_share_of_left(settings.cpus, ls, client, be) if best_effort else None
        ),
        waited_ms_per_s=waited,
        behind_own_ms_per_s=own,
        behind_be_ms_per_s=behind_be,
        behind_others_ms_per_s=others,
        be_blocks=_sum(each.be_blocks for each in slices),
        be_moved_mib=_sum(each.be_moved_mib for each in slices),
        slices=tuple(slices),
        timeline=timeline,
        latencies=latencies,
        moments=moments,
    )


def _one_after_the_other(
    slices: Sequence[Slice],
) -> tuple[tuple[Request, ...], tuple[Sample, ...]]:
    latencies: list[Request] = []
    timeline: list[Sample] = []
    begins = 0.0
    for each in slices:
        latencies += (Request(begins + r.t, r.latency_ms) for r in each.requests)
        timeline += (Sample(begins + s.t, s.ls, s.be, s.node) for s in each.timeline)
        begins += each.seconds
    return tuple(latencies), tuple(timeline)


def moments_in(
    moments: Iterable[Moment], windows: Sequence[tuple[float, float]]
) -> tuple[Moment, ...]:
    """Return those within slices, ``t`` in s of the slices one after the other. ``windows``: begin
    and end of what was measured in each, in the same seconds as the moments' ``t``. What was
    decided in the dropped beginning of a slice stands at its begin, and before the first one at a
    negative ``t``; what happened between slices of the arm is left out."""
    found = []
    for moment in moments:
        offset = 0.0
        for number, (begins, ends) in enumerate(windows):
            first = -float("inf") if number == 0 else begins - DROP_S
            if first <= moment.t <= ends:
                t = moment.t - begins if number == 0 else max(0.0, moment.t - begins)
                found.append(msgspec.structs.replace(moment, t=offset + t))
                break
            offset += ends - begins
    return tuple(found)


def _waits_per_s(
    slices: Sequence[Slice], seconds: float
) -> tuple[float | None, float | None, float | None, float | None]:
    """Waited, and behind own, best-effort and other tasks; milliseconds a second."""
    waits = [each.waits for each in slices if each.waits is not None]
    if len(waits) < len(slices):
        return None, None, None, None
    waited = sum(each.waited_ms for each in waits) / seconds
    behind = [each.behind for each in waits if each.behind is not None]
    if len(behind) < len(slices):
        return waited, None, None, None
    return (
        waited,
        sum(each.own_ms for each in behind) / seconds,
        sum(each.be_ms for each in behind) / seconds,
        sum(each.others_ms for each in behind) / seconds,
    )


def _sum(values: Iterable[int | None]) -> int | None:
    """None where one is None: no work was really done."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)
