"""TaintToleration and NodeUnschedulable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from koord_scheduler.model.cluster.arguments import Args, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Bools, Rows
from koord_scheduler.model.cluster.nodes import Node, Taint
from koord_scheduler.model.cluster.pods import PodClass, Toleration
from koord_scheduler.model.cluster.verdict import FITS, Normalize, Verdict, reason

TAINTS = "TaintToleration"
UNSCHEDULABLE = "NodeUnschedulable"
CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_REFUSING = frozenset(("NoSchedule", "NoExecute"))


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def untolerated(tolerations: tuple[Toleration, ...], taints: tuple[Taint, ...]) -> Taint | None:
    """The first taint that keeps the pod away."""
    for taint in taints:
        if taint.effect in _REFUSING and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None


class Marked:
    """Which nodes have what few nodes have; ``test``: by labels, taints or whether it is
    cordoned."""

    def __init__(self, test: Callable[[Node], object]) -> None:
        self._test = test
        self._of: Cluster | None = None

    def among(self, cluster: Cluster, rows: Rows) -> list[int]:
        """Places in ``rows``."""
        if self._of is not cluster:
            self._of, self._labels_version, self._version = cluster, -1, -1
            self._marked: Bools = np.zeros(0, np.bool_)
        if self._labels_version != cluster.labels_version:
            self._refresh(cluster)
        return self._marked[rows].nonzero()[0].tolist() if self._any else []

    def _refresh(self, cluster: Cluster) -> None:
        more = len(cluster.alive) - len(self._marked)
        if more:
            self._marked = np.pad(self._marked, (0, more))
        for row in cluster.since(self._version).tolist():
            node = cluster.nodes[row]
            self._marked[row] = node is not None and bool(self._test(node))
        self._any = bool(self._marked.any())
        self._labels_version, self._version = cluster.labels_version, cluster.version


class Taints:
    """Its score is how many taints ask the pod to stay away, which is turned around."""

    name = TAINTS
    local = True
    normalize = Normalize.REVERSE

    def __init__(self) -> None:
        self._tainted = Marked(lambda node: node.taints)

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return True

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        why = np.zeros(len(rows), np.int16)
        score = np.zeros(len(rows), np.int64)
        known: dict[tuple[Taint, ...], tuple[int, int]] = {}
        for i in self._tainted.among(cluster, rows):
            node = cluster.nodes[rows[i]]
            assert node is not None
            found = known.get(node.taints)
            if found is None:
                found = known[node.taints] = _judged(pod, node.taints)
            why[i], score[i] = found
        return Verdict(why, score)


def _judged(pod: PodClass, taints: tuple[Taint, ...]) -> tuple[int, int]:
    taint = untolerated(pod.tolerations, taints)
    code = FITS
    if taint is not None:
        text = f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
        code = reason(TAINTS, text, unresolvable=True)
    avoided = sum(
        not any(tolerates(t, each) for t in pod.tolerations)
        for each in taints
        if each.effect == "PreferNoSchedule"
    )
    return code, avoided


class Unschedulable:
    name = UNSCHEDULABLE
    local = True
    normalize = Normalize.NO

    def __init__(self) -> None:
        self._cordoned = Marked(lambda node: node.unschedulable)

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return not any(tolerates(t, CORDONED) for t in pod.tolerations)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        why = np.zeros(len(rows), np.int16)
        cordoned = self._cordoned.among(cluster, rows)
        if cordoned:
            code = reason(UNSCHEDULABLE, "node(s) were unschedulable", unresolvable=True)
            why[cordoned] = code
        return Verdict(why)


def make_taints(args: Mapping[str, Any]) -> Taints:
    read_args(TAINTS, Args, args)
    return Taints()


def make_unschedulable(args: Mapping[str, Any]) -> Unschedulable:
    read_args(UNSCHEDULABLE, Args, args)
    return Unschedulable()
