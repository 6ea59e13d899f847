"""What somebody knows about a pod: a source that lists, or a runtime that asks.

The cgroup tree knows paths, a runtime knows labels. ``None`` means "not known", which is different
from empty.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlet.decision.given import Given
from koordlet.decision.resource import CFS_PERIOD_US, Resource, Value
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


def resized(values: Mapping[Resource, Value]) -> Resources:
    """Return what a pod will have as a whole, by what a runtime was told to write."""
    quota_us, period_us = values.get(Resource.CPU_QUOTA_US), values.get(Resource.CPU_PERIOD_US)
    if not isinstance(quota_us, int) or quota_us <= 0:
        return Resources()
    period_us = period_us if isinstance(period_us, int) and period_us > 0 else CFS_PERIOD_US
    return Resources(limit_cpu_milli=quota_us * 1000 // period_us)


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
    host_network: bool | None = None
    ips: tuple[str, ...] | None = None
    runtime_handler: str | None = None
    as_of: float | None = None
    containers: tuple[ContainerFacts, ...] = ()
