"""TaintToleration and NodeUnschedulable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from koord_scheduler.model.cluster.arguments import Args, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Rows
from koord_scheduler.model.cluster.nodes import Taint
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


class Taints:
    """Its score is how many taints ask the pod to stay away, which is turned around."""

    name = TAINTS
    local = True
    normalize = Normalize.REVERSE

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return True

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        why = np.zeros(len(rows), np.int16)
        score = np.zeros(len(rows), np.int64)
        known: dict[tuple[Taint, ...], tuple[int, int]] = {}
        for i, row in enumerate(rows.tolist()):
            node = cluster.nodes[row]
            if node is None or not node.taints:
                continue
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

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return not any(tolerates(t, CORDONED) for t in pod.tolerations)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        nodes = cluster.nodes
        cordoned = [(node := nodes[r]) is not None and node.unschedulable for r in rows.tolist()]
        why = np.zeros(len(rows), np.int16)
        if any(cordoned):
            code = reason(UNSCHEDULABLE, "node(s) were unschedulable", unresolvable=True)
            why[np.array(cordoned)] = code
        return Verdict(why)


def make_taints(args: Mapping[str, Any]) -> Taints:
    read_args(TAINTS, Args, args)
    return Taints()


def make_unschedulable(args: Mapping[str, Any]) -> Unschedulable:
    read_args(UNSCHEDULABLE, Args, args)
    return Unschedulable()
