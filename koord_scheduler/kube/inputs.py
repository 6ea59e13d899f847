"""Objects of the API server to what the formulas take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from koord_scheduler.kube.shapes import Device, Node, NodeMetric, NodeResourceTopology, Pod
from koord_scheduler.model import wire
from koord_scheduler.model.arrivals import Arrivals
from koord_scheduler.model.facts import (
    DeviceFacts,
    Inputs,
    MetricFacts,
    PodFacts,
    TopologyFacts,
)
from koord_scheduler.model.reading import device_facts, metric_facts, topology_facts
from koordlet.kube.mirror import Change, Key
from koordlet.protocol.document import UNREADABLE

T = TypeVar("T")
_status = msgspec.json.Decoder(wire.NodeMetricStatus)
_spec = msgspec.json.Decoder(wire.DeviceSpec)
_zones = msgspec.json.Decoder(tuple[wire.Zone, ...])


def inputs_of(
    node: Node,
    metric: NodeMetric | None,
    pods: Iterable[PodFacts],
    device: Device | None,
    topology: NodeResourceTopology | None,
) -> Inputs:
    return Inputs(
        node=node.facts,
        metric=_metric(metric),
        pods=tuple(pods),
        device=_device(device),
        topology=_topology(topology),
    )


def as_arrived(inputs: Inputs, arrivals: Arrivals, now_s: float) -> Inputs:
    """Return them with a report that is at most as new as its arrival."""
    metric = inputs.metric
    if metric is None:
        return inputs
    at_s = arrivals.at(inputs.node.name, metric.update_time_s, now_s)
    if at_s == metric.update_time_s:
        return inputs
    return msgspec.structs.replace(
        inputs, metric=msgspec.structs.replace(metric, update_time_s=at_s)
    )


def _metric(metric: NodeMetric | None) -> MetricFacts | None:
    status = _read(_status, metric.status) if metric is not None else None
    return metric_facts(status) if status is not None else None


def _device(device: Device | None) -> DeviceFacts | None:
    spec = _read(_spec, device.spec) if device is not None else None
    return device_facts(device.metadata.labels, spec) if device is not None and spec else None


def _topology(topology: NodeResourceTopology | None) -> TopologyFacts | None:
    if topology is None:
        return None
    zones = _read(_zones, topology.zones)
    return topology_facts(topology.metadata.annotations, zones or ())


def _read(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw) -> T | None:
    """None also for what cannot be read: one bad object must not stop the others. The API server
    checks these against our schemas, so this is a definition of somebody else's."""
    try:
        return decoder.decode(raw) if raw else None
    except UNREADABLE:
        return None


class PodsByNode:
    """The facts of the pods of each node, kept up to date by the changes of a watch."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[Key, PodFacts]] = {}

    def begin(self, pods: Mapping[Key, Pod]) -> None:
        self._nodes.clear()
        for key, pod in pods.items():
            self._add(key, pod)

    def take(self, changes: tuple[Change[Pod], ...]) -> None:
        for change in changes:
            if change.old is not None:
                self._remove(change.key, change.old)
            if change.new is not None:
                self._add(change.key, change.new)

    def of(self, node: str) -> Iterable[PodFacts]:
        return self._nodes.get(node, _NONE).values()

    def _add(self, key: Key, pod: Pod) -> None:
        if pod.facts.node:
            self._nodes.setdefault(pod.facts.node, {})[key] = pod.facts

    def _remove(self, key: Key, pod: Pod) -> None:
        pods = self._nodes.get(pod.facts.node)
        if pods is not None:
            pods.pop(key, None)
            if not pods:
                del self._nodes[pod.facts.node]


_NONE: dict[Any, PodFacts] = {}
