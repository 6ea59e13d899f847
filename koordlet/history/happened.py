"""What koordlet did and why, and what alarmed it, over a time: grouped, counted and bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from koordlet.admin.model.events import EventKind, EventView
from koordlet.decision.names import harmless
from koordlet.decision.record import Kind, Record, text_of
from koordlet.history.verdicts import is_verdict, share_of
from koordlet.qos.interference.strategy import STRATEGY

GROUPS = 2000
MOMENTS = 400
BINS = 480
"""Of the timeline: about two columns of a screen each."""
_TEXT = 400
INTERFERENCE = STRATEGY.name
"""Its notes say who disturbed whom, each pair by a rule of its own."""
ALARMS, EVICTIONS, CONFLICTS, DAEMON = "alarms", "evictions", "conflicts", "koordlet"
_LANES = {
    EventKind.ALARM: ALARMS,
    EventKind.CONFLICT: CONFLICTS,
    EventKind.LIFECYCLE: DAEMON,
    EventKind.CONFIG: DAEMON,
}
_RARE = frozenset({EVICTIONS, CONFLICTS, DAEMON})
"""Lanes of which every event is listed."""


class Moment(NamedTuple):
    """One event worth its own line. ``subject`` and ``text`` are harmless to print."""

    time: float
    lane: str
    subject: str
    text: str


@dataclass
class Group:
    """Events that differ in time and figures alone. ``change`` and ``text``: of the last one, what
    (``-1 -> 120000``) and why. ``low`` and ``high``: of what was wanted, where those are numbers.
    """

    lane: str
    owner: str
    rule: str
    subject: str
    result: str
    count: int = 0
    first: float = 0.0
    last: float = 0.0
    change: str = ""
    low: float | None = None
    high: float | None = None
    text: str = ""


@dataclass
class Happened:
    """``bins``: events by lane and part of the time, ``BINS`` of them. ``left_out``: events for
    which there was no room in ``groups`` or ``moments``; they are in ``bins`` all the same.
    ``verdicts``: by rule of the strategy ``interference``, the highest share that it told of."""

    groups: list[Group] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    bins: dict[str, Counter[int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    left_out: int = 0
    verdicts: dict[str, float] = field(default_factory=dict)


def happened(
    events: Iterable[EventView], start: float, end: float, named: Callable[[str], str]
) -> Happened:
    """``named``: how people call a cgroup."""
    found = Happened()
    groups: dict[tuple[str, ...], Group] = {}
    for event in events:
        if event.kind in (EventKind.WORKLOAD, EventKind.REFUSED_INPUT):
            continue
        record = event.decision
        lane = _lane(event)
        found.counts[lane] += 1
        part = (event.time - start) / (end - start) if end > start else 0.0
        at = min(max(int(part * BINS), 0), BINS - 1)
        found.bins.setdefault(lane, Counter())[at] += 1
        text = _short(record.why.text if record is not None else event.text)
        subject = _subject(event, record, named)
        if lane in _RARE:
            if len(found.moments) < MOMENTS:
                found.moments.append(Moment(event.time, lane, subject, text))
            else:
                found.left_out += 1
        _add(groups, found, event, lane, subject, text)
        if record is not None and is_verdict(record):
            rule = record.why.rule
            if rule in found.verdicts or len(found.verdicts) < GROUPS:
                found.verdicts[rule] = max(found.verdicts.get(rule, 0.0), share_of(record))
    found.groups = sorted(groups.values(), key=lambda each: (-each.count, each.first))
    return found


def _add(
    groups: dict[tuple[str, ...], Group],
    found: Happened,
    event: EventView,
    lane: str,
    subject: str,
    text: str,
) -> None:
    record = event.decision
    owner, rule, result = "", "", ""
    if record is not None:
        owner, rule = record.owner, record.why.rule
        result = record.result or record.kind
    key = (lane, owner, rule, subject, result, "" if record is not None else text[:40])
    group = groups.get(key)
    if group is None:
        if len(groups) >= GROUPS:
            found.left_out += 1
            return
        group = groups[key] = Group(lane, owner, rule, subject, result, first=event.time)
    group.count += 1
    group.last, group.text = event.time, text
    if record is not None and record.wanted is not None:
        group.change = _short(f"{text_of(record.previous) or '?'} -> {text_of(record.wanted)}")
        if isinstance(record.wanted, int | float) and not isinstance(record.wanted, bool):
            wanted = float(record.wanted)
            group.low = wanted if group.low is None else min(group.low, wanted)
            group.high = wanted if group.high is None else max(group.high, wanted)


def _lane(event: EventView) -> str:
    record = event.decision
    if record is not None and record.kind is Kind.EVICTION:
        return EVICTIONS
    if event.kind in _LANES:
        return _LANES[event.kind]
    return harmless(record.owner) if record is not None else DAEMON


def _subject(event: EventView, record: Record | None, named: Callable[[str], str]) -> str:
    if record is None:
        return harmless(named(event.subject))
    who = named(record.cgroup) if record.cgroup else ""
    return harmless(" ".join(filter(None, (who, record.resource))) or record.owner)


def _short(text: str) -> str:
    text = harmless(text)
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"
