"""NodePorts: no two pods of a node have the same port of the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from koord_scheduler.model.cluster.arguments import Args, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Rows
from koord_scheduler.model.cluster.pods import HostPort, PodClass
from koord_scheduler.model.cluster.verdict import Normalize, Verdict, reason

NAME = "NodePorts"
_EVERYWHERE = "0.0.0.0"


def collide(one: HostPort, other: HostPort) -> bool:
    if (one.port, one.protocol) != (other.port, other.protocol):
        return False
    return one.address == other.address or _EVERYWHERE in (one.address, other.address)


class Ports:
    name = NAME
    local = True
    normalize = Normalize.NO

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return bool(pod.ports)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        taken: set[int] = set()
        for number, cls in cluster.class_of.items():
            if cls.ports and any(collide(a, b) for a in cls.ports for b in pod.ports):
                taken.update(cluster.classes[number])
        why = np.zeros(len(rows), np.int16)
        if taken:
            text = "node(s) didn't have free ports for the requested pod ports"
            why[np.isin(rows, np.fromiter(taken, np.intp, len(taken)))] = reason(NAME, text)
        return Verdict(why)


def make(args: Mapping[str, Any]) -> Ports:
    read_args(NAME, Args, args)
    return Ports()
