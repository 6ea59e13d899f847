"""Pods that matter to YARN: best-effort ones with what they ask for, and those of NodeManagers."""

from __future__ import annotations

from msgspec.structs import force_setattr

from koord_scheduler.model import wire
from koord_scheduler.model.amounts import NOTHING, Amounts, Text, amount_of
from koord_scheduler.model.reading import of_containers
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object, Shape
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY, MEMORY

_COUNTED = frozenset({"Pending", "Running"})


class BatchPod(Object, frozen=True):
    """``batch``: what it asks for of batch resources while it counts. Containers are not kept."""

    spec: wire.PodSpec = wire.PodSpec()
    status: wire.PodStatus = wire.PodStatus()
    batch: Amounts = NOTHING

    def __post_init__(self) -> None:
        counts = self.status.phase in _COUNTED and self.spec.node_name
        force_setattr(self, "batch", of_containers(self.spec, _asked) if counts else NOTHING)
        force_setattr(self, "spec", wire.PodSpec(node_name=self.spec.node_name))
        force_setattr(self, "status", wire.PodStatus(phase=self.status.phase))
        force_setattr(self.metadata, "annotations", {})


class _Placed(Shape, frozen=True):
    node_name: str = ""


class NodeManagerPod(Object, frozen=True):
    spec: _Placed = _Placed()
    status: wire.PodStatus = wire.PodStatus()


class NodeHead(Object, frozen=True):
    """A node by its metadata alone, as the server has it now."""


BATCH_PODS = Kind("", "v1", "Pod", "pods", True, BatchPod)
NODE_MANAGER_PODS = Kind("", "v1", "Pod", "pods", True, NodeManagerPod)
NODE_HEADS = Kind("", "v1", "Node", "nodes", False, NodeHead)


def _asked(container: wire.Container) -> Amounts:
    resources: dict[str, Text] = {**container.resources.limits, **container.resources.requests}
    cpu = amount_of(resources.get(BATCH_CPU), MEMORY)
    memory = amount_of(resources.get(BATCH_MEMORY), MEMORY)
    return Amounts(max(cpu or 0, 0), max(memory or 0, 0))
