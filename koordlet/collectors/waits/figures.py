"""From two readings of counters to rates and quantiles. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from koordlet.collectors.waits.groups import Group, Kind

MOST_CULPRITS = 8
"""Pods and applications that are named per victim; the others are one more together."""
QUANTILES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
_NAMED = (Kind.POD, Kind.APPLICATION)

Row = dict[Group, float]


def growth(
    now: Mapping[int, Mapping[int, int]], before: Mapping[int, Mapping[int, int]]
) -> dict[int, dict[int, int]]:
    """By how much each counter has grown; what did not is left out."""
    grown: dict[int, dict[int, int]] = {}
    nothing: Mapping[int, int] = {}
    for victim, row in now.items():
        last = before.get(victim, nothing)
        for culprit, value in row.items():
            difference = value - last.get(culprit, 0)
            if difference > 0:
                grown.setdefault(victim, {})[culprit] = difference
    return grown


def rows(
    grown_ns: Mapping[int, Mapping[int, int]],
    victim_of: Mapping[int, Group],
    culprit_of: Callable[[int], Group],
    span_s: float,
) -> dict[Group, Row]:
    """Milliseconds of waiting each second, by victim and culprit. What a victim's own cgroups did
    is ``self``."""
    found: dict[Group, Row] = {}
    for victim_id, row in grown_ns.items():
        victim = victim_of.get(victim_id)
        if victim is None:
            continue
        into = found.setdefault(victim, {})
        for culprit_id, ns in row.items():
            culprit = culprit_of(culprit_id)
            if culprit == victim:
                culprit = Group(Kind.SELF, "")
            into[culprit] = into.get(culprit, 0.0) + ns / 1e6 / span_s
    return found


def worst(row: Row) -> Row:
    """At most MOST_CULPRITS pods and applications, the rest as one."""
    named = sorted((g for g in row if g.kind in _NAMED), key=lambda g: (-row[g], g))
    kept = {group: value for group, value in row.items() if group.kind not in _NAMED}
    kept |= {group: row[group] for group in named[:MOST_CULPRITS]}
    if len(named) > MOST_CULPRITS:
        kept[Group(Kind.REST, "")] = sum(row[group] for group in named[MOST_CULPRITS:])
    return kept


def bounds_us(slot: int) -> tuple[float, float]:
    """What a slot of a distribution in the kernel is for (``programs/core.h``), microseconds."""
    unit = 1.024
    return (0.0, unit) if slot == 0 else (unit * 2 ** (slot - 1), unit * 2**slot)


def quantile_us(slots: Sequence[int], quantile: float) -> float | None:
    """By interpolation in the slot that holds it; None where nobody waited."""
    total = sum(slots)
    if not total:
        return None
    rank = quantile * total
    below = 0
    for slot, count in enumerate(slots):
        if count and below + count >= rank:
            low, high = bounds_us(slot)
            return low + (high - low) * (rank - below) / count
        below += count
    return bounds_us(len(slots) - 1)[1]


def added(distributions: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Slot by slot."""
    if len(distributions) == 1:
        return distributions[0]
    return tuple(map(sum, zip(*distributions, strict=True)))
