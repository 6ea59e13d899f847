"""Who the numbers are about: name, class and cgroup of pods and applications, the node's size.

All other series know a pod by its uid. These keep, as labels, what a reader of the past needs to
name it when it is gone and the daemon too: samples of newcomers at once, of everybody each five
minutes, so that an hour of a full node costs a few thousand samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from koordlet.collectors.base import CollectorOptions, CollectorPart, Round, SeriesStore, series_of
from koordlet.decision.metrics import (
    HOST_APPLICATION_INFO,
    IDENTITY_REPEAT_S,
    NODE_CPU_CAPACITY,
    NODE_MEMORY_CAPACITY,
    POD_INFO,
    Metric,
)
from koordlet.decision.names import encodable, shown
from koordlet.decision.snapshot import Application, Pod

_LONGEST = 253
"""Of a name, as Kubernetes has it."""
_Who = tuple[Metric, tuple[str, ...]]


class IdentityCollector:
    name = "identity"
    optional = False

    def __init__(self, store: SeriesStore, interval_s: float = 1.0) -> None:
        self.interval_s = interval_s
        self._store = store
        self._seen: tuple[tuple[Pod, ...], tuple[Application, ...]] | None = None
        self._series: dict[_Who, int] = {}
        self._repeat_s = -math.inf

    def collect(self, round_: Round) -> None:
        seen = (round_.pods, round_.applications)
        is_due = round_.now_s >= self._repeat_s
        if self._seen is None or seen[0] is not self._seen[0] or seen[1] is not self._seen[1]:
            self._seen = seen
            newcomers = self._keep(set(_everybody(*seen)))
        else:
            newcomers = set()
        for who in self._series if is_due else newcomers:
            round_.ids.append(self._series[who])
            round_.values.append(1.0)
        if is_due:
            self._repeat_s = round_.now_s + IDENTITY_REPEAT_S
            name = (encodable(round_.node.name),)
            round_.add(NODE_CPU_CAPACITY, name, round_.node.capacity_milli / 1000)
            round_.add(NODE_MEMORY_CAPACITY, name, round_.node.memory_bytes)

    def close(self) -> None:
        self._keep(set())
        self._seen, self._repeat_s = None, -math.inf

    def _keep(self, wanted: set[_Who]) -> set[_Who]:
        """Who has come."""
        for who in self._series.keys() - wanted:
            self._store.release(self._series.pop(who))
        newcomers = wanted - self._series.keys()
        for who in newcomers:
            self._series[who] = series_of(self._store, *who)
        return newcomers


def _everybody(pods: tuple[Pod, ...], applications: tuple[Application, ...]) -> Iterator[_Who]:
    for pod in pods:
        if not pod.awaits_labels:  # its class would be a guess
            names = (pod.uid, pod.namespace, pod.name)
            yield POD_INFO, (*map(_bounded, names), pod.qos.value, shown(pod.cgroup))
    for application in applications:
        qos = application.qos.value if application.qos is not None else ""
        name = _bounded(application.name)
        yield HOST_APPLICATION_INFO, (name, qos, shown(application.cgroup))


def _bounded(name: str) -> str:
    return encodable(name[:_LONGEST])


COLLECTOR = CollectorPart(
    name=IdentityCollector.name,
    help="Names and classes of pods and applications, for those who look back.",
    options=CollectorOptions(),
    make=lambda machine, options: IdentityCollector(machine.store, options.interval_seconds),
    metrics=(POD_INFO, HOST_APPLICATION_INFO, NODE_CPU_CAPACITY, NODE_MEMORY_CAPACITY),
)
