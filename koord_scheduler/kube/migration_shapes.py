"""What the descheduler watches besides nodes: migration jobs and workloads."""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from koord_scheduler.balance.job import Job
from koord_scheduler.balance.migration import ReservationFacts
from koord_scheduler.balance.reservation import ORDER
from koord_scheduler.kube.reservation_shapes import ReservationObject
from koord_scheduler.kube.shapes import Owner
from koord_scheduler.model.reading import instant_s
from koordlet.kube.errors import UnusableError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Metadata, Object, Shape
from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.objects.migration import PodMigrationJobSpec, PodMigrationJobStatus
from koordlet.protocol.objects.reservation import ReservationSpec, ReservationStatus

_SCHEDULING = ("scheduling.koordinator.sh", "v1alpha1")


class DatedMetadata(Metadata, frozen=True):
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[Owner, ...] = ()


class PodMigrationJob(Object, frozen=True):
    metadata: DatedMetadata = DatedMetadata()
    spec: PodMigrationJobSpec = PodMigrationJobSpec()
    status: PodMigrationJobStatus = PodMigrationJobStatus()

    @property
    def job(self) -> Job:
        meta = self.metadata
        return Job(
            name=meta.name,
            uid=meta.uid,
            created_s=instant_s(meta.creation_timestamp) or 0.0,
            labels=meta.labels,
            annotations=meta.annotations,
            terminating=meta.deletion_timestamp is not None,
            spec=self.spec,
            status=self.status,
        )


def reservation_facts(item: ReservationObject) -> ReservationFacts:
    """Raises UnusableError for what is no Reservation."""
    meta = item.metadata
    try:
        spec = msgspec.json.decode(item.spec, type=ReservationSpec)
        status = ReservationStatus()
        if item.status:
            status = msgspec.json.decode(item.status, type=ReservationStatus)
    except UNREADABLE as error:
        raise UnusableError(f"reservation {meta.name}: {error}") from None
    return ReservationFacts(
        name=meta.name, uid=meta.uid, ordered=ORDER in meta.labels, spec=spec, status=status
    )


class _Replicas(Shape, frozen=True):
    replicas: int | None = None


class Scaled(Object, frozen=True):
    """A workload by what limits look at."""

    metadata: DatedMetadata = DatedMetadata()
    spec: _Replicas = _Replicas()

    def __post_init__(self) -> None:
        for name in ("labels", "annotations"):
            force_setattr(self.metadata, name, {})

    @property
    def replicas(self) -> int:
        """1 where nothing is said, as in Kubernetes."""
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def controller(self) -> Owner | None:
        return next((each for each in self.metadata.owner_references if each.controller), None)


JOBS = Kind(*_SCHEDULING, "PodMigrationJob", "podmigrationjobs", False, PodMigrationJob)
REPLICA_SETS = Kind("apps", "v1", "ReplicaSet", "replicasets", True, Scaled)
DEPLOYMENTS = Kind("apps", "v1", "Deployment", "deployments", True, Scaled)
STATEFUL_SETS = Kind("apps", "v1", "StatefulSet", "statefulsets", True, Scaled)
