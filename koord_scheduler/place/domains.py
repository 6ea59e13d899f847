"""Topology domains: nodes with the same value of a label, and how many pods are in each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints
from koord_scheduler.model.cluster.pods import Claim

NOWHERE = -1
_MOST_KEYS = 512
"""At 5,000 nodes a label takes 40 KiB, but for those that no node has."""


class Domains(NamedTuple):
    """``of``: the number of each row's domain, NOWHERE for nodes without the label. ``values``:
    the number of each value."""

    of: NDArray[np.intp]
    number: int
    values: Mapping[str, int] = {}


class Topology:
    """Domains by label, kept until labels or nodes change, those of the labels asked for of
    late."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Domains] = OrderedDict()
        self._none: NDArray[np.intp] = np.zeros(0, np.intp)
        self._seen: tuple[Cluster | None, int] = (None, -1)

    def of(self, cluster: Cluster, key: str) -> Domains:
        if self._seen != (cluster, cluster.labels_version):
            self._kept.clear()
            self._seen = (cluster, cluster.labels_version)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _MOST_KEYS:
                self._kept.popitem(last=False)
            numbers: dict[str, int] = {}
            of = np.full(len(cluster.nodes), NOWHERE, np.intp)
            for row, node in enumerate(cluster.nodes):
                value = node.labels.get(key) if node is not None else None
                if value is not None:
                    of[row] = numbers.setdefault(value, len(numbers))
            found = self._kept[key] = Domains(
                of if numbers else self._nowhere(of), len(numbers), numbers
            )
        return found

    def _nowhere(self, of: NDArray[np.intp]) -> NDArray[np.intp]:
        """One array for all labels that no node has."""
        if len(self._none) != len(of):
            self._none = of
        return self._none


class Ending:
    """Pods of a cluster that terminate, by class and node."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._counts: dict[int, dict[str, int]] = {}
        cluster.follow(self._follow)

    def on_rows(self, weights: Mapping[int, int]) -> Ints:
        """What those that terminate count with on each row, by the number of their class."""
        found = np.zeros(len(self.cluster.nodes), np.int64)
        for number, counts in self._counts.items():
            weight = weights.get(number)
            if weight and number in self.cluster.class_of:
                for name, many in counts.items():
                    row = self.cluster.row.get(name)
                    if row is not None:
                        found[row] += weight * many
        return found

    def _follow(self, claim: Claim, sign: int) -> None:
        if not claim.pod.terminating:
            return
        counts = self._counts.setdefault(claim.pod.cls.number, {})
        counts[claim.node] = counts.get(claim.node, 0) + sign
        if not counts[claim.node]:
            del counts[claim.node]
            if not counts:
                del self._counts[claim.pod.cls.number]


def per_domain(domains: Domains, on_rows: Ints) -> Ints:
    """Sums over the rows of each domain."""
    there = domains.of != NOWHERE
    found: Ints = np.bincount(
        domains.of[there], weights=on_rows[there], minlength=domains.number
    ).astype(np.int64)
    return found
