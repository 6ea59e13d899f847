"""What comes next for a PodMigrationJob, from what is there (docs/reference/central.md 10.12).

`advance` is pure: the caller reads the facts, carries out the actions in their order, and writes
the status. An action that fails ends the pass; the status says so where `failed` knows a word.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from koord_scheduler.balance.job import (
    EVICT_ANYWAY,
    FAILED,
    RUNNING,
    SUCCEEDED,
    Job,
    with_condition,
    with_phase,
)
from koord_scheduler.balance.migration_args import EVICT_DIRECTLY, MigrationArgs
from koord_scheduler.balance.reservation import reservation_body
from koordlet.protocol.objects.migration import PodMigrationJobStatus
from koordlet.protocol.objects.reservation import (
    ObjectReference,
    ReservationSpec,
    ReservationStatus,
)

AGAIN_S = 3.0
WAITING = "Waiting"
"""The reason of a job that others hold back; this project's word."""
Tree = dict[str, Any]


class PodFacts(NamedTuple):
    """A pod as it is now; ``tree`` is the whole object."""

    uid: str
    node: str
    ready: bool
    scheduled: bool
    tree: Tree


class ReservationFacts(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: str = ""
    ordered: bool = False
    spec: ReservationSpec
    status: ReservationStatus = ReservationStatus()

    @property
    def refused(self) -> str | None:
        """Why it cannot be placed; None where nothing says that it cannot."""
        for each in self.status.conditions:
            if each.type == "Scheduled" and each.status == "False":
                return each.message if each.reason == "Unschedulable" else None
        return None

    @property
    def expired(self) -> bool:
        return any(
            each.type == "Ready" and each.reason == "Expired" for each in self.status.conditions
        )

    @property
    def for_pending_pod(self) -> bool:
        return any(each.object is not None and each.object.uid for each in self.spec.owners)


class Facts(NamedTuple):
    """``pod`` is None where it is gone, or another one has its name. ``bound``: the pod that took
    the reservation. ``limited``: why the pod's workload may not lose one now."""

    pod: PodFacts | None = None
    reservation: ReservationFacts | None = None
    bound: PodFacts | None = None
    limited: str | None = None


class CreateReservation(NamedTuple):
    """One of this name that exists is taken over."""

    body: Tree


class OrderReservation(NamedTuple):
    name: str
    order_ms: int


class DeleteReservation(NamedTuple):
    name: str


class PatchSpec(NamedTuple):
    """A merge patch of the job's spec."""

    changes: Tree


class Evict(NamedTuple):
    """Within the rate of all evictions; the object limiter counts it."""

    uid: str


Action = CreateReservation | OrderReservation | DeleteReservation | PatchSpec | Evict


class Step(NamedTuple):
    """``again_s``: when to look again where nothing else changes; None: no need to."""

    status: PodMigrationJobStatus
    actions: tuple[Action, ...] = ()
    again_s: float | None = None


class _Evicted(NamedTuple):
    done: bool
    step: Step


def advance(job: Job, facts: Facts, args: MigrationArgs, now_s: float) -> Step:
    status, spec = job.status, job.spec
    if spec.paused or job.ended:
        return Step(status)
    if job.ttl_s > 0 and now_s - job.created_s >= job.ttl_s:
        text = f"not done within {spec.ttl}"
        actions = (DeleteReservation(job.reservation),) if job.reservation else ()
        return Step(with_phase(status, FAILED, "Timeout", text), actions)
    early: tuple[Action, ...] = ()
    if status.phase != RUNNING:
        if not job.pod_key:
            text = "spec.podRef needs namespace and name"
            return _fail(status, "InvalidPodRef", text)
        if facts.pod is None:
            return _fail(status, "MissingPod", f"pod {job.pod_key} is gone")
        if not job.pod_uid:
            early = (PatchSpec({"podRef": {"uid": facts.pod.uid}}),)
            job = replace(job, spec=_with_uid(job, facts.pod.uid))
        status = with_phase(status, RUNNING)
    if facts.limited is not None and job.annotations.get(EVICT_ANYWAY) is None:
        return Step(held_back(status, facts.limited), early, AGAIN_S)
    if status.reason == WAITING:
        status = replace(status, reason="", message="")
    mode = spec.mode or args.default_job_mode
    following = _directly if mode == EVICT_DIRECTLY else _with_reservation
    step = following(replace(job, status=status), facts, now_s)
    return step._replace(actions=(*early, *step.actions))


def held_back(status: PodMigrationJobStatus, why: str) -> PodMigrationJobStatus:
    """Return a status that says what it waits for."""
    return replace(status, reason=WAITING, message=why[:1024])


def failed(step: Step, action: Action, text: str, now_s: float) -> PodMigrationJobStatus | None:
    """The status after an action that failed; None: as before, the pass is made again."""
    before = _without(step.status, "Eviction") if isinstance(action, Evict) else step.status
    match action:
        case CreateReservation():
            return with_condition(
                before, "ReservationCreated", False, now_s, "FailedCreateReservation", text
            )
        case Evict():
            return with_condition(before, "Eviction", False, now_s, "FailedEvict", text)
    return None


def _fail(status: PodMigrationJobStatus, reason: str, text: str) -> Step:
    return Step(with_phase(status, FAILED, reason, text))


def _done(status: PodMigrationJobStatus) -> Step:
    return Step(with_phase(status, SUCCEEDED))


def _directly(job: Job, facts: Facts, now_s: float) -> Step:
    evicted = _evict(job, facts, now_s, reserved=False)
    return _done(evicted.step.status) if evicted.done else evicted.step


def _with_reservation(job: Job, facts: Facts, now_s: float) -> Step:
    status = job.status
    if not job.reservation:
        if facts.pod is None:
            return _fail(status, "MissingPod", f"pod {job.pod_key} is gone")
        body = reservation_body(job, facts.pod.tree, now_s)
        ref = {"kind": "Reservation", "name": body["metadata"]["name"]}
        ref["apiVersion"] = body["apiVersion"]
        options = {"reservationOptions": {"reservationRef": ref}}
        # The watch tells of the job's new spec, which goes on from there.
        return Step(status, (CreateReservation(body), PatchSpec(options)))
    found = facts.reservation
    early: tuple[Action, ...] = ()
    if found is not None and not found.ordered:
        early = (OrderReservation(found.name, int(now_s * 1000)),)
    status = with_condition(status, "ReservationCreated", True, now_s)
    if found is None:
        return _fail(status, "MissingReservation", f"Reservation {job.reservation} is gone")
    if found.refused is not None:
        status = with_condition(
            status, "ReservationScheduled", False, now_s, "Unschedulable", found.refused
        )
    phase, node = found.status.phase, found.status.node_name
    if phase in ("", "Pending"):
        return Step(status, early, AGAIN_S)
    if phase == "Failed" and found.expired:
        return _fail(status, "ReservationExpired", f"Reservation {found.name} expired")
    if not node:
        text = found.refused or f"Reservation {found.name} got no node"
        return _fail(status, "Unschedulable", text)
    own = facts.pod is not None and facts.pod.node == node and not found.for_pending_pod
    if own:
        return _fail(status, "ForbiddenMigratePod", f"the reservation is on {node}, as the pod")
    status = replace(status, node_name=node)
    status = with_condition(status, "ReservationScheduled", True, now_s)
    job = replace(job, status=status)
    if found.for_pending_pod:
        step = _until_scheduled(job, facts, found, now_s)
    else:
        evicted = _evict(job, facts, now_s, reserved=True)
        step = _until_ready(evicted.step.status, facts, now_s) if evicted.done else evicted.step
    return step._replace(actions=(*early, *step.actions))


def _until_scheduled(job: Job, facts: Facts, found: ReservationFacts, now_s: float) -> Step:
    """The pod had no node yet: it goes where the reservation is by itself."""
    if facts.pod is None:
        return _fail(job.status, "MissingPod", f"pod {job.pod_key} is gone")
    if facts.pod.scheduled:
        return _done(with_condition(job.status, "PodScheduled", True, now_s))
    if found.status.phase == "Succeeded" and all(
        each.uid != facts.pod.uid for each in found.status.current_owners
    ):
        text = f"Reservation {found.name} was taken by another pod"
        return _fail(job.status, "ForbiddenMigratePod", text)
    return Step(with_condition(job.status, "PodScheduled", False, now_s), (), AGAIN_S)


def _evict(job: Job, facts: Facts, now_s: float, *, reserved: bool) -> _Evicted:
    status = job.status
    known = job.condition("Eviction")
    if known is not None and known.status == "True":
        return _Evicted(True, Step(status))
    if facts.pod is None or (job.pod_uid and facts.pod.uid != job.pod_uid):
        if known is None or known.reason != "Evicting":
            return _Evicted(False, _fail(status, "MissingPod", f"pod {job.pod_key} is gone"))
        done = with_condition(status, "Eviction", True, now_s, "EvictComplete")
        return _Evicted(True, Step(done))
    if known is not None and known.reason == "Evicting":
        return _Evicted(False, Step(status, (), AGAIN_S))
    if reserved:
        found = facts.reservation
        if found is None:
            text = f"Reservation {job.reservation} is gone"
            return _Evicted(False, _fail(status, "MissingReservation", text))
        if found.status.phase == "Succeeded":
            text = f"Reservation {found.name} was taken by another pod"
            return _Evicted(False, _fail(status, "ForbiddenMigratePod", text))
    text = f"pod {job.pod_key} is being evicted from {facts.pod.node}"
    status = with_condition(status, "Eviction", False, now_s, "Evicting", text)
    return _Evicted(False, Step(status, (Evict(facts.pod.uid),), AGAIN_S))


def _until_ready(status: PodMigrationJobStatus, facts: Facts, now_s: float) -> Step:
    assert facts.reservation is not None
    owners = facts.reservation.status.current_owners
    if not owners:
        reason = "WaitForPodBindReservation"
        return Step(
            with_condition(status, "PodBoundReservation", False, now_s, reason), (), AGAIN_S
        )
    owner = owners[0]
    status = replace(
        status,
        pod_ref=ObjectReference(namespace=owner.namespace, name=owner.name, uid=owner.uid),
    )
    status = with_condition(status, "ReservationBound", True, now_s)
    if facts.bound is not None and not facts.bound.ready:
        reason = "WaitForBoundPodReady"
        return Step(with_condition(status, "BoundPodReady", False, now_s, reason), (), AGAIN_S)
    status = with_condition(status, "BoundPodReady", True, now_s)
    return _done(with_condition(status, "PodBoundReservation", True, now_s))


def _with_uid(job: Job, uid: str) -> Any:
    assert job.spec.pod_ref is not None
    return replace(job.spec, pod_ref=replace(job.spec.pod_ref, uid=uid))


def _without(status: PodMigrationJobStatus, kind: str) -> PodMigrationJobStatus:
    kept = tuple(each for each in status.conditions if each.type != kind)
    return replace(status, conditions=kept)
