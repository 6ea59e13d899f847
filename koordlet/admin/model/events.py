"""Decisions and events for those who ask, as data."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from koordlet.decision.record import Record


class ExplainView(msgspec.Struct, frozen=True, kw_only=True):
    """Newest decision first. ``matched`` says what the target was taken for. ``ended``: kills and
    evictions of it among them or before them. ``notes``: who else writes its files by right, and
    what of the log could not be read."""

    target: str
    matched: str
    decisions: tuple[Record, ...] = ()
    ended: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()


class EventKind(StrEnum):
    DECISION = "decision"
    EVICTION = "eviction"  # somebody was ended or frozen, or would be
    ALARM = "alarm"
    CONFLICT = "conflict"
    REFUSED_INPUT = "refused-input"
    WORKLOAD = "workload"  # a pod or application came or went
    CONFIG = "config"
    LIFECYCLE = "lifecycle"  # start, ready, stop, collector failed or shed


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """``sequence`` grows by one per event of this daemon run: a gap means events were lost. It is
    0 for what the decision log tells of the time before."""

    sequence: int
    time: float
    kind: EventKind
    subject: str
    text: str
    decision: Record | None = None
