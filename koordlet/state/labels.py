"""Labels and annotations of a pod, read for the snapshot. Pure.

A value that is refused counts as absent (so a bad annotation never makes a pod less protected
than no annotation would) and becomes a fault of this pod alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

import msgspec

from koordlet.decision.facts import PodFacts
from koordlet.decision.snapshot import Container, Fault, Resources
from koordlet.protocol import keys
from koordlet.protocol.annotation_types import ContainerExtendedResources, ExtendedResourceSpec
from koordlet.protocol.annotations import parse_pod, received
from koordlet.protocol.cpuset import CPUSet
from koordlet.protocol.qos import (
    KubeQoS,
    PriorityClass,
    QoSClass,
    claimed_priority_class,
    claimed_qos,
    claimed_sub_priority,
    priority_class_with_default,
    priority_with_default,
    qos_with_default,
    raw_priority_class,
)
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY

_T = TypeVar("_T")

_BATCH_FIELDS = (
    ("request_batch_cpu_milli", "requests", BATCH_CPU),
    ("limit_batch_cpu_milli", "limits", BATCH_CPU),
    ("request_batch_memory_bytes", "requests", BATCH_MEMORY),
    ("limit_batch_memory_bytes", "limits", BATCH_MEMORY),
)


class Read(NamedTuple):
    """What the labels and annotations say, as far as a snapshot holds it."""

    raw_qos: QoSClass | None
    priority_class: PriorityClass | None
    pinned_cpus: CPUSet | None
    resources: Resources
    containers: tuple[Container, ...]
    faults: tuple[Fault, ...]


def bounded(facts: PodFacts) -> PodFacts:
    """Without the labels and annotations that nobody here reads: their author decides how large
    they are, and what a runtime reports is kept in memory and on disk."""
    return msgspec.structs.replace(
        facts,
        labels=None if facts.labels is None else received(facts.labels),
        annotations=None if facts.annotations is None else received(facts.annotations),
    )


def read_labels(facts: PodFacts, containers: tuple[Container, ...]) -> Read:
    """``containers``: those of the pod, whose batch resources the pod's annotation may add."""
    labels = facts.labels or {}
    found = parse_pod(labels, facts.annotations or {})
    subject = f"pod {facts.namespace}/{facts.name}" if facts.name else f"pod {facts.uid}"
    faults = [
        Fault(subject, f"{refusal.key} {refusal.path}".strip(), refusal.message)
        for refusal in found.refused
    ]

    def claimed(key: keys.Key[_T], claim: tuple[_T | None, str]) -> _T | None:
        """What a label says, where nothing that Kubernetes says contradicts it."""
        value, wrong = claim
        if wrong:
            faults.append(Fault(subject, key.name, wrong))
        return value

    resources = facts.resources or Resources()
    if found.extended_resources is not None:
        extended = found.extended_resources
        resources = _with_batch(resources, _sums(extended))
        containers = tuple(_with_extended(container, extended) for container in containers)
    status = found.resource_status
    raw_qos = claimed(keys.QOS_CLASS, claimed_qos(found.qos, facts.kube_qos))
    best_effort = (
        raw_qos is QoSClass.BE
        or facts.kube_qos is KubeQoS.BEST_EFFORT
        or bool(resources.request_batch_cpu_milli or resources.request_batch_memory_bytes)
    )
    raw_class = raw_priority_class(labels.get(keys.PRIORITY_CLASS.name), facts.priority)
    priority_class = claimed(
        keys.PRIORITY_CLASS,
        claimed_priority_class(raw_class, facts.priority, best_effort=best_effort),
    )
    qos = qos_with_default(raw_qos, facts.kube_qos)
    value = priority_with_default(facts.priority, priority_class_with_default(priority_class, qos))
    claimed(keys.SUB_PRIORITY, claimed_sub_priority(found.sub_priority, value))
    return Read(
        raw_qos=raw_qos,
        priority_class=priority_class,
        pinned_cpus=status.cpuset if status is not None and status.cpuset else None,
        resources=resources,
        containers=containers,
        faults=tuple(faults),
    )


def _with_extended(container: Container, extended: ExtendedResourceSpec) -> Container:
    own = extended.containers.get(container.name)
    if own is None:
        return container
    return msgspec.structs.replace(
        container, resources=_with_batch(container.resources, _amounts(own))
    )


def _amounts(own: ContainerExtendedResources) -> dict[str, int]:
    """Milli-cores and bytes: tier resources are plain integers (docs/reference/protocol.md 3.1)."""
    lists = {"requests": own.requests, "limits": own.limits}
    return {
        field: lists[which][name].value
        for field, which, name in _BATCH_FIELDS
        if name in lists[which]
    }


def _sums(extended: ExtendedResourceSpec) -> dict[str, int]:
    """Over the containers. A limit that one container lacks is no limit of the pod."""
    amounts = [_amounts(own) for own in extended.containers.values()]
    sums = {}
    for field, which, _ in _BATCH_FIELDS:
        given = [amount[field] for amount in amounts if field in amount]
        if given and (which == "requests" or len(given) == len(amounts)):
            sums[field] = sum(given)
    return sums


def _with_batch(resources: Resources, batch: Mapping[str, int]) -> Resources:
    """The pod spec, where a source knows it, goes before the annotation."""
    missing = {field: n for field, n in batch.items() if getattr(resources, field) is None}
    return msgspec.structs.replace(resources, **missing)
