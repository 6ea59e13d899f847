"""From two readings of counters to rates and quantiles. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from koordlet.collectors.waits.groups import Group, Kind
from koordlet.collectors.waits.suspicion import LEAST_SPAN_S, Recent
from koordlet.kernel.bpf.run_queue import IDLE, OLDER

MOST_CULPRITS = 8
"""Pods, applications and parts of the system that are named per victim; the others are one more
together."""
QUANTILES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
_NAMED = (Kind.POD, Kind.APPLICATION, Kind.SYSTEM)

Row = dict[Group, float]
Rows = Mapping[Group, Row]


class Part(NamedTuple):
    """A part of the time from one look to the next. ``others``, ``rest``: what share of the waits
    for other cgroups, and of all other waits, falls into it."""

    span_s: float
    others: float = 1.0
    rest: float = 1.0


class PartRows(NamedTuple):
    """Waits in a part of the time, milliseconds a second by victim and culprit."""

    span_s: float
    rows: Rows


def parts(span_s: float, others_ns: int, recent: Recent | None) -> tuple[Part, ...]:
    """The calm time and, last, the ``recent`` one, where that is known by itself; else all in one.
    ``others_ns``: waits for others in all of ``span_s``.

    Waits for others are known for the recent time as one sum, so that all cells have the same
    share; about other waits nothing more is known than how many came in all of the time.
    """
    if recent is None or not recent.span_s or span_s - recent.span_s < LEAST_SPAN_S:
        return (Part(span_s),)
    rest = recent.span_s / span_s
    others = min(recent.ns / others_ns, 1.0) if others_ns > 0 else rest
    return (
        Part(span_s - recent.span_s, 1.0 - others, 1.0 - rest),
        Part(recent.span_s, others, rest),
    )


def is_for_others(victim: int, culprit: int) -> bool:
    """Whether the kernel counts such a wait among those for others. Ids of cgroups, or what
    ``kernel/bpf/run_queue.py`` has beside them."""
    return culprit != victim and IDLE < culprit < OLDER


def growth(
    now: Mapping[int, Mapping[int, int]], before: Mapping[int, Mapping[int, int]]
) -> dict[int, dict[int, int]]:
    """By how much each counter has grown; what did not is left out. A counter below its earlier
    value began anew: the kernel made room meanwhile."""
    grown: dict[int, dict[int, int]] = {}
    nothing: Mapping[int, int] = {}
    for victim, row in now.items():
        last = before.get(victim, nothing)
        for culprit, value in row.items():
            then = last.get(culprit, 0)
            difference = value - then if value >= then else value
            if difference > 0:
                grown.setdefault(victim, {})[culprit] = difference
    return grown


def rows(
    grown_ns: Mapping[int, Mapping[int, int]],
    victim_of: Mapping[int, Group],
    culprit_of: Callable[[int], Group],
    part: Part,
) -> dict[Group, Row]:
    """Milliseconds of waiting each second in this part of the time, by victim and culprit. What a
    victim's own cgroups did is ``self``."""
    found: dict[Group, Row] = {}
    for victim_id, row in grown_ns.items():
        victim = victim_of.get(victim_id)
        if victim is None:
            continue
        into = found.setdefault(victim, {})
        for culprit_id, ns in row.items():
            share = part.others if is_for_others(victim_id, culprit_id) else part.rest
            culprit = culprit_of(culprit_id)
            if culprit == victim:
                culprit = Group(Kind.SELF, "")
            into[culprit] = into.get(culprit, 0.0) + ns * share / 1e6 / part.span_s
    return found


def worst(row: Row) -> Row:
    """Return at most MOST_CULPRITS that have names, the rest as one."""
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


def slots_since(now: tuple[int, ...], before: tuple[int, ...] | None) -> tuple[int, ...]:
    """Slot by slot, what came on top. A distribution below its earlier one began anew."""
    if now is before:  # most cgroups are idle
        return (0,) * len(now)
    if before is None or sum(now) < sum(before):
        return now
    return tuple(value - then for value, then in zip(now, before, strict=True))


def added(distributions: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Slot by slot."""
    if len(distributions) == 1:
        return distributions[0]
    return tuple(map(sum, zip(*distributions, strict=True)))
