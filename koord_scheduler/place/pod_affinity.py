"""InterPodAffinity: pods that want to be near others, or far from them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from koord_scheduler.model.cluster.arguments import Args, ArgumentError, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Bools, Ints, Rows
from koord_scheduler.model.cluster.pods import PodClass, PodTerm
from koord_scheduler.model.cluster.verdict import FITS, Codes, Normalize, Verdict, reason
from koord_scheduler.place.domains import NOWHERE, Topology, per_domain
from koord_scheduler.place.tally import Meant, Tally, weighted_on_rows

NAME = "InterPodAffinity"
_MOST_KEPT = 512
"""Classes of pods; at 5,000 nodes one with terms takes some 40 KiB for each of its keys."""
_FEW = 4


class PodAffinityArgs(Args, frozen=True, kw_only=True):
    """``hard_pod_affinity_weight``: how much a required affinity of pods that are there draws pods
    that it means."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class _Own:
    """What a class of pods says of others: ``together`` is about pods that all its required terms
    mean, as in Kubernetes, where a pod that one of them means does not count."""

    __slots__ = ("apart", "keys", "liked", "meant", "together")

    def __init__(self, cluster: Cluster, pod: PodClass) -> None:
        self.meant = tuple(Meant(term) for term in pod.affinity)
        self.keys = tuple(dict.fromkeys(term.topology_key for term in pod.affinity))
        self.together = Tally(cluster, self._all_mean(cluster))
        apart, liked = _by_key(), _by_key()
        for term in pod.anti_affinity:
            apart[term.topology_key].append((1, Meant(term)))
        for sign, terms in ((1, pod.preferred_affinity), (-1, pod.preferred_anti_affinity)):
            for term in terms:
                if term.weight:
                    liked[term.topology_key].append((sign * term.weight, Meant(term)))
        self.apart = {key: Tally(cluster, _weigher(cluster, of)) for key, of in apart.items()}
        self.liked = {key: Tally(cluster, _weigher(cluster, of)) for key, of in liked.items()}

    def _all_mean(self, cluster: Cluster) -> Callable[[PodClass], int]:
        return lambda cls: int(all(each.means(cluster, cls) for each in self.meant))


class _Others(NamedTuple):
    """Pods that terms of a class mean, for as many of its terms as mean the same ones: the topology
    keys by which they are kept away, and how much each key draws them."""

    meant: Meant
    apart: tuple[str, ...]
    drawn: Mapping[str, int]


class _Sum:
    """Of one topology key: what pods that are there count with, by the number of their class. Those
    of a few classes are counted each time, of many as they come and go."""

    __slots__ = ("_tally", "weights")

    def __init__(self) -> None:
        self.weights: dict[int, int] = {}
        self._tally: Tally | None = None

    def put(self, cluster: Cluster, number: int, weight: int) -> None:
        self.weights[number] = weight
        if len(self.weights) > 2 * len(cluster.with_terms):
            for gone in self.weights.keys() - cluster.with_terms.keys():
                del self.weights[gone]

    def near(self, cluster: Cluster, topology: Topology, key: str, rows: Rows) -> Ints:
        if self._tally is None and len(self.weights) > _FEW:
            self._tally = Tally(cluster, lambda cls: self.weights.get(cls.number, 0))
        if self._tally is not None:
            return self._tally.near(topology, key, rows)
        domains = topology.of(cluster, key)
        if not domains.number:
            return np.zeros(len(rows), np.int64)
        sums = per_domain(domains, weighted_on_rows(cluster, self.weights))
        of = domains.of[rows]
        return np.where(of == NOWHERE, 0, sums[of])


class _About:
    """What terms of pods that are there say of a class of pods, by topology key: that they keep it
    away, and how much they draw it. ``serial``: up to where they were asked."""

    __slots__ = ("apart", "drawn", "serial")

    def __init__(self) -> None:
        self.serial = 0
        self.apart: defaultdict[str, _Sum] = defaultdict(_Sum)
        self.drawn: defaultdict[str, _Sum] = defaultdict(_Sum)


