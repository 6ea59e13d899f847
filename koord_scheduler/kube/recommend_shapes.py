"""Recommendations as the companion keeps them, and pods with their containers."""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from koord_scheduler.model import wire
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object, Shape
from koordlet.protocol.objects.recommendation import RecommendationSpec, RecommendationTarget


class Recommendation(Object, frozen=True):
    """``status`` as the server wrote it."""

    spec: RecommendationSpec = RecommendationSpec(RecommendationTarget("workload"))
    status: msgspec.Raw = msgspec.Raw(b"")

    def __post_init__(self) -> None:
        # A copy: a Raw holds on to the page of the list that it stands in.
        force_setattr(self, "status", self.status.copy())


class NamedContainer(Shape, frozen=True):
    """``restart_policy`` Always makes a sidecar of an init container."""

    name: str = ""
    resources: wire.ContainerResources = wire.ContainerResources()
    restart_policy: str = ""


class ContainersSpec(Shape, frozen=True):
    containers: tuple[NamedContainer, ...] = ()
    init_containers: tuple[NamedContainer, ...] = ()


class PodOfContainers(Object, frozen=True):
    spec: ContainersSpec = ContainersSpec()


RECOMMENDATIONS = Kind(
    "analysis.koordinator.sh",
    "v1alpha1",
    "Recommendation",
    "recommendations",
    True,
    Recommendation,
)
PODS_OF_CONTAINERS = Kind("", "v1", "Pod", "pods", True, PodOfContainers)
"""To get one by its name: the watch of pods keeps no containers."""
