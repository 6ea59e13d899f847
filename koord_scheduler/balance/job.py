"""A PodMigrationJob as the descheduler sees it, and the words of its status
(docs/reference/central.md 10.10, 10.12)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from koord_scheduler.balance.ledger import shape_of
from koord_scheduler.balance.migration_args import EVICT_DIRECTLY, MigrationArgs
from koord_scheduler.balance.world import TERMINATED, Resident
from koordlet.protocol.duration import format_duration, parse_duration
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.objects.condition import Condition
from koordlet.protocol.objects.migration import (
    PodMigrationJobSpec,
    PodMigrationJobStatus,
)
from koordlet.protocol.objects.times import instant

EVICT_REASON = "koordinator.sh/evict-reason"
EVICT_TRIGGER = "koordinator.sh/evict-trigger"
CREATED_BY = "koordinator.sh/job-created-by"
PASSED = "descheduler.koordinator.sh/passed-arbitration"
EVICT_ANYWAY = "descheduler.alpha.kubernetes.io/evict"
APPROVAL = "descheduler.koordinator.sh/approval-required"
APPROVED_BY = "descheduler.koordinator.sh/approved-by"
"""A job whose pod or which itself has the first one with ``true`` waits until a person writes a
name into the second one. Both are this project's."""
LEDGER = "descheduler.koordinator.sh/evicted-shape"
"""What `Left` says, with spaces between, so that a new process knows it when the pod is gone; this
project's. A round writes it into its jobs, arbitration into those of people when they pass."""

PENDING, RUNNING, SUCCEEDED, FAILED, ABORTED = (
    "Pending",
    "Running",
    "Succeeded",
    "Failed",
    "Aborted",
)
ENDED = (SUCCEEDED, FAILED, ABORTED)
_MOST_WORDS = 1024


class Left(NamedTuple):
    """What a migration job takes away: the pod's node, what the eviction ledger calls its workload,
    and the uid of its controller. Empty where it is not known."""

    node: str = ""
    shape: str = ""
    controller: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: str = ""
    created_s: float = 0.0
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    terminating: bool = False
    spec: PodMigrationJobSpec = PodMigrationJobSpec()
    status: PodMigrationJobStatus = PodMigrationJobStatus()

    @property
    def phase(self) -> str:
        return self.status.phase or PENDING

    @property
    def ended(self) -> bool:
        return self.phase in ENDED

    @property
    def pod_key(self) -> str:
        """Empty where the job names no pod."""
        ref = self.spec.pod_ref
        return f"{ref.namespace}/{ref.name}" if ref and ref.namespace and ref.name else ""

    @property
    def pod_uid(self) -> str:
        return self.spec.pod_ref.uid if self.spec.pod_ref else ""

    @property
    def reservation(self) -> str:
        """The name of its Reservation; empty while there is none."""
        options = self.spec.reservation_options
        ref = options.reservation_ref if options else None
        return ref.name if ref else ""

    @property
    def ttl_s(self) -> float:
        """0: none, also where it cannot be read."""
        try:
            return parse_duration(self.spec.ttl) if self.spec.ttl else 0.0
        except ProtocolError:
            return 0.0

    @property
    def passed(self) -> bool:
        return self.annotations.get(PASSED) == "true"

    @property
    def evicts(self) -> bool:
        """Its eviction is under way or done."""
        found = self.condition("Eviction")
        return found is not None and (found.status == "True" or found.reason == "Evicting")

    @property
    def left(self) -> Left:
        return Left(*self.annotations.get(LEDGER, "").split(" ")[:3])

    def ours(self, instance: str) -> bool:
        """Made by a person, or by this process: other processes' jobs are theirs."""
        return self.annotations.get(CREATED_BY, instance) == instance

    def condition(self, kind: str) -> Condition | None:
        return next((each for each in self.status.conditions if each.type == kind), None)


def left_by(resident: Resident) -> str:
    """The text of LEDGER."""
    pod = resident.pod
    return " ".join((pod.node, shape_of(pod), pod.owner.uid))


def body(
    name: str,
    resident: Resident,
    args: MigrationArgs,
    *,
    instance: str,
    trigger: str,
    reason: str,
) -> dict[str, Any]:
    """What is created for a pod that shall go."""
    options = args.default_delete_options
    spec: dict[str, Any] = {
        "podRef": {
            "namespace": resident.namespace,
            "name": resident.name,
            "uid": resident.pod.uid,
        },
        # Nobody comes in the place of a pod that is done: room for it would be kept in vain.
        "mode": EVICT_DIRECTLY if resident.pod.phase in TERMINATED else args.default_job_mode,
        "ttl": format_duration(args.job_ttl_s),
    }
    if options is not None:
        spec["deleteOptions"] = msgspec.to_builtins(options)
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {
            "name": name,
            "annotations": {
                EVICT_REASON: reason[:_MOST_WORDS],
                EVICT_TRIGGER: trigger,
                CREATED_BY: instance,
                LEDGER: left_by(resident),
            },
        },
        "spec": spec,
    }


def with_phase(
    status: PodMigrationJobStatus, phase: str, reason: str = "", message: str = ""
) -> PodMigrationJobStatus:
    """A job that succeeds has the status Complete."""
    word = "Complete" if phase == SUCCEEDED else status.status
    return replace(status, phase=phase, status=word, reason=reason, message=message[:_MOST_WORDS])


def with_condition(
    status: PodMigrationJobStatus,
    kind: str,
    value: bool,
    now_s: float,
    reason: str = "",
    message: str = "",
) -> PodMigrationJobStatus:
    """The same condition again changes nothing, not even its times."""
    message = message[:_MOST_WORDS]
    word = "True" if value else "False"
    old = next((each for each in status.conditions if each.type == kind), None)
    if old is not None and (old.status, old.reason, old.message) == (word, reason, message):
        return status
    turned = old is None or old.status != word
    made = Condition(
        type=kind,
        status=word,
        reason=reason,
        message=message,
        last_probe_time=instant(now_s),
        last_transition_time=instant(now_s) if old is None or turned else old.last_transition_time,
    )
    if old is None:
        conditions = (*status.conditions, made)
    else:
        conditions = tuple(made if each is old else each for each in status.conditions)
    return replace(status, conditions=conditions, status=kind, reason=reason, message=message)