class PodAffinity:
    name = NAME
    local = False
    normalize = Normalize.NO

    def __init__(self, args: PodAffinityArgs) -> None:
        self.args = args
        self._topology = Topology()
        self._begin(None, {})

    def _begin(self, cluster: Cluster | None, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._seen = (cluster, namespaces)
        self._own: OrderedDict[int, _Own] = OrderedDict()
        self._about: OrderedDict[int, _About] = OrderedDict()
        self._others: WeakKeyDictionary[PodClass, tuple[_Others, ...]] = WeakKeyDictionary()

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
        own, about = self._own_of(cluster, pod), self._about_of(cluster, pod)

        def refuse(where: Bools, text: str, *, unresolvable: bool = False) -> None:
            if where.any():
                why[(why == FITS) & where] = reason(NAME, text, unresolvable=unresolvable)

        if pod.affinity:
            refuse(
                ~self._together(cluster, pod, own, rows),
                "node(s) didn't match pod affinity rules",
                unresolvable=True,
            )
        for key, tally in own.apart.items():
            near = tally.near(self._topology, key, rows) > 0
            refuse(near, "node(s) didn't match pod anti-affinity rules")
        for key, found in about.apart.items():
            near = found.near(cluster, self._topology, key, rows) > 0
            refuse(near, "node(s) didn't satisfy existing pods anti-affinity rules")
        return Verdict(why, self._score(cluster, own, about, rows, why == FITS))

    def helped(
        self, cluster: Cluster, pod: PodClass, others: Collection[PodClass], *, gone: bool
    ) -> bool:
        """By a pod that it wants to be near; by the last of those, after which it may go first; or
        because it is far from one that went."""
        own = self._own_of(cluster, pod)
        near = own.keys and (not gone or own.together.weight(pod))
        if near and any(own.together.weight(other) for other in others):
            return True
        return gone and any(
            any(tally.weight(other) for tally in own.apart.values())
            or any(o.apart and o.meant.means(cluster, pod) for o in self._others_of(other))
            for other in others
        )

    def _together(self, cluster: Cluster, pod: PodClass, own: _Own, rows: Rows) -> Bools:
        """The first pod of a group that wants to be together goes anywhere."""
        found = np.ones(len(rows), np.bool_)
        labelled = np.ones(len(rows), np.bool_)
        for key in own.keys:
            found &= own.together.near(self._topology, key, rows) > 0
            labelled &= self._topology.of(cluster, key).of[rows] != NOWHERE
        if own.together.weight(pod) and not own.together.on_rows().any():
            return labelled
        return found

    def _score(
        self, cluster: Cluster, own: _Own, about: _About, rows: Rows, fits: Bools
    ) -> Ints | None:
        total = np.zeros(len(rows), np.int64)
        for key, tally in own.liked.items():
            total += tally.near(self._topology, key, rows)
        for key, found in about.drawn.items():
            total += found.near(cluster, self._topology, key, rows)
        there = total[fits]
        if not there.any():
            return None
        least, most = int(there.min()), int(there.max())
        if most == least:
            return np.zeros(len(rows), np.int64)
        return 100 * (total - least) // (most - least)

    # What is kept.

    def _own_of(self, cluster: Cluster, pod: PodClass) -> _Own:
        if self._seen[0] is not cluster or self._seen[1] is not cluster.namespaces:
            self._begin(cluster, cluster.namespaces)
        found = self._own.get(pod.number)
        if found is None:
            if len(self._own) >= _MOST_KEPT:
                self._own.popitem(last=False)
            found = self._own[pod.number] = _Own(cluster, pod)
        self._own.move_to_end(pod.number)
        return found

    def _about_of(self, cluster: Cluster, pod: PodClass) -> _About:
        found = self._about.get(pod.number)
        if found is None:
            if len(self._about) >= _MOST_KEPT:
                self._about.popitem(last=False)
            found = self._about[pod.number] = _About()
        self._about.move_to_end(pod.number)
        found.serial, new = cluster.terms_since(found.serial)
        for cls in new:
            drawn: dict[str, int] = {}
            for others in self._others_of(cls):
                if others.meant.means(cluster, pod):
                    for key in others.apart:
                        found.apart[key].put(cluster, cls.number, 1)
                    for key, weight in others.drawn.items():
                        drawn[key] = drawn.get(key, 0) + weight
            for key, weight in drawn.items():
                found.drawn[key].put(cluster, cls.number, weight)
        return found

    def _others_of(self, cls: PodClass) -> tuple[_Others, ...]:
        found = self._others.get(cls)
        if found is not None:
            return found
        drawn = [(self.args.hard_pod_affinity_weight, term) for term in cls.affinity]
        if not self.args.ignore_preferred_terms_of_existing_pods:
            drawn += [(term.weight, term) for term in cls.preferred_affinity]
            drawn += [(-term.weight, term) for term in cls.preferred_anti_affinity]
        of: dict[bytes, tuple[PodTerm, dict[str, None], dict[str, int]]] = {}
        for term in cls.anti_affinity:
            of.setdefault(_meaning(term), (term, {}, {}))[1][term.topology_key] = None
        for weight, term in drawn:
            by_key = of.setdefault(_meaning(term), (term, {}, {}))[2]
            by_key[term.topology_key] = by_key.get(term.topology_key, 0) + weight
        found = self._others[cls] = tuple(
            _Others(Meant(term), tuple(apart), {key: n for key, n in by_key.items() if n})
            for term, apart, by_key in of.values()
            if apart or any(by_key.values())
        )
        return found


def _meaning(term: PodTerm) -> bytes:
    """The same for terms that mean the same pods in the same words."""
    namespaces = sorted(term.namespaces)
    return msgspec.json.encode((term.selector, namespaces, term.namespace_selector))


def _by_key() -> defaultdict[str, list[tuple[int, Meant]]]:
    return defaultdict(list)


def _weigher(cluster: Cluster, terms: Sequence[tuple[int, Meant]]) -> Callable[[PodClass], int]:
    return lambda cls: sum(weight for weight, each in terms if each.means(cluster, cls))


def make(args: Mapping[str, Any]) -> PodAffinity:
    found = read_args(NAME, PodAffinityArgs, args)
    if not 0 <= found.hard_pod_affinity_weight <= 100:
        raise ArgumentError(f"{NAME}: hardPodAffinityWeight must be 0 to 100")
    return PodAffinity(found)
