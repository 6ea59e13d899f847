"""PodTopologySpread: pods of a workload are spread over zones, racks, nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from koord_scheduler.model.cluster.arguments import Args, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Bools, Ints, Rows
from koord_scheduler.model.cluster.pods import PodClass, SpreadConstraint
from koord_scheduler.model.cluster.verdict import FITS, Normalize, Verdict, reason
from koord_scheduler.place.domains import (
    NOWHERE,
    Ending,
    Topology,
    alike,
    per_domain,
    pods_on_rows,
)
from koord_scheduler.place.node_affinity import Matched
from koord_scheduler.place.taints import untolerated
from koordlet.protocol.selector import matches

NAME = "PodTopologySpread"
_TEXT = "node(s) didn't match pod topology spread constraints"


class SpreadArgs(Args, frozen=True, kw_only=True):
    """Constraints that pods have without asking are not supported: those of Kubernetes weigh on
    scores alone."""

    defaulting_type: str = "List"
    default_constraints: tuple[dict[str, Any], ...] = ()


class Spread:
    name = NAME
    local = False
    normalize = Normalize.NO

    def __init__(self) -> None:
        self._topology = Topology()
        self._matched = Matched()
        self._ending: Ending | None = None

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return bool(pod.spread)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        why = np.zeros(len(rows), np.int16)
        hard = [each for each in pod.spread if each.hard]
        for constraint in hard:
            # Nodes without one of the labels count in none of the constraints.
            everywhere = self._with_labels(cluster, hard)
            counted = everywhere & self._eligible(cluster, pod, constraint)
            self._refuse(cluster, pod, constraint, rows, counted, why)
        return Verdict(why, self._score(cluster, pod, rows))

    def _refuse(
        self,
        cluster: Cluster,
        pod: PodClass,
        constraint: SpreadConstraint,
        rows: Rows,
        counted: Bools,
        why: Any,
    ) -> None:
        domains = self._topology.of(cluster, constraint.topology_key)
        pods = per_domain(domains, self._counted(cluster, pod, constraint) * counted)
        there = np.unique(domains.of[counted & (domains.of != NOWHERE)])
        least = int(pods[there].min()) if len(there) >= max(constraint.min_domains, 1) else 0
        of = domains.of[rows]
        own = constraint.selector is not None and matches(constraint.selector, pod.labels)
        skewed = (pods[of] if domains.number else 0) + int(own) - least > constraint.max_skew
        missing = of == NOWHERE
        text = f"{_TEXT} (missing required label)"
        why[(why == FITS) & missing] = reason(NAME, text, unresolvable=True)
        why[(why == FITS) & skewed & ~missing] = reason(NAME, _TEXT)

    def _counted(self, cluster: Cluster, pod: PodClass, constraint: SpreadConstraint) -> Ints:
        """Pods that the constraint is about, on each row. Those that terminate do not count, as in
        Kubernetes."""
        if self._ending is None or self._ending.cluster is not cluster:
            self._ending = Ending(cluster)
        classes = alike(cluster, pod.namespace, constraint.selector)
        return pods_on_rows(cluster, classes) - self._ending.on_rows(classes)

    def _with_labels(self, cluster: Cluster, constraints: list[SpreadConstraint]) -> Bools:
        found = cluster.alive[: len(cluster.nodes)].copy()
        for each in constraints:
            found &= self._topology.of(cluster, each.topology_key).of != NOWHERE
        return found

    def _eligible(self, cluster: Cluster, pod: PodClass, constraint: SpreadConstraint) -> Bools:
        """Nodes whose pods count (nodeAffinityPolicy, nodeTaintsPolicy)."""
        found = cluster.alive[: len(cluster.nodes)]
        if constraint.honor_affinity:
            found = self._matched.of(cluster, pod)
        if constraint.honor_taints:
            found = found.copy()
            for row in np.flatnonzero(found).tolist():
                node = cluster.nodes[row]
                if node is not None and node.taints and untolerated(pod.tolerations, node.taints):
                    found[row] = False
        return found

    def _score(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Any:
        """The fewer pods of the workload the better, a domain of many being worth more, as in
        Kubernetes. Nodes without a label get 0."""
        soft = [each for each in pod.spread if not each.hard]
        if not soft or not len(rows):
            return None
        total = np.zeros(len(rows))
        missing = np.zeros(len(rows), np.bool_)
        for each in soft:
            domains = self._topology.of(cluster, each.topology_key)
            counted = self._eligible(cluster, pod, each)
            pods = per_domain(domains, self._counted(cluster, pod, each) * counted)
            of = domains.of[rows]
            missing |= of == NOWHERE
            weight = np.log(len(np.unique(of[of != NOWHERE])) + 2)
            if domains.number:
                total += pods[of] * weight + (each.max_skew - 1)
        total = np.round(total)
        there = total[~missing]
        if not len(there):
            return np.zeros(len(rows), np.int64)
        most, least = there.max(), there.min()
        if most == 0:
            score = np.full(len(rows), 100, np.int64)
        else:
            score = (100 * (most + least - total) / most).astype(np.int64)
        score[missing] = 0
        return score


def make(args: Mapping[str, Any]) -> Spread:
    read_args(NAME, SpreadArgs, args)
    return Spread()
