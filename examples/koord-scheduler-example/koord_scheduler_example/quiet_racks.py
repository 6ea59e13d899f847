"""Racks that are under repair take no pod, and of the others the emptier one is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from koord_scheduler.model.cluster.arguments import Args, Declared, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import PODS, Rows
from koord_scheduler.model.cluster.pods import PodClass
from koord_scheduler.model.cluster.verdict import FITS, Normalize, Verdict, reason

NAME = "QuietRacks"
_IN_REPAIR = reason(NAME, "node(s) were in a rack under repair", unresolvable=True)


class QuietRacksArgs(Args, frozen=True):
    """``label``: the node's label with the rack. ``inRepair``: values of it that take no pod."""

    label: str = "example.com/rack"
    in_repair: tuple[str, ...] = ()


class QuietRacks:
    """``local`` is False, because a node's score depends on the pods of other nodes."""

    name = NAME
    local = False
    normalize = Normalize.REVERSE

    def __init__(self, args: QuietRacksArgs) -> None:
        self.args = args

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return True

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        """The score is the number of pods in the rack, for each of the node's rows; the scheduler
        reverses and normalises it."""
        racks = [self._rack(cluster, int(row)) for row in rows]
        refused = [_IN_REPAIR if rack in self.args.in_repair else FITS for rack in racks]
        pods: dict[str, int] = {}
        for rack, number in zip(racks, cluster.requested[rows, PODS].tolist(), strict=True):
            pods[rack] = pods.get(rack, 0) + number
        score = np.array([pods[rack] for rack in racks], np.int64)
        return Verdict(np.array(refused, np.int16), score)

    def _rack(self, cluster: Cluster, row: int) -> str:
        node = cluster.nodes[row]
        return node.labels.get(self.args.label, "") if node is not None else ""


def make(args: Mapping[str, Any]) -> QuietRacks:
    return QuietRacks(read_args(NAME, QuietRacksArgs, args))


PLUGIN = Declared(NAME, "keeps pods off racks under repair", f"{__name__}:make", weight=2)
