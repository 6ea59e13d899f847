"""Clusters, nodes and pods for tests of plugins."""

from __future__ import annotations

import itertools
from typing import Any

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.model.cluster.verdict import REASONS, Plugin

GI = 1 << 30
_numbers = itertools.count(1)


def cls(**more: Any) -> PodClass:
    return PodClass(**{"number": next(_numbers), "namespace": "ns", **more})


def pod(name: str, of: PodClass | None = None, **more: Any) -> Pod:
    return Pod(key=f"ns/{name}", uid=name, cls=of or cls(), **more)


def cluster(*nodes: Node) -> Cluster:
    found = Cluster()
    for each in nodes:
        found.set_node(each)
    return found


def node(name: str = "n1", cpu: int = 96_000, memory: int = 512 * GI, **more: Any) -> Node:
    amounts = {"cpu": cpu, "memory": memory, "pods": 110, **more.pop("extra", {})}
    return Node(name=name, allocatable=amounts, **more)


def put(
    found: Cluster,
    where: str,
    of: PodClass,
    name: str = "",
    *,
    terminating: bool = False,
    **more: Any,
) -> Pod:
    there = pod(name or f"p{next(_numbers)}", of, terminating=terminating)
    claim = Claim(there, where, **more)
    found.add(claim)
    return claim.pod


def reasons(plugin: Plugin, where: Cluster, of: PodClass) -> list[str]:
    """For each row; empty where the pod fits."""
    if not plugin.applies(where, of):
        return [""] * len(where.rows())
    return [REASONS[int(code)].text for code in plugin.judge(where, of, where.rows()).why]


def scores(plugin: Plugin, where: Cluster, of: PodClass) -> list[int]:
    found = plugin.judge(where, of, where.rows()).score
    return [0] * len(where.rows()) if found is None else found.tolist()
