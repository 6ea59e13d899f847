"""An incident in sentences: when, who suffered and from what, what koordlet did. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import fsum

from koordlet.decision.plan import Result
from koordlet.decision.record import Kind
from koordlet.drawing.clock import clock, span, stretch, zone
from koordlet.drawing.heat_map import figure
from koordlet.history.happened import (
    ALARMS,
    CONFLICTS,
    DAEMON,
    EVICTIONS,
    INTERFERENCE,
    Group,
)
from koordlet.history.incident import Incident, NodeCpu
from koordlet.history.suffering import CPU, MINUTE_S, THROTTLED, Suffering, Values, Worst
from koordlet.history.waits import RESOURCES

NAMED = 3
"""Sufferers, and victims of an eviction, that a sentence names."""
CHANGES = frozenset({Result.WRITTEN, Result.RESTORED, "answered"})
WOULD_BE = frozenset({Result.WOULD_WRITE, Result.WOULD_RESTORE, "would-answer"})
_GIB = 1 << 30
_NOT_DECISIONS = frozenset({ALARMS, CONFLICTS, DAEMON})


def title(found: Incident) -> str:
    where = found.node.name or "this node"
    return f"Incident on {where}, {stretch(found.start, found.end)}"


def sentences(found: Incident) -> list[str]:
    """One paragraph each."""
    return [
        *_node(found),
        *_sufferers(found.suffering),
        *_worst(found),
        *_did(found),
        *_limit(found.cpu),
        *_waits(found),
        *_verdicts(found),
    ]


def mean(values: Values) -> float | None:
    """Of what is known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def length(seconds: float) -> str:
    """``3 min``, where that is all of it."""
    whole, rest = divmod(seconds, MINUTE_S)
    return f"{whole:.0f} min" if whole < 120 and not rest else span(seconds)


def _node(found: Incident) -> Iterator[str]:
    node, cpu = found.node, found.cpu
    used = mean(cpu.used)
    size = []
    if node.cpu_cores:
        size.append(f"{node.cpu_cores:g} CPUs")
    if node.memory_bytes:
        size.append(f"{node.memory_bytes / _GIB:.1f} GiB of memory")
    length = f"{span(found.end - found.start)}, times in {zone(found.start)}"
    yield f"{stretch(found.start, found.end)} ({length}), read from {found.source}."
    if used is None:
        return
    most, at = _highest(cpu.used, cpu)
    share = f", {100 * used / node.cpu_cores:.0f} % of it" if node.cpu_cores else ""
    parts = [
        f"{name} {value:.2f}"
        for name, values in (("LS", cpu.ls), ("BE", cpu.be), ("the system", cpu.system))
        if (value := mean(values)) is not None
    ]
    about = f" ({', '.join(size)})" if size else ""
    yield (
        f"The node{about} used {used:.2f} cores on average{share}: "
        f"{', '.join(parts) or 'by class not known'}; at most {most:.2f}, at {clock(at)}."
    )


def _sufferers(found: Suffering) -> Iterator[str]:
    suffered = [each for each in found.sufferers if each.suffered]
    if not suffered:
        if found.sufferers:
            yield (
                f"No latency-sensitive work suffered: in no {_step(found)} did any of it wait "
                f"{CPU.limit:g} % of the time for a CPU, memory or a disk, or did its own limit "
                f"stop it in {THROTTLED.limit:g} % of its periods."
            )
        return
    told = [
        f"{each.who.title} for {length(each.suffered_s)} (at worst, from "
        f"{clock(found.at(each.worst.step))} on, it {_words(each.worst)})"
        for each in suffered[:NAMED]
    ]
    more = len(suffered) - len(told)
    yield (
        f"{len(suffered)} of {len(found.sufferers)} latency-sensitive workloads suffered: "
        f"{'; '.join(told)}{f'; and {more} more' if more else ''}."
    )


def _step(found: Suffering) -> str:
    return "minute" if found.step_s == MINUTE_S else length(found.step_s)


def _words(worst: Worst) -> str:
    whole = "its periods" if worst.cause is THROTTLED else "the time"
    return f"{worst.cause.words} {worst.percent:.0f} % of {whole}"


