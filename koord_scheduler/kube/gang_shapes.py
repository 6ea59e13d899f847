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


class TopologyConstraints(Shape, frozen=True):
    topology: tuple[msgspec.Raw, ...] = ()


class CorePodGroupSpec(Shape, frozen=True):
    """The same in all of ``CORE_VERSIONS``."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: TopologyConstraints | None = None
    parent: str = msgspec.field(default="", name="parentCompositePodGroupName")


class CorePodGroup(Object, frozen=True):
    """Kubernetes' own (KEP-4671), off by default: feature gate GenericWorkload."""

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
CORE_VERSIONS = ("v1beta1", "v1alpha3", "v1alpha2")
"""Kubernetes 1.37 has the first two, 1.36 the last."""
CORE_POD_GROUPS = Kind(
    "scheduling.k8s.io",
    CORE_VERSIONS[0],
    "PodGroup",
    "podgroups",
    True,
    CorePodGroup,
    CORE_VERSIONS,
)
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
