"""All that the labels and annotations of a pod or node say, bad ones put aside.

Nothing here raises: a value that is refused counts as absent and is listed in ``refused``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koordlet.protocol import annotation_types as shape
from koordlet.protocol import keys, limits
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.qos import PriorityClass, QoSClass
from koordlet.protocol.slo import CPUQOS, CPUBurstStrategy


class Refusal(msgspec.Struct, frozen=True):
    """A label or annotation that was put aside: its key, the JSON path in it, what is wrong."""

    key: str
    path: str
    message: str


class PodKeys(msgspec.Struct, frozen=True):
    """What koordlet reads from a pod. None = absent or refused."""

    qos: QoSClass | None = None
    priority_class: PriorityClass | None = None
    sub_priority: int | None = None
    eviction_enabled: bool | None = None
    core_sched_group_id: str | None = None
    core_sched_policy: str | None = None
    cpu_burst: CPUBurstStrategy | None = None
    memory_qos: shape.PodMemoryQOS | None = None
    cpu_qos: CPUQOS | None = None
    blkio_qos: shape.PodBlkIOQOS | None = None
    network_qos: shape.PodNetworkQOS | None = None
    eviction_policy: tuple[str, ...] | None = None
    """Features that may evict the pod; None = every one."""
    eviction_priority: int | None = None
    oom_score_adj: int | None = None
    oom_score_adj_spec: Mapping[str, int] | None = None
    extended_resources: shape.ExtendedResourceSpec | None = None
    resctrl: shape.Resctrl | None = None
    resource_status: shape.ResourceStatus | None = None
    device_allocated: Mapping[str, tuple[shape.DeviceAllocation, ...]] | None = None
    refused: tuple[Refusal, ...] = ()


class NodeKeys(msgspec.Struct, frozen=True):
    """What koordlet reads from its own node and its topology. None = absent or refused."""

    reservation: shape.NodeReservation | None = None
    system_qos: shape.SystemQOSResource | None = None
    cpu_normalization_ratio: float | None = None
    cpu_shared_pools: tuple[shape.CPUSharedPool, ...] | None = None
    be_cpu_shared_pools: tuple[shape.CPUSharedPool, ...] | None = None
    cpu_manager_policy: shape.CPUManagerPolicy | None = None
    pod_cpu_allocs: tuple[shape.PodCPUAlloc, ...] | None = None
    raw_allocatable: shape.ResourceList | None = None
    refused: tuple[Refusal, ...] = ()
    unread: frozenset[str] = frozenset()
    """Keys that are there, cannot be read, and never could: nobody knows what they should say."""


_POD_FIELDS: dict[str, keys.Key[Any]] = {
    "qos": keys.QOS_CLASS,
    "priority_class": keys.PRIORITY_CLASS,
    "sub_priority": keys.SUB_PRIORITY,
    "eviction_enabled": keys.EVICTION_ENABLED,
    "core_sched_group_id": keys.CORE_SCHED_GROUP_ID,
    "core_sched_policy": keys.CORE_SCHED_POLICY,
    "cpu_burst": keys.CPU_BURST,
    "memory_qos": keys.MEMORY_QOS,
    "cpu_qos": keys.CPU_QOS,
    "blkio_qos": keys.BLKIO_QOS,
    "network_qos": keys.NETWORK_QOS,
    "eviction_policy": keys.EVICTION_POLICY,
    "eviction_priority": keys.EVICTION_PRIORITY,
    "oom_score_adj": keys.OOM_SCORE_ADJ,
    "oom_score_adj_spec": keys.OOM_SCORE_ADJ_SPEC,
    "extended_resources": keys.EXTENDED_RESOURCE_SPEC,
    "resctrl": keys.RESCTRL,
    "resource_status": keys.RESOURCE_STATUS,
    "device_allocated": keys.DEVICE_ALLOCATED,
}
_NODE_FIELDS: dict[str, keys.Key[Any]] = {
    "reservation": keys.NODE_RESERVATION,
    "system_qos": keys.SYSTEM_QOS_RESOURCE,
    "cpu_normalization_ratio": keys.CPU_NORMALIZATION_RATIO,
    "cpu_shared_pools": keys.CPU_SHARED_POOLS,
    "be_cpu_shared_pools": keys.BE_CPU_SHARED_POOLS,
    "cpu_manager_policy": keys.CPU_MANAGER_POLICY,
    "pod_cpu_allocs": keys.POD_CPU_ALLOCS,
    "raw_allocatable": keys.RAW_ALLOCATABLE,
}

# A list of permitted evictors that cannot be read gives consent to none of them: taking it for
# absent would permit all.
_WHEN_REFUSED: dict[str, Any] = {"eviction_policy": ()}


_OF_PODS = {
    key.name: key
    for key in keys.KEYS.values()
    if key.kind in (keys.Kind.POD_LABEL, keys.Kind.POD_ANNOTATION)
    and keys.Reader.KOORDLET in key.readers
}


def received(values: Mapping[str, str]) -> dict[str, str]:
    """Of the labels or annotations of a pod those that koordlet reads, for whoever keeps them.

    A value that is too long stays too long, but has no more characters than that takes.
    """
    return {
        name: values[name][: key.limit.characters + 1]
        for name, key in _OF_PODS.items()
        if name in values
    }


def parse_pod(labels: Mapping[str, str], annotations: Mapping[str, str]) -> PodKeys:
    """The keys koordlet reads. A label that is there but unknown yields None, as absent does;
    whether ``priority-class`` was there at all is for ``qos.raw_priority_class``."""
    by_kind = {keys.Kind.POD_LABEL: labels, keys.Kind.POD_ANNOTATION: annotations}
    found, refused = _read(_POD_FIELDS, by_kind)
    most = limits.PROBLEMS_PER_POD
    if len(refused) > most:
        more = Refusal(refused[most].key, "", f"more than {most} faults; the others are not listed")
        refused = (*refused[:most], more)
    return PodKeys(**found, refused=refused)


def parse_node(annotations: Mapping[str, str], before: NodeKeys | None = None) -> NodeKeys:
    """The annotations of the node itself and of its NodeResourceTopology.

    Of one that cannot be read the value ``before`` stays, as in the reference
    (docs/reference/hooks.md 2.2,
    2.4). One that is absent has none.
    """
    found, refused = _read(_NODE_FIELDS, {keys.Kind.NODE_ANNOTATION: annotations})
    bad = {refusal.key for refusal in refused}
    unread = set()
    for field, key in _NODE_FIELDS.items():
        if key.name in bad:
            last = getattr(before, field, None)
            if last is None:
                unread.add(key.name)
            else:
                found[field] = last
    every_refusal = tuple(
        msgspec.structs.replace(
            refusal,
            message=f"{refusal.message}; {_UNREAD if refusal.key in unread else _KEPT}",
        )
        for refusal in refused
    )
    return NodeKeys(**found, refused=every_refusal, unread=frozenset(unread))


_KEPT = "kept: the value before it stays in force"
_UNREAD = "there was no good value before"


def _read(
    fields: Mapping[str, keys.Key[Any]], sources: Mapping[keys.Kind, Mapping[str, str]]
) -> tuple[dict[str, Any], tuple[Refusal, ...]]:
    found: dict[str, Any] = {}
    refused: list[Refusal] = []
    for name, key in fields.items():
        try:
            value = key.read(sources[key.kind])
        except AnnotationError as error:
            refused += (
                Refusal(key.name, _clipped(problem.path), _clipped(problem.reason))
                for problem in error.problems
            )
            value = _WHEN_REFUSED.get(name)
        if value is not None:
            found[name] = value
    return found, tuple(refused)


def _clipped(text: str) -> str:
    most = limits.MESSAGE_CHARACTERS
    return text if len(text) <= most else f"{text[: most - 3]}..."
