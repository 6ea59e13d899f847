"""What the plugins of the descheduler look at: nodes, their pods, their usage, the workloads.

CPU is in milli-cores, everything else in whole units (docs/reference/central.md 0.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Owner, Pod
from koordlet.protocol.qos import PriorityClass

Amounts = Mapping[str, int]
TERMINATED = ("Succeeded", "Failed")
MIRROR = "kubernetes.io/config.mirror"
SYSTEM_CRITICAL = 2_000_000_000
"""The lowest priority of Kubernetes' own critical classes."""


class Details(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What deschedulers alone want to know of a pod.

    ``owned``: it has owner references. ``static``: a mirror pod, or one of a file of the kubelet.
    ``evict_anyway``: it has ``descheduler.alpha.kubernetes.io/evict``. ``reasons``: of the pod and
    of its containers' states; ``init_reasons`` of its init containers'. ``restarts`` are added up.
    ``exit_codes``: of containers that ended. ``started_s``: Unix time, 0 before.
    """

    owned: bool = True
    static: bool = False
    local_storage: bool = False
    pvc: bool = False
    evict_anyway: bool = False
    deletion_cost: int = 0
    eviction_cost: int = 0
    restarts: int = 0
    init_restarts: int = 0
    reasons: tuple[str, ...] = ()
    init_reasons: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    images: tuple[str, ...] = ()
    priority_class_name: str = ""
    started_s: float = 0.0


NO_DETAILS = Details()


class Resident(msgspec.Struct, frozen=True):
    """A pod on a node."""

    pod: Pod
    details: Details = NO_DETAILS

    @property
    def namespace(self) -> str:
        return self.pod.cls.namespace

    @property
    def name(self) -> str:
        return self.pod.key.partition("/")[2]

    @property
    def requests(self) -> Amounts:
        return self.pod.cls.requests

    @property
    def active(self) -> bool:
        return self.pod.phase not in TERMINATED and not self.pod.terminating

    @property
    def prod(self) -> bool:
        return self.pod.cls.priority_class is PriorityClass.PROD


class NodeUsage(msgspec.Struct, frozen=True):
    """Of one NodeMetric: what host and pods used, and each pod by its key. ``updated_s``: 0 where
    it was never reported."""

    updated_s: float
    system: Amounts
    pods: Mapping[str, Amounts]


class Workload(msgspec.Struct, frozen=True):
    """A controller as eviction limits count it: a ReplicaSet of a Deployment counts as the
    Deployment. ``members``: uids of all controllers whose pods are its pods. ``failures_left``: of
    a batch Job: how many of its pods may fail before it does; None: no limit, or no Job."""

    uid: str
    kind: str
    name: str
    replicas: int
    members: frozenset[str]
    failures_left: int | None = None

    @property
    def batch(self) -> bool:
        """Pods of it that are done are not missed."""
        return self.kind == "Job"


FindWorkload = Callable[[str, Owner], "Workload | None"]
"""Namespace and controller of a pod -> its workload; None while it is not known."""


@dataclass(frozen=True)
class World:
    """One instant. ``nodes``: all that a descheduler may look at, by name; ``residents``: pods by
    their node, finished ones too. Times are Unix times."""

    now_s: float
    nodes: Mapping[str, Node]
    residents: Mapping[str, tuple[Resident, ...]]
    usage: Mapping[str, NodeUsage] = field(default_factory=dict)
    workload: FindWorkload = lambda _namespace, _owner: None
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    priority_values: Mapping[str, int] = field(default_factory=dict)
    """Of PriorityClasses, by name."""
    leaving: frozenset[str] = frozenset()
    """Keys of pods that have a migration job: their load goes with them."""
    keyed: Mapping[str, Resident] | None = None
    controlled: Mapping[str, Sequence[Resident]] | None = None
    """``by_key`` and ``by_controller`` where somebody keeps them."""

    def on(self, node: str) -> tuple[Resident, ...]:
        return self.residents.get(node, ())

    def active_on(self, node: str) -> list[Resident]:
        return [each for each in self.on(node) if each.pod.phase not in TERMINATED]

    @cached_property
    def requested(self) -> dict[str, dict[str, int]]:
        """By node: what its pods ask for, with their number as ``pods``."""
        return {name: requests_of(self.active_on(name)) for name in self.nodes}

    @cached_property
    def by_controller(self) -> Mapping[str, Sequence[Resident]]:
        """By uid of the controller: pods that are on nodes."""
        if self.controlled is not None:
            return self.controlled
        found: dict[str, list[Resident]] = {}
        for residents in self.residents.values():
            for each in residents:
                if each.pod.owner.uid:
                    found.setdefault(each.pod.owner.uid, []).append(each)
        return found

    @cached_property
    def _away(self) -> dict[str, frozenset[str]]:
        return {}

    @cached_property
    def by_key(self) -> Mapping[str, Resident]:
        if self.keyed is not None:
            return self.keyed
        return {r.pod.key: r for residents in self.residents.values() for r in residents}

    def workload_of(self, resident: Resident) -> Workload | None:
        owner = resident.pod.owner
        return self.workload(resident.namespace, owner) if owner.uid else None

    def away(self, workload: Workload) -> frozenset[str]:
        """Keys of its pods that are not ready, or not active. Those of a Job that are done left
        nobody waiting."""
        found = self._away.get(workload.uid)
        if found is None:
            found = self._away[workload.uid] = frozenset(
                each.pod.key
                for each in self.members(workload)
                if not (each.active and each.pod.ready)
                and not (workload.batch and each.pod.phase in TERMINATED)
            )
        return found

    def members(self, workload: Workload) -> list[Resident]:
        return [each for uid in workload.members for each in self.by_controller.get(uid, ())]


def requests_of(residents: Iterable[Resident]) -> dict[str, int]:
    found = {"pods": 0}
    for each in residents:
        found["pods"] += 1
        for name, amount in each.requests.items():
            found[name] = found.get(name, 0) + amount
    return found
