"""PodTopologySpread: pods of a workload are spread over zones, racks, nodes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from koord_scheduler.model.cluster.arguments import Args, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Bools, Ints, Rows
from koord_scheduler.model.cluster.pods import PodClass, SpreadConstraint
from koord_scheduler.model.cluster.verdict import FITS, Normalize, Verdict, reason
from koord_scheduler.place.domains import NOWHERE, Ending, Topology, per_domain
from koord_scheduler.place.node_affinity import Matched
from koord_scheduler.place.taints import untolerated
from koord_scheduler.place.tally import Tally
from koordlet.protocol.selector import Matcher

NAME = "PodTopologySpread"
_TEXT = "node(s) didn't match pod topology spread constraints"
_MOST_KEPT = 512
"""Classes of pods."""


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
        self._counts: OrderedDict[int, tuple[Tally, ...]] = OrderedDict()
        self._tolerated: OrderedDict[int, Bools] = OrderedDict()
        self._seen: tuple[Cluster | None, int] = (None, -1)

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return bool(pod.spread)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        why = np.zeros(len(rows), np.int16)
        hard = [each for each in pod.spread if each.hard]
        # Nodes without one of the labels count in none of the constraints.
        everywhere = self._with_labels(cluster, hard)
        for constraint, tally in zip(pod.spread, self._tallies(cluster, pod), strict=True):
            if constraint.hard:
                counted = everywhere & self._eligible(cluster, pod, constraint)
                self._refuse(cluster, pod, constraint, tally, rows, counted, why)
        return Verdict(why, self._score(cluster, pod, rows))

    def helped(
        self, cluster: Cluster, pod: PodClass, others: Collection[PodClass], *, gone: bool
    ) -> bool:
        """Pods that came may raise the least of a constraint, those that went its other numbers."""
        pairs = zip(pod.spread, self._tallies(cluster, pod), strict=True)
        hard = [tally for constraint, tally in pairs if constraint.hard]
        return any(tally.weight(other) for tally in hard for other in others)

    def _refuse(
        self,
        cluster: Cluster,
        pod: PodClass,
        constraint: SpreadConstraint,
        tally: Tally,
        rows: Rows,
        counted: Bools,
        why: Any,
    ) -> None:
        domains = self._topology.of(cluster, constraint.topology_key)
        pods = per_domain(domains, self._counted(cluster, tally) * counted)
        there = np.unique(domains.of[counted & (domains.of != NOWHERE)])
        least = int(pods[there].min()) if len(there) >= max(constraint.min_domains, 1) else 0
        of = domains.of[rows]
        skewed = (pods[of] if domains.number else 0) + tally.weight(
            pod
        ) - least > constraint.max_skew
        missing = of == NOWHERE
        text = f"{_TEXT} (missing required label)"
        why[(why == FITS) & missing] = reason(NAME, text, unresolvable=True)
        why[(why == FITS) & skewed & ~missing] = reason(NAME, _TEXT)

    def _tallies(self, cluster: Cluster, pod: PodClass) -> tuple[Tally, ...]:
        """Of each constraint: the pods that it is about."""
        if self._ending is None or self._ending.cluster is not cluster:
            self._ending = Ending(cluster)
            self._counts.clear()
        found = self._counts.get(pod.number)
        if found is None:
            if len(self._counts) >= _MOST_KEPT:
                self._counts.popitem(last=False)
            found = tuple(Tally(cluster, _weigher(pod, each)) for each in pod.spread)
            self._counts[pod.number] = found
        self._counts.move_to_end(pod.number)
        return found

    def _counted(self, cluster: Cluster, tally: Tally) -> Ints:
        """Pods that the constraint is about, on each row. Those that terminate do not count, as in
        Kubernetes."""
        assert self._ending is not None
        return tally.on_rows() - self._ending.on_rows(tally.classes)

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
            found = found & self._tolerates(cluster, pod)
        return found

    def _tolerates(self, cluster: Cluster, pod: PodClass) -> Bools:
        """Nodes without taints that would keep the pod away, kept until labels or taints change."""
        if self._seen != (cluster, cluster.labels_version):
            self._tolerated.clear()
            self._seen = (cluster, cluster.labels_version)
        found = self._tolerated.get(pod.number)
        if found is None:
            if len(self._tolerated) >= _MOST_KEPT:
                self._tolerated.popitem(last=False)
            found = self._tolerated[pod.number] = np.fromiter(
                (
                    node is not None
                    and not (node.taints and untolerated(pod.tolerations, node.taints))
                    for node in cluster.nodes
                ),
                np.bool_,
                len(cluster.nodes),
            )
        return found

    def _score(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Any:
        """The fewer pods of the workload the better, a domain of many being worth more, as in
        Kubernetes. Nodes without a label get 0."""
        tallies = zip(pod.spread, self._tallies(cluster, pod), strict=True)
        soft = [(each, tally) for each, tally in tallies if not each.hard]
        if not soft or not len(rows):
            return None
        total = np.zeros(len(rows))
        missing = np.zeros(len(rows), np.bool_)
        for each, tally in soft:
            domains = self._topology.of(cluster, each.topology_key)
            counted = self._eligible(cluster, pod, each)
            pods = per_domain(domains, self._counted(cluster, tally) * counted)
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


def _weigher(pod: PodClass, constraint: SpreadConstraint) -> Callable[[PodClass], int]:
    if constraint.selector is None:
        return lambda cls: 0
    labels = Matcher(constraint.selector)
    return lambda cls: int(cls.namespace == pod.namespace and labels.matches(cls.labels))


def make(args: Mapping[str, Any]) -> Spread:
    read_args(NAME, SpreadArgs, args)
    return Spread()
