"""Objects of watches to what plugins keep of each node."""

from __future__ import annotations

from koord_scheduler.kube.shapes import Device, NodeMetric, NodeResourceTopology, tree
from koord_scheduler.place.device.reading import read_device
from koord_scheduler.place.device.types import NodeDevices
from koord_scheduler.place.load_reading import NodeLoad, read_load
from koord_scheduler.place.numa.reading import read_numa
from koord_scheduler.place.numa.types import NodeNuma
from koord_scheduler.place.strain import Strain, read_strain
from koordlet.protocol.document import UNREADABLE


def load(item: NodeMetric) -> NodeLoad | None:
    """None for what cannot be read, as where there is no report."""
    try:
        return read_load(bytes(item.spec), bytes(item.status))
    except UNREADABLE:
        return None


def strain(item: NodeResourceTopology) -> Strain | None:
    return read_strain(item.metadata.annotations)


def device(item: Device) -> NodeDevices:
    meta = item.metadata
    return read_device(meta.labels, meta.annotations, tree(item.spec))


def numa(item: NodeResourceTopology) -> NodeNuma:
    object_ = {"topologyPolicies": list(item.topology_policies), "zones": tree(item.zones)}
    return read_numa(item.metadata.annotations, object_)
