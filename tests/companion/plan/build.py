"""Plugins, nodes and pods for tests of ``plan``, without those of ``place``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from koord_scheduler.model.cluster.arguments import Declared
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Rows
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.model.cluster.verdict import FITS, Normalize, Refusal, Verdict, reason
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.profile import Enabled

_NUMBERS = itertools.count(1)
NO_CPU = reason("NodeResourcesFit", "Insufficient cpu")
NO_ROOM = reason("NodeResourcesFit", "Insufficient memory")
TAINTED = reason("TaintToleration", "node(s) had untolerated taint {a: b}", unresolvable=True)


class Fit:
    """Free resources; the freer the better."""

    name = "NodeResourcesFit"
    local = True
    normalize = Normalize.NO

    def __init__(self) -> None:
        self.judged = 0

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return True

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        self.judged += len(rows)
        ask = cluster.vector(pod)
        free = cluster.allocatable[rows] - cluster.requested[rows] - ask
        short = (free < 0) & (ask > 0)
        why = np.where(short[:, 0], NO_CPU, np.where(short.any(axis=1), NO_ROOM, FITS))
        score = free[:, 0] * 100 // np.maximum(cluster.allocatable[rows, 0], 1)
        return Verdict(why.astype(np.int16), score)


class Taints:
    name = "TaintToleration"
    local = True
    normalize = Normalize.REVERSE

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return True

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        found = [cluster.nodes[int(row)] for row in rows]
        hard = [TAINTED if node and node.taints else FITS for node in found]
        soft = [int(node.labels.get("soft", "0")) if node else 0 for node in found]
        return Verdict(np.array(hard, np.int16), np.array(soft, np.int64))


class Apart:
    """Not local: at most one pod of a class on a node whose class has the label ``apart``."""

    name = "InterPodAffinity"
    local = False
    normalize = Normalize.DEFAULT
    why = reason("InterPodAffinity", "node(s) didn't match pod anti-affinity rules")

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return "apart" in pod.labels

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        there = cluster.classes.get(pod.number, {})
        return Verdict(
            np.array([self.why if int(row) in there else FITS for row in rows], np.int16)
        )


class Tickets:
    """Allocator: numbered tickets, ``tickets`` on each node, for pods with the label ``ticket``."""

    name = "DeviceShare"
    local = True
    normalize = Normalize.NO
    none = reason("DeviceShare", "Insufficient tickets")

    def __init__(self, tickets: int = 1) -> None:
        self.tickets = tickets

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return "ticket" in pod.labels

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        return Verdict(np.zeros(len(rows), np.int16))

    def allocate(
        self, cluster: Cluster, pod: Pod, row: int, grants: Mapping[str, Any]
    ) -> int | Refusal:
        taken = {claim.grants.get(self.name) for claim in cluster.claims_on(row).values()}
        free = [n for n in range(self.tickets) if n not in taken]
        return free[0] if free else Refusal(self.none)

    def annotations(self, pod: Pod, grant: int) -> Mapping[str, str]:
        return {"ticket": str(grant)}

    def recognise(self, pod: Pod) -> int | None:
        text = pod.annotations.get("ticket", "")
        return int(text) if text.isdigit() else None


def enabled(plugins: Iterable[Any], **weights: int) -> tuple[tuple[Any, Enabled], ...]:
    return tuple(
        (plugin, Enabled(Declared(plugin.name, "", ""), weights.get(plugin.name, 1)))
        for plugin in plugins
    )


def node(name: str, cpu: int = 4000, memory: int = 100, pods: int = 10, **more: Any) -> Node:
    return Node(name=name, allocatable={"cpu": cpu, "memory": memory, "pods": pods}, **more)


def cluster(*nodes: Node) -> Cluster:
    found = Cluster()
    for each in nodes:
        found.set_node(each)
    return found


def classes() -> Callable[..., PodClass]:
    """Makes classes, each with a number of its own."""

    def make(cpu: int = 1000, memory: int = 1, **more: Any) -> PodClass:
        ask = {"cpu": cpu, "memory": memory}
        return PodClass(number=next(_NUMBERS), namespace="a", requests=ask, **more)

    return make


def pod(name: str, cls: PodClass, **more: Any) -> Pod:
    return Pod(key=f"a/{name}", uid=name, cls=cls, **more)


def engine(found: Cluster, *plugins: Any) -> Engine:
    return Engine(found, enabled(plugins or (Taints(), Fit())))


def running(found: Cluster, name: str, cls: PodClass, where: str, **more: Any) -> Pod:
    made = pod(name, cls, node=where, phase="Running", **more)
    found.add(Claim(made, where, more.get("created_s", 0.0)))
    return made
