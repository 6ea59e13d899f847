"""Pods that terms of a pod mean, counted on each node and in each domain.

Whether a term means a class of pods is worked out once. Sums follow the pods that come and go, so
that an attempt costs as much as changed since the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints, Rows
from koord_scheduler.model.cluster.pods import PodClass, PodTerm
from koord_scheduler.place.domains import NOWHERE, Domains, Topology, per_domain
from koordlet.protocol.selector import Matcher

_SPARE = 256
_FEW = 8


class Meant:
    """Which pods a term about other pods means."""

    __slots__ = ("_labels", "_namespaces", "_of_namespace")

    def __init__(self, term: PodTerm) -> None:
        self._labels = Matcher(term.selector) if term.selector is not None else None
        self._namespaces = term.namespaces
        selector = term.namespace_selector
        self._of_namespace = Matcher(selector) if selector is not None else None

    def means(self, cluster: Cluster, cls: PodClass) -> bool:
        if self._labels is None or not self._labels.matches(cls.labels):
            return False
        if cls.namespace in self._namespaces:
            return True
        of_namespace = self._of_namespace
        return of_namespace is not None and of_namespace.matches(
            cluster.namespaces.get(cls.namespace, {})
        )


class Tally:
    """``weigh``: what a pod of a class counts with, which must stay the same."""

    __slots__ = ("_cluster", "_labels_version", "_on_rows", "_place", "_sums", "_weigh", "_weights")

    def __init__(self, cluster: Cluster, weigh: Callable[[PodClass], int]) -> None:
        self._cluster, self._weigh = cluster, weigh
        self._weights: dict[int, int] = {}
        self._on_rows: Ints = np.zeros(0, np.int64)
        self._place = -1
        self._labels_version = -1
        self._sums: dict[str, tuple[Domains, Ints]] = {}

    def weight(self, cls: PodClass) -> int:
        found = self._weights.get(cls.number)
        if found is None:
            found = self._weights[cls.number] = self._weigh(cls)
        return found

    @property
    def classes(self) -> Mapping[int, int]:
        """What each class that was met counts with."""
        return self._weights

    def on_rows(self) -> Ints:
        """Each row's sum; the caller must not change it."""
        cluster = self._cluster
        if self._labels_version != cluster.labels_version:
            self._labels_version = cluster.labels_version
            self._sums = {}
        if self._place == cluster.moves.end and len(self._on_rows) == len(cluster.nodes):
            return self._on_rows
        moves = cluster.moves.since(self._place) if self._place >= 0 else None
        if moves is None or len(self._on_rows) != len(cluster.nodes):
            self._count_again()
        else:
            for number, row, more in moves:
                cls = cluster.class_of.get(number)
                # Of a class that is gone all moves are undone by others, if it was met at all.
                weight = self._weights.get(number, 0) if cls is None else self.weight(cls)
                if weight:
                    self._on_rows[row] += weight * more
                    for domains, sums in self._sums.values():
                        if (domain := domains.of[row]) != NOWHERE:
                            sums[domain] += weight * more
            if len(self._weights) > 2 * len(cluster.class_of) + _SPARE:
                for gone in self._weights.keys() - cluster.class_of.keys():
                    del self._weights[gone]
        self._place = cluster.moves.end
        return self._on_rows

    def near(self, topology: Topology, key: str, rows: Rows) -> Ints:
        """The sum of each row's domain; 0 for rows without one."""
        domains = topology.of(self._cluster, key)
        if not domains.number:
            return np.zeros(len(rows), np.int64)
        on_rows = self.on_rows()
        kept = self._sums.get(key)
        if kept is None:
            kept = self._sums[key] = (domains, per_domain(domains, on_rows))
        of = domains.of[rows]
        return np.where(of == NOWHERE, 0, kept[1][of])

    def _count_again(self) -> None:
        cluster = self._cluster
        there = {n: self.weight(cls) for n, cls in cluster.class_of.items()}
        self._weights = dict(there)
        self._sums = {}
        self._on_rows = weighted_on_rows(cluster, there)


def weighted_on_rows(cluster: Cluster, weights: Mapping[int, int]) -> Ints:
    """What pods of these classes count with, on each row."""
    found = np.zeros(len(cluster.nodes), np.int64)
    for number, weight in weights.items():
        counts = cluster.classes.get(number)
        if not weight or not counts:
            continue
        if len(counts) <= _FEW:
            for row, many in counts.items():
                found[row] += weight * many
        else:
            rows = np.fromiter(counts, np.intp, len(counts))
            found[rows] += weight * np.fromiter(counts.values(), np.int64, len(counts))
    return found
