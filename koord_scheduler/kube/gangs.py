"""PodGroups of the API server as gangs."""

from __future__ import annotations

from koord_scheduler.kube.gang_shapes import CorePodGroup, PodGroup
from koord_scheduler.model.reading import instant_s
from koord_scheduler.share.gang.declared import CoschedulingArgs, Gang, from_core, from_pod_group


def gang_of_group(item: PodGroup, args: CoschedulingArgs) -> Gang:
    meta = item.metadata
    return from_pod_group(
        f"{meta.namespace}/{meta.name}",
        item.spec.min_member,
        item.spec.schedule_timeout_seconds,
        meta.annotations,
        instant_s(meta.creation_timestamp) or 0.0,
        args,
    )


def gang_of_core(item: CorePodGroup, args: CoschedulingArgs) -> Gang:
    meta = item.metadata
    gang = item.spec.scheduling_policy.gang
    minimum = gang.min_count if gang is not None else None
    created_s = instant_s(meta.creation_timestamp) or 0.0
    name = f"{meta.namespace}/{meta.name}"
    constraints = item.spec.scheduling_constraints
    refused = ""
    if constraints is not None and constraints.topology:
        refused = f"topology constraints of PodGroup {name} are not supported by koord-scheduler"
    if item.spec.parent:
        refused = f"PodGroup {name} is part of a composite one: not supported by koord-scheduler"
    return from_core(name, minimum, created_s, args, refused)
