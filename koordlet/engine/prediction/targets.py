"""What is learned in one round, and from which series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from koordlet.decision import metrics as k
from koordlet.decision.metrics import Metric
from koordlet.decision.snapshot import Application, Pod
from koordlet.prediction import part
from koordlet.prediction.subject import (
    ITEMS,
    NODE,
    is_of_pod,
    uid_of_application,
    uid_of_item,
)
from koordlet.protocol.qos import PriorityClass, priority_class_with_default


class Target(NamedTuple):
    """``used``: series of its CPU and memory; ``peaks``: those for what is predicted of them.
    ``labels`` are of both."""

    uid: str
    used: tuple[Metric, Metric]
    peaks: tuple[Metric, Metric]
    labels: tuple[str, ...] = ()
    pod: Pod | None = None

    def labels_of(self, metric: Metric) -> tuple[tuple[str, str], ...]:
        """For the store; the node's own series have none."""
        return tuple(zip(metric.labels, self.labels, strict=bool(metric.labels)))


class Used(NamedTuple):
    """What was used at one time."""

    cpu_cores: float = 0.0
    memory_bytes: float = 0.0

    def plus(self, other: Used) -> Used:
        return Used(self.cpu_cores + other.cpu_cores, self.memory_bytes + other.memory_bytes)

    def less(self, other: Used) -> Used:
        """Never below 0."""
        return Used(
            max(self.cpu_cores - other.cpu_cores, 0.0),
            max(self.memory_bytes - other.memory_bytes, 0.0),
        )


USED_BY_POD = (k.POD_CPU_USAGE, k.POD_MEMORY_USAGE)
USED_BY_APPLICATION = (k.HOST_APPLICATION_CPU_USAGE, k.HOST_APPLICATION_MEMORY_USAGE)
_PEAKS_OF_POD = (part.POD_CPU_PEAK, part.POD_MEMORY_PEAK)
_PEAKS_OF_APPLICATION = (part.APPLICATION_CPU_PEAK, part.APPLICATION_MEMORY_PEAK)
_PEAKS_OF_NODE = (part.NODE_CPU_PEAK, part.NODE_MEMORY_PEAK)
_NODE_USED = (k.NODE_CPU_USAGE, k.NODE_MEMORY_USAGE)
NODE_TARGET = Target(NODE, _NODE_USED, _PEAKS_OF_NODE, ("node",))
ITEM_TARGETS = tuple(
    Target(uid_of_item(item), _NODE_USED, _PEAKS_OF_NODE, (item or "none",)) for item in ITEMS
)
"""They learn sums, not series."""


def targets(pods: Iterable[Pod], applications: Iterable[Application]) -> Iterator[Target]:
    """All but pods that are about to be told their class."""
    for pod in pods:
        if not pod.awaits_labels and is_of_pod(pod.uid):
            yield Target(pod.uid, USED_BY_POD, _PEAKS_OF_POD, (pod.uid,), pod)
    for application in applications:
        if application.present:
            name = application.name
            uid = uid_of_application(name)
            yield Target(uid, USED_BY_APPLICATION, _PEAKS_OF_APPLICATION, (name,))


def item_of(pod: Pod) -> str:
    """Its priority class, by its QoS class where it has none (docs/reference/metrics.md 5.4)."""
    return priority_class_with_default(pod.priority_class, pod.qos) or ""


def is_production(pod: Pod) -> bool:
    return item_of(pod) in (PriorityClass.PROD, "")
