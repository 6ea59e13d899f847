"""Nodes that are left alone for a while, because kubelet refused what was placed there.

`OutOfcpu` and the like mean that kubelet counts more than the API server shows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Rows
from koord_scheduler.model.cluster.nodes import Slot
from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.model.cluster.verdict import FITS, Normalize, Verdict, reason

NAME = "NodeBackoff"
FIRST_S = 10.0
MOST_S = 300.0
_FORGET_S = 600.0
_REFUSED = reason(NAME, "node(s) refused a pod a moment ago")
_REASONS = frozenset(
    {"UnexpectedAdmissionError", "TopologyAffinityError", "NodeAffinity", "NodePorts"}
    | {"InvalidNodeInfo", "PodFeatureUnsupported", "NodeSelectorMismatching"}
)


class Avoided(NamedTuple):
    """``refusals``: in a row. ``last_s``, ``until_s``: Unix times."""

    until_s: float
    last_s: float
    refusals: int


AVOIDED: Slot[Avoided] = Slot("avoided")


def is_refusal(phase: str, reason: str) -> bool:
    """Whether kubelet refused the pod, by ``status.phase`` and ``status.reason``."""
    return phase == "Failed" and (reason.startswith("OutOf") or reason in _REASONS)


def refused(cluster: Cluster, node: str, now_s: float) -> float:
    """Kubelet refused a pod on the node; until when it is left alone: 10 s, doubled with each
    refusal up to 5 minutes, forgotten after ten without one."""
    before = cluster.all(AVOIDED).get(node)
    again = before is not None and now_s - before.last_s < _FORGET_S
    refusals = before.refusals + 1 if before is not None and again else 1
    until_s = now_s + min(FIRST_S * 2.0 ** min(refusals - 1, 16), MOST_S)
    cluster.put(AVOIDED, node, Avoided(until_s, now_s, refusals))
    return until_s


def expire(cluster: Cluster, now_s: float) -> bool:
    """Ends what is over, as of now; whether a node may be used again. Call it with each cycle."""
    ended = False
    for node, avoided in tuple(cluster.all(AVOIDED).items()):
        if avoided.until_s and avoided.until_s <= now_s:
            # The count stays, for a refusal that comes at once.
            cluster.put(AVOIDED, node, avoided._replace(until_s=0.0))
            ended = True
        elif not avoided.until_s and now_s - avoided.last_s >= _FORGET_S:
            cluster.put(AVOIDED, node, None)
    return ended


class NodeBackoff:
    name = NAME
    local = True
    normalize = Normalize.NO

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return bool(cluster.all(AVOIDED))

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        avoided = [
            cluster.row[node]
            for node, each in cluster.all(AVOIDED).items()
            if each.until_s and node in cluster.row
        ]
        return Verdict(np.where(np.isin(rows, avoided), _REFUSED, FITS).astype(np.int16))
