"""NodeAffinity: node selectors, required and preferred terms."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from koord_scheduler.model.cluster.arguments import Args, ArgumentError, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Bools, Rows
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import NodeRequirement, NodeTerm, PodClass
from koord_scheduler.model.cluster.verdict import Normalize, Verdict, reason
from koord_scheduler.place.domains import NOWHERE, Topology

NAME = "NodeAffinity"
_TEXT = "node(s) didn't match Pod's node affinity/selector"
_MOST_KEPT = 256
_FEW = 8
"""Nodes that are looked at one by one."""


class AffinityArgs(Args, frozen=True, kw_only=True):
    added_affinity: dict[str, Any] = msgspec.field(default_factory=dict)


def holds(requirement: NodeRequirement, node: Node) -> bool:
    """Whether a node meets it. Gt and Lt compare integers; what is none does not match."""
    key, operator, values, field = requirement
    value = node.name if field else node.labels.get(key)
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            there, asked = _whole(value), _whole(values[0] if len(values) == 1 else None)
            if there is None or asked is None:
                return False
            return there > asked if operator == "Gt" else there < asked
    return False


@functools.lru_cache(8192)
def _whole(text: str | None) -> int | None:
    if text is None or len(text) > 19:
        return None
    try:
        return int(text)
    except ValueError:
        return None


def meets(term: NodeTerm, node: Node) -> bool:
    return bool(term) and all(holds(each, node) for each in term)


def selected(pod: PodClass, node: Node) -> bool:
    """Whether the node selector and one of the required terms match."""
    labels = node.labels
    for key, value in pod.node_selector.items():
        if labels.get(key) != value:
            return False
    return pod.node_terms is None or any(meets(term, node) for term in pod.node_terms)


def names_of(pod: PodClass) -> frozenset[str] | None:
    """The only nodes that a required affinity can match, where every term names some: pods of
    DaemonSets. None: any node may match."""
    if pod.node_terms is None:
        return None
    found: set[str] = set()
    for term in pod.node_terms:
        named = [set(r.values) for r in term if r.field and r.operator == "In"]
        if not named:
            return None
        found |= set.intersection(*named)
    return frozenset(found)


class NodeAffinity:
    name = NAME
    local = True
    normalize = Normalize.DEFAULT

    def __init__(self) -> None:
        self._topology = Topology()

    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return bool(pod.node_selector or pod.node_terms is not None or pod.preferred_nodes)

    def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
        matched = match(cluster, self._topology, pod, rows)
        why = np.where(matched, 0, reason(NAME, _TEXT, unresolvable=True)).astype(np.int16)
        if not pod.preferred_nodes:
            return Verdict(why)
        score = np.zeros(len(rows), np.int64)
        for weight, term in pod.preferred_nodes:
            score += weight * (_meet(cluster, self._topology, term, rows) if term else 1)
        return Verdict(why, np.where(matched, score, 0))


def match(cluster: Cluster, topology: Topology, pod: PodClass, rows: Rows) -> Bools:
    """Which of these nodes the pod's selector and required terms match."""
    names = names_of(pod)
    if names is not None:
        at = {cluster.row[name] for name in names if name in cluster.row}
        found = np.isin(rows, np.fromiter(at, np.intp, len(at)))
        for i in np.flatnonzero(found).tolist():
            node = cluster.nodes[rows[i]]
            found[i] = node is not None and selected(pod, node)
        return found
    found = cluster.alive[rows]
    if len(rows) <= _FEW:
        for i in np.flatnonzero(found).tolist():
            node = cluster.nodes[rows[i]]
            found[i] = node is not None and selected(pod, node)
        return found
    for key, value in pod.node_selector.items():
        if not found.any():
            return found
        found &= _hold(cluster, topology, NodeRequirement(key, "In", (value,)), rows)
    if pod.node_terms is not None:
        met = np.zeros(len(rows), np.bool_)
        for term in dict.fromkeys(pod.node_terms):
            if (found & ~met).any():
                met |= _meet(cluster, topology, term, rows)
        found &= met
    return found


def _meet(cluster: Cluster, topology: Topology, term: NodeTerm, rows: Rows) -> Bools:
    """As `meets`, of each row with a node."""
    found = np.full(len(rows), bool(term))
    for each in term:
        if not found.any():
            break
        found &= _hold(cluster, topology, each, rows)
    return found


def _hold(cluster: Cluster, topology: Topology, requirement: NodeRequirement, rows: Rows) -> Bools:
    """As `holds`, of each row with a node: by the values of the label, not by the nodes."""
    key, operator, values, field = requirement
    if field:
        nodes = (cluster.nodes[row] for row in rows.tolist())
        each = (node is not None and holds(requirement, node) for node in nodes)
        return np.fromiter(each, np.bool_, len(rows))
    domains = topology.of(cluster, key)
    of = domains.of[rows]
    if operator in ("Exists", "DoesNotExist"):
        there: Bools = (of != NOWHERE) if operator == "Exists" else (of == NOWHERE)
        return there
    table = np.zeros(domains.number + 1, np.bool_)  # the last is of nodes without the label
    if operator in ("In", "NotIn"):
        table[[n for value in values if (n := domains.values.get(value)) is not None]] = True
        if operator == "NotIn":
            table = ~table
        found: Bools = table[of]
        return found
    asked = _whole(values[0] if len(values) == 1 else None)
    if asked is not None and operator in ("Gt", "Lt"):
        for value, number in domains.values.items():
            whole = _whole(value)
            if whole is not None:
                table[number] = whole > asked if operator == "Gt" else whole < asked
    compared: Bools = table[of]
    return compared


class Matched:
    """``match`` over all rows by class, for plugins that count on nodes where the pod may not go.
    Kept until labels change."""

    def __init__(self) -> None:
        self._topology = Topology()
        self._kept: OrderedDict[int, Bools] = OrderedDict()
        self._seen: tuple[Cluster | None, int] = (None, -1)

    def of(self, cluster: Cluster, pod: PodClass) -> Bools:
        if self._seen != (cluster, cluster.labels_version):
            self._kept.clear()
            self._seen = (cluster, cluster.labels_version)
        found = self._kept.get(pod.number)
        if found is None or len(found) != len(cluster.nodes):
            if len(self._kept) >= _MOST_KEPT:
                self._kept.popitem(last=False)
            found = cluster.alive[: len(cluster.nodes)].copy()
            if pod.node_selector or pod.node_terms is not None:
                rows = cluster.rows()
                found[rows] = match(cluster, self._topology, pod, rows)
            self._kept[pod.number] = found
        return found


def make(args: Mapping[str, Any]) -> NodeAffinity:
    if read_args(NAME, AffinityArgs, args).added_affinity:
        raise ArgumentError(f"{NAME}: addedAffinity is not supported; label the nodes instead")
    return NodeAffinity()
