"""The status of a PodGroup (docs/reference/central.md 3.5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PENDING, PRE_SCHEDULING, SCHEDULING, SCHEDULED, RUNNING, FINISHED, FAILED = (
    "Pending",
    "PreScheduling",
    "Scheduling",
    "Scheduled",
    "Running",
    "Finished",
    "Failed",
)
STALE_S = 48 * 3600.0
"""A group all of whose members have nodes and none of which runs is not looked at again when it is
older than this by the time it was first scheduled."""


class Status(NamedTuple):
    """``started_s``: ``scheduleStartTime`` as Unix time, None where it is not set."""

    phase: str = ""
    occupied_by: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    started_s: float | None = None


class Child(NamedTuple):
    """``owners``: ``namespace/name`` of each owner reference."""

    phase: str
    bound: bool
    owners: tuple[str, ...] = ()


def status_of(old: Status, minimum: int, children: Iterable[Child], now_s: float) -> Status:
    """One step from ``old``; the caller comes again while the result differs from it."""
    found = list(children)
    if old.phase == "":
        return old._replace(phase=PENDING)
    if old.phase == PENDING:
        if not 0 < minimum <= len(found):
            return old
        owners = next((each.owners for each in found if each.owners), ())
        return old._replace(phase=PRE_SCHEDULING, occupied_by=",".join(sorted(owners)))
    if not found:
        return old._replace(phase=PENDING)
    scheduled = sum(each.bound for each in found)
    running, succeeded, failed = (
        sum(each.phase == phase for each in found) for phase in ("Running", "Succeeded", "Failed")
    )
    phase, started_s = SCHEDULED, old.started_s
    if scheduled < minimum:
        phase = SCHEDULING
        started_s = now_s if started_s is None else started_s
    if phase == SCHEDULED and succeeded + running >= minimum:
        phase = RUNNING
    if failed and failed + running + succeeded >= minimum:
        phase = FAILED
    if succeeded >= minimum:
        phase = FINISHED
    return Status(phase, old.occupied_by, scheduled, running, succeeded, failed, started_s)


def worth_a_look(status: Status, minimum: int, created_s: float) -> bool:
    """Whether a PodGroup that is listed at the start is evaluated at all."""
    if status.phase in (FINISHED, FAILED):
        return False
    stale = (
        status.scheduled == minimum
        and status.running == 0
        and status.started_s is not None
        and status.started_s - created_s > STALE_S
    )
    return not stale