def _worst(found: Incident) -> Iterator[str]:
    suffering, cpu = found.suffering, found.cpu
    if suffering.worst_step is None or not any(each.suffered for each in suffering.sufferers):
        return
    start = suffering.at(suffering.worst_step)
    parts = []
    for name, values in (("the node used", cpu.used), ("LS", cpu.ls), ("BE", cpu.be)):
        value = mean(_within(values, cpu, start, start + suffering.step_s))
        if value is not None:
            parts.append(f"{name} {value:.2f}")
    limit = mean(_within(cpu.limit, cpu, start, start + suffering.step_s))
    of = f" (limit {limit:.2f})" if limit is not None else ""
    figures = f": in cores, {', '.join(parts)}{of}" if parts else ""
    yield f"The worst {_step(suffering)} for all of them together began at {clock(start)}{figures}."


def _did(found: Incident) -> Iterator[str]:
    did = found.happened
    groups = [group for group in did.groups if group.lane not in _NOT_DECISIONS]
    parts = []
    for verb, results in (("changed", CHANGES), ("would have changed", WOULD_BE)):
        done = (group for group in groups if group.result in results)
        by_owner = _counted(done, lambda group: group.owner)
        if by_owner:
            names = ", ".join(f"{owner} {count}" for owner, count in by_owner.most_common())
            parts.append(f"{verb} {by_owner.total()} values ({names})")
    evicted = [each for each in did.moments if each.lane == EVICTIONS]
    if evicted:
        names = ", ".join(f"{each.subject} at {clock(each.time)}" for each in evicted[:NAMED])
        more = f" and {len(evicted) - NAMED} more" if len(evicted) > NAMED else ""
        ends = _counted((g for g in did.groups if g.lane == EVICTIONS), lambda group: group.result)
        counted = ", ".join(f"{count} {result}" for result, count in ends.most_common())
        parts.append(f"had evictions: {counted} ({names}{more})")
    if did.counts[CONFLICTS]:
        parts.append(f"met another writer ({did.counts[CONFLICTS]} times)")
    alarms = [group for group in did.groups if group.lane == ALARMS]
    if alarms:
        first = min(group.first for group in alarms)
        count = did.counts[ALARMS]
        parts.insert(0, f"recorded {count} alarm{'s' * (count > 1)}, the first at {clock(first)}")
    if parts:
        yield f"koordlet {', '.join(parts)}."
    else:
        yield "koordlet changed nothing, and nothing alarmed it."


def _limit(cpu: NodeCpu) -> Iterator[str]:
    known = [value for value in cpu.limit if value is not None]
    if not known:
        return
    low, high = min(known), max(known)
    if high - low < 0.005:
        yield f"Best-effort work might use {high:.2f} cores all the time."
        return
    at = cpu.start + cpu.limit.index(low) * cpu.step_s
    yield (
        f"The limit of best-effort work was between {low:.2f} and {high:.2f} cores, lowest from "
        f"{clock(at)} on."
    )


def _waits(found: Incident) -> Iterator[str]:
    for matrix in found.waits.matrices:
        if not matrix.rows:
            continue
        values = [value or 0.0 for value in matrix.values[0]]
        most = max(values)
        culprit = matrix.columns[values.index(most)]
        yield (
            f"{matrix.rows[0]} waited longest for {RESOURCES[matrix.resource]}: "
            f"{figure(fsum(values))} s in all, {figure(most)} s of it because of {culprit}."
        )


def is_verdict(group: Group) -> bool:
    """Whether it says who disturbed whom."""
    return group.owner == INTERFERENCE and group.result == Kind.NOTE


def _verdicts(found: Incident) -> Iterator[str]:
    groups = [group for group in found.happened.groups if is_verdict(group)]
    if not groups:
        return
    groups.sort(key=lambda group: group.first)
    said = [f"from {clock(group.first)} on, {group.text}" for group in groups[:NAMED]]
    more = f"; and {len(groups) - NAMED} more" if len(groups) > NAMED else ""
    yield f"Strategy {INTERFERENCE} found: {'; '.join(said)}{more}."


def _highest(values: Values, cpu: NodeCpu) -> tuple[float, float]:
    """The value, and the time that its step begins."""
    most = max(value for value in values if value is not None)
    return most, cpu.start + values.index(most) * cpu.step_s


def _within(values: Sequence[float | None], cpu: NodeCpu, start: float, end: float) -> Values:
    """Those of steps that begin in the time, or of the one that it begins in."""
    first = int((start - cpu.start) // cpu.step_s)
    last = max(int(-((cpu.start - end) // cpu.step_s)), first + 1)
    return list(values[max(first, 0) : last])


def _counted(groups: Iterable[Group], of: Callable[[Group], str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for group in groups:
        found[of(group)] += group.count
    return found
