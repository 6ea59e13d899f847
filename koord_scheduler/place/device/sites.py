"""What decides about devices of a node; nodes that are alike have equal ones."""

from __future__ import annotations

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.place.device.allocate import Site
from koord_scheduler.place.device.free import used_by
from koord_scheduler.place.device.request import PROVIDER
from koord_scheduler.place.device.types import DEVICES
from koord_scheduler.place.grants import NO_LOAN, Loan, without
from koordlet.protocol.objects.device import GPU_MODEL, GPU_PARTITION_POLICY, GPU_VENDOR


def site_of(cluster: Cluster, row: int, loan: Loan = NO_LOAN) -> Site | None:
    """Return what decides on a row, for a pod with this loan; None for a node without a Device."""
    node, devices = cluster.nodes[row], cluster.get(DEVICES, row)
    if node is None or devices is None:
        return None
    shape, labels = devices.shape, node.labels
    claims = cluster.claims_on(row).values()
    return Site(
        shape=shape,
        used=used_by(without(claims, loan)),
        vendor=labels.get(GPU_VENDOR, shape.vendor),
        model=labels.get(GPU_MODEL, shape.model),
        honor=shape.honor or labels.get(GPU_PARTITION_POLICY) == "Honor",
        well_planned=shape.well_planned,
        provider=labels.get(PROVIDER, ""),
    )
