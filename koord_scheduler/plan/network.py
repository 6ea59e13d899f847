"""A job that asks for nodes near each other
(docs/reference/central.md 8.1), on the cluster as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Ints
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.model.cluster.verdict import FITS
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.share.gang.declared import NAME
from koord_scheduler.share.gang.topology import (
    NoPlan,
    TopologyError,
    Tree,
    plan,
    read_gather,
    tree,
)
from koordlet.protocol.objects.network_topology import ClusterNetworkTopologySpec

SELECTOR = "scheduling.koordinator.sh/network-topology-selector"
_MOST_PLANS = 16
"""A plan may count on room that one plugin did not tell of; what was learned makes the next."""
_NO_TREE = "no cluster network topology"


class Network:
    """``spec`` is that of the ClusterNetworkTopology ``default``; None: there is none."""

    def __init__(self, cluster: Cluster) -> None:
        self.spec: ClusterNetworkTopologySpec | None = None
        self._cluster = cluster
        self._made: tuple[ClusterNetworkTopologySpec, int, Tree] | None = None

    def tree(self) -> Tree | None:
        """Made anew when nodes or their labels change. Raises TopologyError."""
        if self.spec is None:
            return None
        version = self._cluster.labels_version
        made = self._made
        if made is None or made[0] is not self.spec or made[1] != version:
            nodes = (
                (row, node.name, node.labels)
                for row, node in enumerate(self._cluster.nodes)
                if node is not None
            )
            made = self._made = (self.spec, version, tree(self.spec, nodes))
        return made[2]


def place_job(
    engine: Engine, network: Network | None, asked: str, pods: Sequence[Pod]
) -> tuple[Placement, ...] | Failure:
    """All of ``pods`` or none; the caller adds the claims. ``asked``: the text of the gang's
    ``network-topology-spec``."""
    nodes = int(engine.cluster.alive.sum())
    for pod in pods:
        refused = engine.refused(pod)
        if refused is not None:
            return refused
    try:
        gather = read_gather(asked)
        found = network.tree() if network is not None else None
        if found is None:
            return Failure(pod=pods[0], nodes=nodes, refused_by=NAME, words=_NO_TREE)
        offered = offers(engine, pods)
        there = existing(engine.cluster, pods[0].annotations.get(SELECTOR, ""))
        good = _scores(engine, pods[0])
        ordered = sorted(pods, key=lambda pod: (pod.index, pod.key))
        for _ in range(_MOST_PLANS):
            made = plan(found, gather, offered, len(pods), there, good)
            if isinstance(made, NoPlan):
                words = f"{made.text}, {_fit_error(engine, pods[0])}{made.tail}"
                return Failure(pod=pods[0], nodes=nodes, refused_by=NAME, words=words)
            done, stopped = _follow(engine, made.counts, ordered)
            if stopped is None:
                return tuple(done)
            row, number = stopped
            offered[row] = number
    except TopologyError as error:
        return Failure(pod=pods[0], nodes=nodes, refused_by=NAME, words=str(error))
    words = f"{_MOST_PLANS} plans failed; {_fit_error(engine, pods[0])}"
    return Failure(pod=pods[0], nodes=nodes, refused_by=NAME, words=words)


def offers(engine: Engine, pods: Sequence[Pod]) -> Ints:
    """How many of these pods each row takes, at most."""
    found = np.zeros(len(engine.cluster.nodes), np.int64)
    classes = {pod.cls.number: pod.cls for pod in pods}
    for number, count in Counter(pod.cls.number for pod in pods).items():
        found += engine.offers(classes[number], count)
    return found


def existing(cluster: Cluster, selector: str) -> Ints | None:
    """How many pods with the same selector each row has; None without one."""
    if not selector:
        return None
    found = np.zeros(len(cluster.nodes), np.int64)
    for number, cls in cluster.class_of.items():
        if cls.annotations.get(SELECTOR) == selector:
            for row, count in cluster.classes.get(number, {}).items():
                found[row] += count
    return found


def _scores(engine: Engine, pod: Pod) -> Ints:
    found = np.zeros(len(engine.cluster.nodes), np.int64)
    judged = engine.evaluator.judge(pod.cls)
    found[judged.rows] = judged.scores
    return found


def _follow(
    engine: Engine, counts: Sequence[tuple[int, int]], pods: Sequence[Pod]
) -> tuple[list[Placement], tuple[int, int] | None]:
    """Places the pods as planned, in a trial. The second value: the row that took fewer than it
    should, and how many it took."""
    done: list[Placement] = []
    waiting = iter(pods)
    with engine.cluster.trial():
        for row, count in counts:
            for number in range(count):
                outcome = engine.place(next(waiting), np.array([row], np.intp))
                if isinstance(outcome, Failure):
                    return done, (row, number)
                done.append(outcome)
    return done, None


def _fit_error(engine: Engine, pod: Pod) -> str:
    why = engine.evaluator.local(pod.cls)
    codes, numbers = np.unique(why[why > FITS], return_counts=True)
    reasons = dict(zip(codes.tolist(), numbers.tolist(), strict=True))
    return Failure(pod=pod, nodes=int(engine.cluster.alive.sum()), reasons=reasons).text()
