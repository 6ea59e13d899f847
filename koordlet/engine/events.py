"""The event ring: what happened lately, for `koordlet events` and `--follow`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from koordlet.admin.model.events import EventKind, EventView
from koordlet.decision.record import Kind, Record, is_decision, is_done, text_of

# A decision with its inputs takes some 2 KiB: 1 MiB, and half an hour of a busy node. Everything
# older is in the decision log.
RING = 500
# A follower that reads slower than this many events behind loses some; it sees the gap in the
# sequence numbers.
FOLLOWER_QUEUE = 500

_KINDS = {
    Kind.CONFLICT: EventKind.CONFLICT,
    Kind.EVICTION: EventKind.EVICTION,
    Kind.ALARM: EventKind.ALARM,
    Kind.CONFIG: EventKind.CONFIG,
    Kind.LIFECYCLE: EventKind.LIFECYCLE,
}


class Events:
    """Numbered events, kept in a ring, handed to every follower."""

    def __init__(self) -> None:
        self._ring: deque[EventView] = deque(maxlen=RING)
        self._sequence = 0
        self._followers: set[asyncio.Queue[EventView]] = set()
        self._last: dict[str, Record] = {}

    def emit(self, time: float, kind: EventKind, subject: str, text: str) -> None:
        """Something that is in no log."""
        sequence = self._sequence + 1
        self._add(EventView(sequence=sequence, time=time, kind=kind, subject=subject, text=text))

    def record(self, record: Record) -> None:
        """The same as a record of the decision log."""
        self._add(event_view(record, self._sequence + 1))
        if is_done(record):
            self._last[record.owner] = record

    def _add(self, event: EventView) -> None:
        self._sequence = event.sequence
        self._ring.append(event)
        for queue in self._followers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    @property
    def oldest(self) -> float | None:
        """Unix time of the oldest event still here."""
        return self._ring[0].time if self._ring else None

    def recent(self) -> tuple[EventView, ...]:
        """Every event still here, oldest first."""
        return tuple(self._ring)

    def recent_decisions(self, limit: int) -> tuple[Record, ...]:
        """The newest decisions, newest first."""
        found = []
        for event in reversed(self._ring):
            if event.decision is not None:
                found.append(event.decision)
                if len(found) == limit:
                    break
        return tuple(found)

    def last_decision(self, owner: str) -> Record | None:
        """What the owner did last in this run, however long ago."""
        return self._last.get(owner)

    async def stream(self, *, since: float, follow: bool) -> AsyncIterator[EventView]:
        queue: asyncio.Queue[EventView] = asyncio.Queue(FOLLOWER_QUEUE)
        if follow:
            self._followers.add(queue)
        try:
            last = 0
            for event in tuple(self._ring):
                if event.time >= since:
                    last = event.sequence
                    yield event
            while follow:
                event = await queue.get()
                if event.sequence > last:
                    yield event
        finally:
            self._followers.discard(queue)


def event_view(record: Record, sequence: int = 0) -> EventView:
    """``sequence`` 0: it is no event of this run."""
    return EventView(
        sequence=sequence,
        time=record.time,
        kind=_KINDS.get(record.kind, EventKind.DECISION),
        subject=_subject(record),
        text=_change(record) + record.why.text,
        decision=record if is_decision(record) else None,
    )


def _change(record: Record) -> str:
    """``-1 -> 120000 (written): `` before the reason of a value."""
    if record.wanted is None:
        return ""
    return f"{text_of(record.previous) or '?'} -> {text_of(record.wanted)} ({record.result}): "


def _subject(record: Record) -> str:
    """The file a record is about; the source of an alarm; else who speaks."""
    if record.cgroup and record.resource:
        return f"{record.cgroup}/{record.resource}"
    return record.cgroup or record.resource or record.owner
