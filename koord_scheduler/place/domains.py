"""Topology domains: nodes with the same value of a label, and how many pods are in each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints
from koord_scheduler.model.cluster.pods import Claim, PodClass, PodTerm
from koordlet.protocol.selector import LabelSelector, matches

NOWHERE = -1
_MOST_KEYS = 64


class Domains(NamedTuple):
    """``of``: the number of each row's domain, NOWHERE for nodes without the label."""

    of: NDArray[np.intp]
    number: int


class Topology:
    """Domains by label, kept until labels or nodes change."""

    def __init__(self) -> None:
        self._kept: dict[str, Domains] = {}
        self._seen: tuple[Cluster | None, int] = (None, -1)

    def of(self, cluster: Cluster, key: str) -> Domains:
        if self._seen != (cluster, cluster.labels_version) or len(self._kept) > _MOST_KEYS:
            self._kept.clear()
            self._seen = (cluster, cluster.labels_version)
        found = self._kept.get(key)
        if found is None:
            numbers: dict[str, int] = {}
            of = np.full(len(cluster.nodes), NOWHERE, np.intp)
            for row, node in enumerate(cluster.nodes):
                value = node.labels.get(key) if node is not None else None
                if value is not None:
                    of[row] = numbers.setdefault(value, len(numbers))
            found = self._kept[key] = Domains(of, len(numbers))
        return found


def pods_on_rows(cluster: Cluster, classes: Iterable[int]) -> Ints:
    """How many pods of these classes each row has."""
    found = np.zeros(len(cluster.nodes), np.int64)
    for number in classes:
        counts = cluster.classes.get(number)
        if counts:
            rows = np.fromiter(counts, np.intp, len(counts))
            found[rows] += np.fromiter(counts.values(), np.int64, len(counts))
    return found


class Ending:
    """Pods of a cluster that terminate, by class and node."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._counts: dict[int, dict[str, int]] = {}
        cluster.follow(self._follow)

    def on_rows(self, classes: Iterable[int]) -> Ints:
        """As `pods_on_rows`, of those that terminate."""
        found = np.zeros(len(self.cluster.nodes), np.int64)
        for number in classes:
            for name, many in self._counts.get(number, {}).items():
                row = self.cluster.row.get(name)
                if row is not None:
                    found[row] += many
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


def alike(cluster: Cluster, namespace: str, selector: LabelSelector | None) -> list[int]:
    """Classes of a namespace that are on nodes and that a selector matches; None matches none."""
    if selector is None:
        return []
    return [
        number
        for number, cls in cluster.class_of.items()
        if cls.namespace == namespace and matches(selector, cls.labels)
    ]


def meant(cluster: Cluster, term: PodTerm, cls: PodClass) -> bool:
    """Whether a term about other pods means pods of this class."""
    if term.selector is None or not matches(term.selector, cls.labels):
        return False
    if cls.namespace in term.namespaces:
        return True
    selector = term.namespace_selector
    return selector is not None and matches(selector, cluster.namespaces.get(cls.namespace, {}))
