"""InterPodAffinity: pods that want to be near others, or far from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from koord_scheduler.model.cluster.arguments import Args, ArgumentError, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Bools, Ints, Rows
from koord_scheduler.model.cluster.pods import PodClass, PodTerm
from koord_scheduler.model.cluster.verdict import FITS, Codes, Normalize, Verdict, reason
from koord_scheduler.place.domains import NOWHERE, Topology, meant, per_domain, pods_on_rows

NAME = "InterPodAffinity"


class PodAffinityArgs(Args, frozen=True, kw_only=True):
    """``hard_pod_affinity_weight``: how much a required affinity of pods that are there draws pods
    that it means."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class PodAffinity:
    name = NAME
    local = False
    normalize = Normalize.NO

    def __init__(self, args: PodAffinityArgs) -> None:
        self.args = args
        self._topology = Topology()

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        """Terms of pods that are there may be about this one."""
        return bool(
            pod.affinity
            or pod.anti_affinity
            or pod.preferred_affinity
            or pod.preferred_anti_affinity
            or cluster.with_terms
        )

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        why: Codes = np.zeros(len(rows), np.int16)

        def refuse(where: Bools, text: str, *, unresolvable: bool = False) -> None:
            if where.any():
                why[(why == FITS) & where] = reason(NAME, text, unresolvable=unresolvable)

        if pod.affinity:
            refuse(
                ~self._together(cluster, pod, rows),
                "node(s) didn't match pod affinity rules",
                unresolvable=True,
            )
        for term in pod.anti_affinity:
            near = self._near(cluster, term, rows, self._meant_by(cluster, term)) > 0
            refuse(near, "node(s) didn't match pod anti-affinity rules")
        for number, cls in cluster.with_terms.items():
            for term in cls.anti_affinity:
                if meant(cluster, term, pod):
                    near = self._near(cluster, term, rows, (number,)) > 0
                    refuse(near, "node(s) didn't satisfy existing pods anti-affinity rules")
        return Verdict(why, self._score(cluster, pod, rows, why == FITS))

    def _together(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Bools:
        """Near pods that all terms mean, as in Kubernetes: a pod that one of them means does not
        count. The first pod of a group that wants to be together goes anywhere."""
        classes = [
            number
            for number, cls in cluster.class_of.items()
            if all(meant(cluster, term, cls) for term in pod.affinity)
        ]
        found = np.ones(len(rows), np.bool_)
        labelled = np.ones(len(rows), np.bool_)
        for term in pod.affinity:
            found &= self._near(cluster, term, rows, classes) > 0
            labelled &= self._topology.of(cluster, term.topology_key).of[rows] != NOWHERE
        if not classes and all(meant(cluster, term, pod) for term in pod.affinity):
            return labelled
        return found

    def _meant_by(self, cluster: Cluster, term: PodTerm) -> list[int]:
        return [n for n, cls in cluster.class_of.items() if meant(cluster, term, cls)]

    def _near(self, cluster: Cluster, term: PodTerm, rows: Rows, classes: Iterable[int]) -> Ints:
        """How many pods of these classes are in each row's domain; 0 for rows without one."""
        domains = self._topology.of(cluster, term.topology_key)
        if not domains.number:
            return np.zeros(len(rows), np.int64)
        pods = per_domain(domains, pods_on_rows(cluster, classes))
        of = domains.of[rows]
        return np.where(of == NOWHERE, 0, pods[of])

    def _score(self, cluster: Cluster, pod: PodClass, rows: Rows, fits: Bools) -> Ints | None:
        total = np.zeros(len(rows), np.int64)

        def add(term: PodTerm, weight: int, classes: Callable[[], Iterable[int]]) -> None:
            if weight:
                np.add(total, weight * self._near(cluster, term, rows, classes()), out=total)

        for sign, terms in ((1, pod.preferred_affinity), (-1, pod.preferred_anti_affinity)):
            for term in terms:
                add(term, sign * term.weight, lambda term=term: self._meant_by(cluster, term))  # type: ignore[misc]
        for number, cls in cluster.with_terms.items():
            of_others = [(self.args.hard_pod_affinity_weight, t) for t in cls.affinity]
            if not self.args.ignore_preferred_terms_of_existing_pods:
                of_others += [(t.weight, t) for t in cls.preferred_affinity]
                of_others += [(-t.weight, t) for t in cls.preferred_anti_affinity]
            for weight, term in of_others:
                if meant(cluster, term, pod):
                    add(term, weight, lambda number=number: (number,))  # type: ignore[misc]
        there = total[fits]
        if not there.any():
            return None
        least, most = int(there.min()), int(there.max())
        if most == least:
            return np.zeros(len(rows), np.int64)
        return 100 * (total - least) // (most - least)


def make(args: Mapping[str, Any]) -> PodAffinity:
    found = read_args(NAME, PodAffinityArgs, args)
    if not 0 <= found.hard_pod_affinity_weight <= 100:
        raise ArgumentError(f"{NAME}: hardPodAffinityWeight must be 0 to 100")
    return PodAffinity(found)
