"""What somebody knows about a pod: a source that lists, or a runtime that asks.

The cgroup tree knows paths, a runtime knows labels. ``None`` means "not known", which is different
from empty.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlet.decision.given import Given
from koordlet.decision.resource import MIN_SHARES, UNLIMITED, Resource, Value
from koordlet.decision.snapshot import Resources
from koordlet.protocol.qos import KubeQoS


class ContainerFacts(msgspec.Struct, frozen=True):
    """``id`` with the runtime's scheme where known (``containerd://<hash>``), else bare."""

    id: str
    cgroup: str | None = None
    name: str | None = None
    is_sandbox: bool | None = None
    resources: Resources | None = None
    requested: Mapping[Resource, Value] | None = None
    """What kubelet asked the runtime for, before any hook."""
    given: Given | None = None
    """What it was created with, hooks included."""
    inner: str | None = None
    """The cgroup inside, in which the runtime keeps its processes and writes its limits again."""


_OF_PODS = (Resource.CPU_SHARES, Resource.CPU_QUOTA_US, Resource.MEMORY_LIMIT)


def asked_for_pod(
    values: Mapping[Resource, Value], overhead: Mapping[Resource, Value]
) -> Mapping[Resource, Value] | None:
    """Return what kubelet asks for a pod as a whole, of what it tells a runtime of its containers
    together (or of pod-level resources instead) and of its overhead; None where it tells
    nothing."""
    found: dict[Resource, Value] = {}
    for resource in _OF_PODS:
        value, more = values.get(resource), overhead.get(resource, 0)
        if not isinstance(value, int) or not isinstance(more, int):
            continue
        if resource is Resource.CPU_SHARES:  # kubelet's least stands for none
            value = max(sum(each for each in (value, more) if each > MIN_SHARES), MIN_SHARES)
        else:
            value = value + more if min(value, more) >= 0 else UNLIMITED
        found[resource] = value
    return found or None


class PodFacts(msgspec.Struct, frozen=True):
    """What one source knows about one pod.

    ``as_of``: monotonic seconds at which its labels and annotations were told; of several
    sources the latest counts for those two.
    """

    uid: str
    cgroup: str | None = None
    kube_qos: KubeQoS | None = None
    name: str | None = None
    namespace: str | None = None
    priority: int | None = None
    phase: str | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    resources: Resources | None = None
    requested: Mapping[Resource, Value] | None = None
    """Amounts that kubelet asked the runtime for as a whole, overhead included."""
    host_network: bool | None = None
    ips: tuple[str, ...] | None = None
    runtime_handler: str | None = None
    as_of: float | None = None
    containers: tuple[ContainerFacts, ...] = ()
