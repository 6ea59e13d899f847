"""The decisions of the daemon during an arm, read back from its decision log."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from koordlet.decision.record import Kind, Record
from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.demo.model import Moment
from koordlet.report.decisions import DecisionLog

_SHOWN = frozenset({Kind.WRITE, Kind.REFUSAL, Kind.CONFLICT, Kind.ALARM})
_KNOW_UNLIMITED = frozenset({Resource.CPU_QUOTA_US, Resource.MEMORY_LIMIT})


def read_moments(state_dir: Path, started: float) -> tuple[Moment, ...]:
    """Oldest first, from the log in ``<state_dir>/decisions`` of a daemon that has ended.

    ``started`` is the unix time of the first request: what was decided in the warm-up has a
    negative ``t``. Empty where the log cannot be read.
    """
    log = DecisionLog(str(state_dir / "decisions"))
    try:
        return moments_of(log.read(newest_first=False), started)
    finally:
        log.close()


def moments_of(records: Iterable[Record], started: float) -> tuple[Moment, ...]:
    """The writes, refusals, conflicts and alarms among `records`, as moments."""
    return tuple(
        Moment(
            t=record.time - started,
            owner=record.owner,
            cgroup=record.cgroup,
            resource=record.resource,
            previous=_text(record.resource, record.previous),
            wanted=_text(record.resource, record.wanted),
            result=record.result or str(record.kind),
            why=record.why,
        )
        for record in records
        if record.kind in _SHOWN
    )


def _text(resource: str, value: Value | None) -> str:
    if value is None:
        return ""
    if value == "":  # of what has names or lists: nothing
        return "none"
    return "unlimited" if value == UNLIMITED and resource in _KNOW_UNLIMITED else str(value)
