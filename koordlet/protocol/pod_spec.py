"""A pod as the API server writes it, as far as node QoS looks at it
(docs/reference/protocol.md 0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koordlet.protocol.annotation_types import ResourceList
from koordlet.protocol.decode import decode
from koordlet.protocol.errors import Problem, ProtocolError
from koordlet.protocol.qos import PRIORITY_BANDS, KubeQoS, PriorityClass, kube_qos_of
from koordlet.protocol.resources import CPU
from koordlet.protocol.slo import Section


class PodMeta(Section, frozen=True):
    name: str = ""
    namespace: str = "default"
    uid: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class ContainerResources(Section, frozen=True):
    requests: ResourceList = msgspec.field(default_factory=dict)
    limits: ResourceList = msgspec.field(default_factory=dict)


class ContainerSpec(Section, frozen=True):
    name: str = ""
    resources: ContainerResources = ContainerResources()

    @property
    def requests(self) -> dict[str, int]:
        """CPU in milli-cores, everything else in its own unit. A limit alone is the request too."""
        return amounts(self.resources.limits | self.resources.requests)

    @property
    def limits(self) -> dict[str, int]:
        return amounts(self.resources.limits)


def amounts(resources: ResourceList) -> dict[str, int]:
    return {name: each.milli if name == CPU else each.value for name, each in resources.items()}


class PodSpec(Section, frozen=True):
    """``resources``: of the pod as a whole, where it has some."""

    resources: ContainerResources = ContainerResources()
    containers: tuple[ContainerSpec, ...] = ()
    init_containers: tuple[ContainerSpec, ...] = ()
    host_network: bool = False
    priority: int | None = None
    priority_class_name: str = ""
    runtime_class_name: str = ""


class PodManifest(Section, frozen=True):
    kind: str = ""
    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()

    @property
    def kube_qos(self) -> KubeQoS:
        """As kubelet computes it; init containers count."""
        whole = self.spec.resources
        return kube_qos_of(
            (
                (each.requests, each.limits)
                for each in (*self.spec.containers, *self.spec.init_containers)
            ),
            (amounts(whole.requests), amounts(whole.limits)),
        )

    @property
    def priority(self) -> int | None:
        """``spec.priority``, or the value that a class of the protocol stands for."""
        if self.spec.priority is not None:
            return self.spec.priority
        name = self.spec.priority_class_name
        return PRIORITY_BANDS[PriorityClass(name)].default if name in set(PriorityClass) else None


def parse_manifest(tree: Any) -> PodManifest:
    """``tree``: of one YAML or JSON document. Raises ProtocolError with the path of each fault."""
    if not isinstance(tree, Mapping):
        raise ProtocolError(Problem("$", "a pod is an object with metadata and spec"))
    pod = decode(PodManifest, tree, strict=False)
    if pod.kind not in ("", "Pod"):
        raise ProtocolError(Problem("$.kind", f"{pod.kind!r} is not Pod: give the pod itself"))
    if not pod.metadata.name:
        raise ProtocolError(Problem("$.metadata.name", "a pod needs a name"))
    if not pod.spec.containers:
        raise ProtocolError(Problem("$.spec.containers", "a pod needs a container"))
    return pod
