"""PodGroups and the network's topology as the companion keeps them."""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from koord_scheduler.model.reading import kept_annotations
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Metadata, Object, Shape
from koordlet.protocol.objects.network_topology import ClusterNetworkTopologySpec
from koordlet.protocol.objects.pod_group import PodGroupSpec, PodGroupStatus


class AgedMetadata(Metadata, frozen=True):
    creation_timestamp: str = ""


class PodGroup(Object, frozen=True):
    metadata: AgedMetadata = AgedMetadata()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    def __post_init__(self) -> None:
        meta = self.metadata
        force_setattr(meta, "annotations", kept_annotations(meta.annotations))


class GangPolicy(Shape, frozen=True):
    min_count: int = 0


class SchedulingPolicy(Shape, frozen=True):
    """``gang`` None: the policy is ``basic``."""

    gang: GangPolicy | None = None


class CorePodGroupSpec(Shape, frozen=True):
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()


class CorePodGroup(Object, frozen=True):
    """Kubernetes' own (KEP-4671): alpha, and absent from most servers."""

    metadata: AgedMetadata = AgedMetadata()
    spec: CorePodGroupSpec = CorePodGroupSpec()


class ClusterNetworkTopology(Object, frozen=True):
    """``status`` as the server wrote it."""

    spec: ClusterNetworkTopologySpec = ClusterNetworkTopologySpec()
    status: msgspec.Raw = msgspec.Raw(b"")

    def __post_init__(self) -> None:
        # A copy: a Raw holds on to the page of the list that it stands in.
        force_setattr(self, "status", self.status.copy())


POD_GROUPS = Kind("scheduling.sigs.k8s.io", "v1alpha1", "PodGroup", "podgroups", True, PodGroup)
CORE_POD_GROUPS = Kind("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups", True, CorePodGroup)
NETWORK_TOPOLOGIES = Kind(
    "scheduling.koordinator.sh",
    "v1alpha1",
    "ClusterNetworkTopology",
    "clusternetworktopologies",
    False,
    ClusterNetworkTopology,
)
NETWORK_TOPOLOGY = "default"
"""The name of the one that counts."""
