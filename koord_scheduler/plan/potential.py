"""What all pods of some classes take on each node."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints

_MOST_KEPT = 4


class _Potential:
    __slots__ = ("amounts", "version")

    def __init__(self) -> None:
        self.version = -1
        self.amounts: Ints = np.zeros((0, 0), np.int64)


class Potentials:
    """Follow the rows that change, for the sets of classes that were asked about last."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kept: OrderedDict[frozenset[int], _Potential] = OrderedDict()

    def of(self, numbers: frozenset[int]) -> Ints:
        """Return the sum of each row; the caller must not change it."""
        cluster = self._cluster
        kept = self._kept.get(numbers)
        if kept is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.popitem(last=False)
            kept = self._kept[numbers] = _Potential()
        self._kept.move_to_end(numbers)
        changed = cluster.since(kept.version) if kept.version >= 0 else None
        if changed is None or kept.amounts.shape != cluster.requested.shape:
            kept.amounts = np.zeros_like(cluster.requested)
            for number in numbers:
                counts = cluster.classes.get(number, {})
                where = np.fromiter(counts, np.intp, len(counts))
                many = np.fromiter(counts.values(), np.int64, len(counts))
                kept.amounts[where] += many[:, None] * cluster.vector(cluster.class_of[number])
        else:
            for row in changed:
                kept.amounts[row] = 0
                for claim in cluster.claims_on(int(row)).values():
                    if claim.pod.cls.number in numbers and not claim.pod.holds:
                        kept.amounts[row] += cluster.vector(claim.pod.cls)
        kept.version = cluster.version
        return kept.amounts
