"""Everything a post-mortem of a time needs, gathered from one source. Bounded: by steps, by those
who suffered most, by what is listed one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from koordlet.admin.client import Fault, RefusedError
from koordlet.decision import metrics as k
from koordlet.decision.metrics import Metric
from koordlet.decision.record import PodKind
from koordlet.decision.snapshot import WHOLE_NODE
from koordlet.diagnosis.who import Key, Node, Who, everybody, node
from koordlet.drawing.clock import date, nice_step, stretch
from koordlet.history.happened import Happened, happened
from koordlet.history.source import Range, Series, Source
from koordlet.history.suffering import (
    CAUSES,
    KINDS,
    PSI_MATCH,
    THROTTLED,
    Cause,
    Sufferer,
    Suffering,
    Values,
    scaled,
    suffering,
)
from koordlet.history.verdicts import verdicts
from koordlet.history.waits import RESOURCES, Waits, waits

STEPS = 240
"""About how many points a curve has."""
LEAST_STEP_S = 5.0
"""On a busy machine a round may come some seconds late, and be no gap."""
SHOWN = 6
"""Whose curves are drawn."""
PSI_STEP_S = 10.0
"""Pressure is collected so often by default; in shorter steps its curves would be dots."""
SHORTEST_GAP_S = 10.0
"""Shorter ones are a busy machine, and not listed."""
_MILLI = 1000.0


class Curve(NamedTuple):
    """``values`` of steps from ``start`` on."""

    start: float
    step_s: float
    values: Values


class NodeCpu(NamedTuple):
    """In cores, step by step; ``limit``: what best-effort work might use."""

    start: float
    step_s: float
    used: Values
    ls: Values
    be: Values
    system: Values
    limit: Values


class Close(NamedTuple):
    """One who suffered, close up: by cause in percent, and the CPU used in cores."""

    sufferer: Sufferer
    percent: Mapping[Cause, Curve]
    cpu: Curve


class Incident(NamedTuple):
    start: float
    end: float
    source: str
    node: Node
    cpu: NodeCpu
    pressure: Mapping[Cause, Curve]
    pressure_step_s: float
    suffering: Suffering
    close: tuple[Close, ...]
    happened: Happened
    waits: Waits
    missing: tuple[str, ...]


def incident(source: Source, start: float, end: float) -> Incident:
    """Raises RefusedError where the store has nothing of that time, NotReachableError."""
    step_s = max(nice_step(end - start, STEPS), LEAST_STEP_S)
    used = source.query_range(k.NODE_CPU_USAGE.kind, {}, start, end, step_s, "avg")
    if not used.series:
        raise RefusedError(Fault.NOT_FOUND, _nothing(used, start, end))
    names = everybody(source, start, end)
    found = suffering(source, names, start, end)
    psi_step_s = max(step_s, PSI_STEP_S)
    pressure = _by_cause(
        source.query_range(k.NODE_PSI.kind, PSI_MATCH, start, end, psi_step_s, "avg")
    )
    close = tuple(_close(source, each, start, end, psi_step_s) for each in found.sufferers[:SHOWN])
    did = happened(source.events(start, end), start, end, namer(names))
    seen = waits(source, names, start, end, tuple(verdicts(did.verdicts, names)))
    return Incident(
        start=start,
        end=end,
        source=source.name,
        node=node(source, start, end),
        cpu=_node_cpu(source, used, start, end),
        pressure=pressure,
        pressure_step_s=psi_step_s,
        suffering=found,
        close=close,
        happened=did,
        waits=seen,
        missing=(
            *_missing(used, names, found, pressure, did, seen, start, end),
            *(f"Could not be read: {each}." for each in source.damaged),
        ),
    )


def namer(names: Mapping[Key, Who]) -> Callable[[str], str]:
    """How people call a cgroup: by the pod or application that it is of, or is inside."""
    titles = {who.cgroup: who.title for who in names.values() if who.cgroup}

    def named(cgroup: str) -> str:
        if cgroup == WHOLE_NODE:
            return "the node"
        above = cgroup
        while above and above not in titles:
            above = above.rpartition("/")[0]
        return titles[above] if above else cgroup

    return named


def _node_cpu(source: Source, used: Range, start: float, end: float) -> NodeCpu:
    def values(metric: Metric, match: Mapping[str, str], factor: float = 1.0) -> Values | None:
        found = source.query_range(metric.kind, match, start, end, used.step_s, "avg").series
        return scaled(found[0].values, factor) if found else None

    nothing: Values = [None] * used.steps
    node_used = used.series[0].values
    system = values(k.SYS_CPU_USAGE, {}) or nothing
    be = values(k.NODE_BE, {"be_resource": "cpu", "be_allocation": "usage"}, 1 / _MILLI)
    limit = values(k.NODE_BE, {"be_resource": "cpu", "be_allocation": "real-limit"}, 1 / _MILLI)
    if be is None and limit is None:  # there was no best-effort work
        be = [None if value is None else 0.0 for value in node_used]
    be = be or nothing
    return NodeCpu(
        start=used.start,
        step_s=used.step_s,
        used=node_used,
        ls=list(map(_rest, node_used, system, be)),
        be=be,
        system=system,
        limit=limit or nothing,
    )


def _rest(used: float | None, system: float | None, be: float | None) -> float | None:
    """What is neither system nor best-effort."""
    if used is None or system is None or be is None:
        return None
    return max(used - system - be, 0.0)


def _by_cause(whole: Range) -> dict[Cause, Curve]:
    by_name = {cause.name: cause for cause in CAUSES}
    return {
        by_name[each.labels["psi_resource"]]: Curve(whole.start, whole.step_s, each.values)
        for each in whole.series
        if each.labels["psi_resource"] in by_name
    }


def _close(source: Source, sufferer: Sufferer, start: float, end: float, step_s: float) -> Close:
    who = sufferer.who
    psi, throttled, cpu = KINDS[who.kind]
    match = {psi.labels[0]: who.uid if who.kind is PodKind.POD else who.name}
    percent = _by_cause(
        source.query_range(psi.kind, {**match, **PSI_MATCH}, start, end, step_s, "avg")
    )
    ratio = source.query_range(throttled.kind, match, start, end, step_s, "avg")
    for each in ratio.series:
        percent[THROTTLED] = Curve(ratio.start, ratio.step_s, scaled(each.values, 100.0))
    used = source.query_range(cpu.kind, match, start, end, step_s, "avg")
    return Close(sufferer, percent, Curve(used.start, used.step_s, _only(used.series, used.steps)))


def _only(series: Sequence[Series], steps: int) -> Values:
    return series[0].values if series else [None] * steps


def _nothing(used: Range, start: float, end: float) -> str:
    if used.oldest is None or used.newest is None:
        return "the store is empty"
    return (
        f"the store has nothing from {date(start)} to {date(end)}; it reaches from "
        f"{date(used.oldest)} to {date(used.newest)}"
    )


def _missing(
    used: Range,
    names: Mapping[Key, Who],
    found: Suffering,
    pressure: Mapping[Cause, Curve],
    did: Happened,
    seen: Waits,
    start: float,
    end: float,
) -> Iterator[str]:
    """What a reader would miss, in sentences."""
    first, last = max(used.oldest or start, start), min(used.newest or end, end)
    if first > start:
        yield f"The store begins at {date(first)}: nothing before that is known."
    least = max(2, math.ceil(SHORTEST_GAP_S / used.step_s))
    for step, after in gaps(used.series[0].values, least):
        since, until = used.start + step * used.step_s, used.start + after * used.step_s
        if first < since and until < last:
            yield f"Nothing was measured from {stretch(since, until)}."
    if last < end - used.step_s:
        yield f"The store ends at {date(last)}: nothing after that is known."
    if used.coarse_until is not None and used.coarse_until > start:
        yield (
            f"Until {date(min(used.coarse_until, end))} only coarse history is left: one value a "
            "minute by default, so that short peaks are flatter than they were."
        )
    if not names:
        yield "The store names neither pods nor applications: which of them suffered is not known."
    if not pressure:
        yield "Pressure (PSI) was not measured: this kernel has none, or the collector was off."
    if names and not found.sufferers:
        yield "Neither pressure nor throttling of latency-sensitive work was measured."
    yield from _missing_waits(seen, end)
    if not sum(did.counts.values()):
        yield "The decision log has nothing of this time: it may have been deleted, being too old."
    if did.left_out:
        yield f"{did.left_out} events are counted, and not listed one by one."


def _missing_waits(seen: Waits, end: float) -> Iterator[str]:
    measured = {matrix.resource for matrix in seen.matrices}
    unknown = [words for resource, words in RESOURCES.items() if resource not in measured]
    if seen.coarse_until is not None:
        yield (
            f"Who made whom wait is not known of the time until {date(min(seen.coarse_until, end))}"
            ": coarse history does not say how long its samples stood for."
        )
    elif len(unknown) == len(RESOURCES):
        yield "Who made whom wait was not measured."
    elif unknown:
        yield f"Who made whom wait for {' and for '.join(unknown)} was not measured."


def gaps(values: Sequence[float | None], least: int) -> Iterator[tuple[int, int]]:
    """Stretches [from, to) of at least so many steps without a value."""
    first: int | None = None
    for step, value in enumerate([*values, 0.0]):
        if value is None:
            first = step if first is None else first
        elif first is not None:
            if step - first >= least:
                yield first, step
            first = None
