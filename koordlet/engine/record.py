"""Decisions and restored values as the local API shows them."""

from __future__ import annotations

from koordlet.actuator.restore import RestoreReport
from koordlet.admin.model import DecisionView, EventKind, EventView
from koordlet.admin.strategies import LastDecision
from koordlet.admin.undo import LeftoverView, RestoredView, RestoreView
from koordlet.decision.names import shown
from koordlet.decision.record import Kind, Record
from koordlet.decision.resource import Value

_EVENT = {
    Kind.CONFLICT: EventKind.CONFLICT,
    Kind.ALARM: EventKind.ALARM,
    Kind.CONFIG: EventKind.CONFIG,
    Kind.LIFECYCLE: EventKind.LIFECYCLE,
}
_DONE = frozenset({Kind.WRITE, Kind.REFUSAL, Kind.CONFLICT, Kind.EVICTION})
_OF_OWNERS = frozenset({Kind.WRITE, Kind.REFUSAL, Kind.CONFLICT, Kind.NOTE, Kind.EVICTION})


def decision_view(record: Record) -> DecisionView:
    return DecisionView(
        time=record.time,
        owner=record.owner,
        result=record.result or str(record.kind),
        why=record.why,
        wake=record.wake,
        cgroup=record.cgroup,
        resource=record.resource,
        previous=text_of(record.previous),
        wanted=text_of(record.wanted),
        detail=record.detail,
    )


def decided(record: Record) -> LastDecision | None:
    """What was done, or would be; None where the record is about nothing that was."""
    if record.kind not in _DONE:
        return None
    return LastDecision(
        time=record.time,
        target=record.cgroup,
        resource=record.resource,
        value=text_of(record.wanted),
        result=record.result,
        why=record.why.text,
    )


def event_view(record: Record, sequence: int = 0) -> EventView:
    """``sequence`` 0: it is no event of this run."""
    return EventView(
        sequence=sequence,
        time=record.time,
        kind=_EVENT.get(record.kind, EventKind.DECISION),
        subject=_subject(record),
        text=_change(record) + record.why.text,
        decision=decision_view(record) if record.kind in _OF_OWNERS else None,
    )


def restore_view(report: RestoreReport, *, dry_run: bool) -> RestoreView:
    return RestoreView(
        dry_run=dry_run,
        complete=report.ok,
        damage=report.damage,
        leftovers=tuple(LeftoverView(path=path, why=why) for path, why in report.leftovers.items()),
        values=tuple(
            RestoredView(
                cgroup=shown(item.cgroup),
                resource=item.resource,
                path=shown(item.path),
                found=text_of(item.found),
                original=text_of(item.original),
                result=item.status,
                why=item.text,
            )
            for item in report.items
        ),
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


def text_of(value: Value | None) -> str:
    return "" if value is None else str(value)
