"""Objects that declare gangs and the network between nodes, as far as the scheduler reads them."""

from __future__ import annotations

from typing import Any

import msgspec

from koord_scheduler.model.reading import instant_s
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Metadata, Object, Shape
from koordlet.protocol.objects.network_topology import ClusterNetworkTopologySpec
from koordlet.protocol.objects.pod_group import PodGroupSpec


class DatedMetadata(Metadata, frozen=True):
    creation_timestamp: str | None = None

    @property
    def created_s(self) -> float:
        return instant_s(self.creation_timestamp) or 0.0


class PodGroup(Object, frozen=True):
    """Of scheduling.sigs.k8s.io."""

    metadata: DatedMetadata = DatedMetadata()
    spec: PodGroupSpec = PodGroupSpec()


class GangPolicy(Shape, frozen=True):
    min_count: int = 0


class SchedulingPolicy(Shape, frozen=True):
    gang: GangPolicy | None = None


class CorePodGroupSpec(Shape, frozen=True):
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()


class CorePodGroup(Object, frozen=True):
    """Of scheduling.k8s.io (KEP-4671)."""

    metadata: DatedMetadata = DatedMetadata()
    spec: CorePodGroupSpec = CorePodGroupSpec()

    @property
    def minimum(self) -> int | None:
        """None: its policy is ``basic``."""
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang is not None else None


class NetworkTopology(Object, frozen=True):
    spec: ClusterNetworkTopologySpec = ClusterNetworkTopologySpec()


class ExplanationSpec(Shape, frozen=True):
    """``question_object_template`` is kept for others: the pod itself is asked about."""

    question_object_key: str = ""
    ttl: str = "24h"


class Explanation(Object, frozen=True):
    """A ScheduleExplanation."""

    metadata: DatedMetadata = DatedMetadata()
    spec: ExplanationSpec = ExplanationSpec()
    status: dict[str, Any] = msgspec.field(default_factory=dict)


POD_GROUPS = Kind("scheduling.sigs.k8s.io", "v1alpha1", "PodGroup", "podgroups", True, PodGroup)
CORE_POD_GROUPS = Kind("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups", True, CorePodGroup)
_KOORDINATOR = ("scheduling.koordinator.sh", "v1alpha1")
NETWORKS = Kind(
    *_KOORDINATOR, "ClusterNetworkTopology", "clusternetworktopologies", False, NetworkTopology
)
EXPLANATIONS = Kind(*_KOORDINATOR, "ScheduleExplanation", "scheduleexplanations", True, Explanation)
