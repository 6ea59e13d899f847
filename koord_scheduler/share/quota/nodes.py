"""What all nodes have together."""

from __future__ import annotations

import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints


class NodeSums:
    """``sums``: allocatable of all nodes by resource, as of the last `look`."""

    def __init__(self, cluster: Cluster) -> None:
        self.sums: dict[str, int] = {}
        self._cluster = cluster
        self._version = -1
        self._seen: Ints | None = None

    def look(self) -> bool:
        """Whether they changed. It looks at rows that changed alone."""
        cluster = self._cluster
        if cluster.version == self._version:
            return False
        rows = cluster.since(self._version) if self._version >= 0 else None
        self._version = cluster.version
        allocatable, seen = cluster.allocatable, self._seen
        if rows is not None and seen is not None and seen.shape == allocatable.shape:
            if np.array_equal(allocatable[rows], seen[rows]):
                return False
            seen[rows] = allocatable[rows]
        else:
            seen = self._seen = allocatable.copy()
        sums = dict(zip(cluster.columns.names, seen.sum(axis=0).tolist(), strict=True))
        changed = sums != self.sums
        self.sums = sums
        return changed
