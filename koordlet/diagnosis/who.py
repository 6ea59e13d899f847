"""Whom the series of a time are about, as the store has it (collector ``identity``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from koordlet.admin.ranges import QueryView
from koordlet.decision.metrics import (
    HOST_APPLICATION_INFO,
    IDENTITY_REPEAT_S,
    NODE_CPU_CAPACITY,
    NODE_MEMORY_CAPACITY,
    POD_INFO,
)
from koordlet.decision.names import harmless
from koordlet.decision.record import PodKind
from koordlet.protocol.qos import QoSClass

AFTER_S = 10.0
LOOK_BACK_S = IDENTITY_REPEAT_S + 75.0
"""Names are repeated so often; coarse history puts them at the start of their step."""
SENSITIVE = frozenset({QoSClass.LSE, QoSClass.LSR, QoSClass.LS})
Key = tuple[PodKind, str]
"""A pod by its uid, an application by its name."""


class Who(NamedTuple):
    """A pod or application. ``uid``: of a pod alone. Where the store does not name a pod, ``name``,
    ``qos`` and ``cgroup`` are empty."""

    kind: PodKind
    uid: str = ""
    name: str = ""
    namespace: str = ""
    qos: str = ""
    cgroup: str = ""

    @property
    def title(self) -> str:
        """Harmless to print; the names come from pods."""
        name = self.name or self.uid
        return harmless(f"{self.namespace}/{name}" if self.namespace else name)

    @property
    def is_best_effort(self) -> bool:
        return self.qos == QoSClass.BE

    @property
    def is_sensitive(self) -> bool:
        return self.qos in SENSITIVE


class Queries(Protocol):
    """A store that can be asked: a daemon's, or what one has left on disk."""

    def query(
        self, kind: str, match: Mapping[str, str], window_s: float, aggregate: str, until: float
    ) -> QueryView:
        """One number for each series, over the time before ``until``."""
        ...


class Node(NamedTuple):
    """Empty and 0 where the store does not tell."""

    name: str = ""
    cpu_cores: float = 0.0
    memory_bytes: int = 0


def everybody(source: Queries, start: float, end: float) -> Mapping[Key, Who]:
    """Who was there in the time, and some who had just gone; of one whose class changed, the last
    one. A daemon that has just started measures before it names anything, so names that came just
    after the time are in it as well."""
    soon = _told(source, AFTER_S, end + AFTER_S)
    return {**soon, **_told(source, end - start + LOOK_BACK_S, end)}


def _told(source: Queries, window_s: float, end: float) -> Mapping[Key, Who]:
    found: dict[Key, tuple[float, Who]] = {}
    for metric in (POD_INFO, HOST_APPLICATION_INFO):
        for each in source.query(metric.kind, {}, window_s, "last", end).series:
            labels = each.labels
            if metric is POD_INFO:
                key = PodKind.POD, labels["pod_uid"]
                who = Who(*key, labels["name"], labels["namespace"], labels["qos"])
            else:
                key = PodKind.APPLICATION, labels["host_app_name"]
                who = Who(key[0], name=key[1], qos=labels["qos"])
            who = who._replace(cgroup=labels["cgroup"])
            if key not in found or each.age_s < found[key][0]:
                found[key] = each.age_s, who
    return {key: who for key, (_, who) in found.items()}


def unnamed(key: Key) -> Who:
    """Whose numbers the store has, but not the name."""
    kind, name = key
    return Who(kind, uid=name) if kind is PodKind.POD else Who(kind, name=name)


def node(source: Queries, start: float, end: float) -> Node:
    """As it was last in that time."""
    found = Node()
    window_s = end - start + LOOK_BACK_S
    for metric in (NODE_CPU_CAPACITY, NODE_MEMORY_CAPACITY):
        series = source.query(metric.kind, {}, window_s, "last", end).series
        newest = min(series, key=lambda each: each.age_s, default=None)
        if newest is None:
            continue
        found = found._replace(name=harmless(newest.labels["node"]))
        if metric is NODE_CPU_CAPACITY:
            found = found._replace(cpu_cores=newest.value)
        else:
            found = found._replace(memory_bytes=int(newest.value))
    return found
