"""Which waiting jobs may begin, and in which order (docs/reference/central.md 10.11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from koord_scheduler.balance.eviction_filter import (
    Migrating,
    Migrations,
    migrating_of,
    non_retryable,
    retryable,
)
from koord_scheduler.balance.job import APPROVAL, APPROVED_BY, Job
from koord_scheduler.balance.migration_args import MigrationArgs
from koord_scheduler.balance.ordering import order_key
from koord_scheduler.balance.world import Resident, World


class Outcome(Enum):
    PASSED = "passed"
    WAITS = "waits"
    FAILED = "failed"


class Ruling(NamedTuple):
    """``why``: of all but PASSED."""

    job: Job
    outcome: Outcome
    why: str = ""


def arbitrate(
    waiting: Iterable[Job],
    world: World,
    args: MigrationArgs,
    migrating: Iterable[Migrating],
    take: Callable[[Job, Resident], str | None] = lambda _job, _resident: None,
) -> list[Ruling]:
    """``migrating``: pods of jobs that run or have passed. ``take``: the eviction
    ledger writes the eviction down, or says why not; it is asked last."""
    counted = Migrations(migrating)
    rulings = []
    jobs = ordered(waiting, world, counted.all)
    first = _first_of_each_pod(jobs)
    for job in jobs:
        if job.spec.paused:
            rulings.append(Ruling(job, Outcome.WAITS, "the job is paused"))
            continue
        if first.get(job.pod_key, job) is not job:
            rulings.append(Ruling(job, Outcome.WAITS, _again(first[job.pod_key].name)))
            continue
        resident = world.by_key.get(job.pod_key)
        if resident is None or (job.pod_uid and resident.pod.uid != job.pod_uid):
            # What is missing is said by who carries the job out.
            rulings.append(Ruling(job, Outcome.PASSED))
            continue
        same = counted.of(resident)
        if same:
            rulings.append(Ruling(job, Outcome.WAITS, _again(same[0].job)))
            continue
        why = non_retryable(args, world, resident)
        if why is not None:
            rulings.append(Ruling(job, Outcome.FAILED, why))
            continue
        why = unapproved(job, resident) or retryable(args, world, resident, counted)
        if why is not None:
            rulings.append(Ruling(job, Outcome.WAITS, why))
            continue
        why = take(job, resident)
        if why is not None:
            rulings.append(Ruling(job, Outcome.FAILED, why))
            continue
        counted.add(migrating_of(job.name, resident))
        rulings.append(Ruling(job, Outcome.PASSED))
    return rulings


def _first_of_each_pod(jobs: Iterable[Job]) -> dict[str, Job]:
    """A pod goes once: by the job that was made first."""
    first: dict[str, Job] = {}
    for job in sorted(jobs, key=lambda each: (each.created_s, each.name)):
        if job.pod_key and not job.spec.paused:
            first.setdefault(job.pod_key, job)
    return first


def _again(job: str) -> str:
    return f"job {job} is about the same pod"


def unapproved(job: Job, resident: Resident) -> str | None:
    """A person has the last word where the job or its pod says so."""
    asked = (job.annotations.get(APPROVAL), resident.pod.annotations.get(APPROVAL))
    if "true" not in asked or job.annotations.get(APPROVED_BY):
        return None
    return f"waits for a person: kubectl annotate pmj {job.name} {APPROVED_BY}=NAME"


def ordered(jobs: Iterable[Job], world: World, migrating: Iterable[Migrating]) -> list[Job]:
    """Stable sorts, so the last one dominates."""
    found = sorted(jobs, key=lambda each: (-each.created_s, each.name))
    of = {each.name: world.by_key.get(each.pod_key) for each in found}

    def pod_order(job: Job) -> tuple[object, ...]:
        resident = of[job.name]
        # The creation of the job has decided among pods that are alike otherwise.
        return (0,) if resident is None else (1, *order_key(resident)[:-2])

    found.sort(key=pod_order)
    first: dict[str, int] = {}
    for place, job in enumerate(found):
        controller = _batch(of[job.name])
        if controller:
            first.setdefault(controller, place)
    places = {job.name: place for place, job in enumerate(found)}
    found.sort(key=lambda each: first.get(_batch(of[each.name]), places[each.name]))
    counts = Counter(each.controller for each in migrating)
    found.sort(key=lambda each: -counts[controller] if (controller := _batch(of[each.name])) else 0)
    return found


def _batch(resident: Resident | None) -> str:
    """The uid of the pod's batch Job."""
    if resident is None or resident.pod.owner.kind != "Job":
        return ""
    return resident.pod.owner.uid
