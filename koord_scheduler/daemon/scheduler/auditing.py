"""What is odd about the way of one pod or gang group to its nodes (docs/reference/central.md 9.7).

Pure: steps with their times go in, figures and alerts come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from koord_scheduler.daemon.scheduler.watching import AuditLimits


class Step(Enum):
    """By the reference's names."""

    GATED = "gatedByQueueAdmission"
    ADMITTED = "admissionPassed"
    CREATED = "create"
    SCHEDULED = "scheduled"
    NOMINATED = "preemptNominated"
    VICTIMS_LEAVE = "preemptVictimDeleting"
    NO_ROOM = "preemptFailure"
    FAILED = "scheduleFailure"
    ALL_TRIED = "gangAllPodsAlreadyAttempted"
    VICTIMS_GONE = "victimAllDeleted"
    ENOUGH_MEMBERS = "gangMinMemberSatisfied"


class Alert(Enum):
    REPEATED = "repeatedPreemption"
    INVALIDATED = "preemptionInvalidated"
    SLOW_RESCHEDULE = "slowReschedule"
    SLOW_DELETION = "slowVictimDeletion"
    INTERRUPTED = "preemptionInterrupted"
    RETRIES = "manyVictimDeletingRetries"
    SLOW_STEPS = "longSchedulingEventInterval"


class Measure(Enum):
    """What findings count (the first two) or measure."""

    REPEATED = "repeated_preemptions_total"
    INVALIDATED = "preemption_invalidations_total"
    RESCHEDULE_S = "victim_reschedule_duration_seconds"
    RETRIES = "preemption_victim_deleting_retries"
    DELETION_S = "preemption_to_victim_deleted_seconds"
    INTERRUPTED_S = "preemption_cycle_interrupted_seconds"
    INTERVAL_S = "scheduling_event_interval_seconds"


class Finding(NamedTuple):
    """``alert``: where the value is above its limit."""

    measure: Measure
    value: float
    alert: Alert | None = None


class Course(msgspec.Struct, frozen=True):
    """So far. A preemption lasts from a nomination to the end of its last victim, or to the next
    result. ``nominated_s``: since when one lasts. ``valid``: no result has taken the last
    nomination back. ``retries``: attempts while its victims leave. ``gone_s``: since when the last
    victim is gone, and no result has come. ``step_s``: of the last result of this round."""

    counts: Mapping[Step, int] = {}
    nominated_s: float | None = None
    valid: bool = False
    retries: int = 0
    gone_s: float | None = None
    step_s: float | None = None


_ROUND_BEGINS = frozenset({Step.CREATED, Step.ADMITTED, Step.ENOUGH_MEMBERS})
_FAILURES = frozenset({Step.NO_ROOM, Step.FAILED})
_RESULTS = _FAILURES | {Step.SCHEDULED, Step.NOMINATED}


def after(
    course: Course, step: Step, now_s: float, limits: AuditLimits
) -> tuple[Course, tuple[Finding, ...]]:
    """The course with this step, and what it shows."""
    found: list[Finding] = []
    number = course.counts.get(step, 0) + 1
    changed: dict[str, object] = {"counts": {**course.counts, step: number}}
    if course.valid and (step in _FAILURES or step is Step.NOMINATED):
        found.append(Finding(Measure.INVALIDATED, 1, Alert.INVALIDATED))
        changed["valid"] = False
    if step in _RESULTS and course.gone_s is not None:
        alert, took_s = Alert.SLOW_RESCHEDULE, now_s - course.gone_s
        found.append(_weighed(Measure.RESCHEDULE_S, took_s, limits.reschedule_s, alert))
        changed["gone_s"] = None
    if step in _RESULTS or step is Step.VICTIMS_GONE:
        found += _end_of_preemption(course, now_s, limits, complete=step is Step.VICTIMS_GONE)
        changed["nominated_s"] = None
    match step:
        case Step.NOMINATED:
            if number > 1:
                found.append(Finding(Measure.REPEATED, 1, Alert.REPEATED))
            changed |= {"nominated_s": now_s, "valid": True, "retries": 0}
        case Step.VICTIMS_LEAVE:
            changed["retries"] = course.retries + 1
        case Step.VICTIMS_GONE:
            changed["gone_s"] = now_s
        case Step.GATED:
            # Nobody decides for it now, so it is not late.
            changed |= {"gone_s": None, "step_s": None}
    if step in _ROUND_BEGINS:
        changed["step_s"] = now_s
    elif step not in (Step.GATED, Step.VICTIMS_GONE):
        if course.step_s is not None:
            alert, took_s = Alert.SLOW_STEPS, now_s - course.step_s
            found.append(_weighed(Measure.INTERVAL_S, took_s, limits.interval_s, alert))
        changed["step_s"] = now_s
    return msgspec.structs.replace(course, **changed), tuple(found)


def at_end(course: Course, now_s: float, limits: AuditLimits) -> tuple[Finding, ...]:
    """What its end shows: a preemption that is not over is interrupted."""
    return _end_of_preemption(course, now_s, limits, complete=False)


def _end_of_preemption(
    course: Course, now_s: float, limits: AuditLimits, *, complete: bool
) -> tuple[Finding, ...]:
    if course.nominated_s is None:
        return ()
    took_s = now_s - course.nominated_s
    if complete:
        measure, alert = Measure.DELETION_S, Alert.SLOW_DELETION
    else:
        measure, alert = Measure.INTERRUPTED_S, Alert.INTERRUPTED
    return (
        _weighed(measure, took_s, limits.deletion_s, alert),
        _weighed(Measure.RETRIES, course.retries, limits.deleting_retries, Alert.RETRIES),
    )


def _weighed(measure: Measure, value: float, limit: float, alert: Alert) -> Finding:
    return Finding(measure, value, alert if value > limit else None)
