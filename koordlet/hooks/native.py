"""What kubelet gave a cgroup, whatever koordlet has changed since."""

from __future__ import annotations

from koordlet.decision.cpu_amounts import milli_to_quota_us
from koordlet.decision.resource import CFS_PERIOD_US, Resource
from koordlet.decision.snapshot import Resources, Snapshot
from koordlet.decision.strategy import Subject


def native(subject: Subject, snapshot: Snapshot, resource: Resource) -> int | None:
    """What kubelet asked the runtime for, else what the file held before koordlet; None where
    neither is known. In a request 0 is as good as nothing said."""
    requested = subject.container.requested if subject.container is not None else {}
    value = requested.get(resource) or snapshot.in_force.original(subject.cgroup, resource)
    return value if isinstance(value, int) else None


def period_us(subject: Subject, snapshot: Snapshot) -> int:
    """Length of the quota periods, 100 ms unless kubelet is told otherwise."""
    period = native(subject, snapshot, Resource.CPU_PERIOD_US)
    return period if period is not None and period > 0 else CFS_PERIOD_US


def native_quota_us(subject: Subject, snapshot: Snapshot) -> int | None:
    """Kubelet's CPU quota, never one that koordlet has scaled; None: no limit that is known.

    A pod of which one container has no limit has none itself, whatever its limits add up to.
    """
    container = subject.container
    requested = container.requested.get(Resource.CPU_QUOTA_US) if container is not None else None
    if not requested:
        resources = _resources(subject)
        original = snapshot.in_force.original(subject.cgroup, Resource.CPU_QUOTA_US)
        unlimited = container is None and original is not None and _positive(original) is None
        if resources.limit_cpu_milli and not unlimited:
            return milli_to_quota_us(resources.limit_cpu_milli, period_us(subject, snapshot))
        # Who told of requests has told that there is no limit. The file may still hold the one
        # that was there before a resize.
        return None if _is_told(resources) else _positive(original)
    return _positive(requested)


def _resources(subject: Subject) -> Resources:
    if subject.container is not None:
        return subject.container.resources
    return subject.pod.resources if subject.pod is not None else Resources()


def _is_told(resources: Resources) -> bool:
    return any(
        each is not None
        for each in (
            resources.request_cpu_milli,
            resources.request_memory_bytes,
            resources.limit_memory_bytes,
        )
    )


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
