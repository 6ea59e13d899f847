"""Which nodes are alike in all that decides about devices.

Each distinct state of a node's devices has a number, so that a request is tried once for all nodes
that are alike, and again only where something changed.
"""

from __future__ import annotations

import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints
from koord_scheduler.place.device.allocate import Site
from koord_scheduler.place.device.free import used_by, without
from koord_scheduler.place.device.request import PROVIDER
from koord_scheduler.place.device.types import DEVICES
from koordlet.protocol.objects.device import GPU_MODEL, GPU_PARTITION_POLICY, GPU_VENDOR

NO_DEVICES = 0
_MOST_SITES = 65_536


def site_of(cluster: Cluster, row: int, reservation: str = "") -> Site | None:
    """None for a node without a Device. ``reservation``: as its users find the node."""
    node, devices = cluster.nodes[row], cluster.get(DEVICES, row)
    if node is None or devices is None:
        return None
    shape, labels = devices.shape, node.labels
    claims = cluster.claims_on(row).values()
    return Site(
        shape=shape,
        used=used_by(without(claims, reservation) if reservation else claims),
        vendor=labels.get(GPU_VENDOR, shape.vendor),
        model=labels.get(GPU_MODEL, shape.model),
        honor=shape.honor or labels.get(GPU_PARTITION_POLICY) == "Honor",
        well_planned=shape.well_planned,
        provider=labels.get(PROVIDER, ""),
    )


class Sites:
    """``all[number]`` is the site of a number; ``NO_DEVICES`` has none. ``epoch`` changes when the
    numbers do."""

    def __init__(self) -> None:
        self.all: list[Site | None] = [None]
        self.epoch = 0
        self._numbers: dict[tuple[object, ...], int] = {}
        self._of_row: Ints = np.zeros(0, np.int64)
        self._version = -1
        self._of: Cluster | None = None

    def numbers(self, cluster: Cluster) -> Ints:
        """The number of each row, now."""
        if self._of is not cluster:
            self._of, self._version = cluster, -1
            self._of_row = np.zeros(0, np.int64)
        if len(self._of_row) < len(cluster.nodes):
            self._of_row = np.pad(self._of_row, (0, len(cluster.alive) - len(self._of_row)))
        version = cluster.version
        if version == self._version:
            return self._of_row
        changed = cluster.since(self._version) if self._version >= 0 else None
        if len(self.all) > _MOST_SITES:
            self.all, self._numbers, changed = [None], {}, None
            self.epoch += 1
        for row in (cluster.rows() if changed is None else changed).tolist():
            self._of_row[row] = self._number(site_of(cluster, row))
        self._version = version
        return self._of_row

    def _number(self, site: Site | None) -> int:
        if site is None:
            return NO_DEVICES
        # Shapes are shared objects, and `all` keeps them: their identity stands for their content.
        key = (id(site.shape), *site[1:])
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.all)
            self.all.append(site)
        return found
