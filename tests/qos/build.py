"""Snapshots for tests, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from koordlet.decision.metrics import (
    HOST_APPLICATION_CPU_USAGE,
    NODE_CPU_USAGE,
    POD_CPU_USAGE,
    Aggregate,
    Metric,
    Reading,
)
from koordlet.decision.plan import Plan
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import (
    Application,
    Capability,
    Container,
    Cpu,
    KernelRules,
    Kubelet,
    KubepodsTree,
    Node,
    NodeCpus,
    Pod,
    Rdt,
    Snapshot,
    Topology,
    Wake,
)
from koordlet.protocol.cpuset import CPUSet, format_cpulist
from koordlet.protocol.qos import KubeQoS, QoSClass
from koordlet.protocol.slo import NodeSLOSpec, ResourceThresholdStrategy

KUBEPODS = "kubepods"
BE_DIR = "kubepods/besteffort"


@dataclass
class Metrics:
    """Last samples by kind and labels, and largest ones where those differ; other aggregates and
    windows are the store's own business."""

    samples: dict[tuple[str, tuple[str, ...]], float] = field(default_factory=dict)
    largest: dict[tuple[str, tuple[str, ...]], float] = field(default_factory=dict)
    age_s: float = 0.2

    def read(
        self,
        metric: Metric,
        labels: tuple[str, ...] = (),
        *,
        window_s: float,
        aggregate: Aggregate = Aggregate.LAST,
    ) -> Reading | None:
        value = self.samples.get((metric.kind, labels))
        if aggregate is Aggregate.MAX:
            value = self.largest.get((metric.kind, labels), value)
        if value is None or self.age_s > window_s:
            return None
        return Reading(value, self.age_s, 1, window_s)

    def newest(self, metric: Metric, *, window_s: float) -> dict[tuple[str, ...], Reading]:
        found = {} if self.age_s > window_s else self.samples
        return {
            labels: Reading(value, self.age_s, 1, window_s)
            for (kind, labels), value in found.items()
            if kind == metric.kind
        }


@dataclass
class Kernel:
    """A tree of cgroups with their values: an InForce that also takes a plan's settings.
    ``foreign``: files that somebody else has written since. ``others``: what hooks want."""

    values: dict[tuple[str, Resource], Value] = field(default_factory=dict)
    cgroups: set[str] = field(default_factory=set)
    originals: dict[tuple[str, Resource], Value] = field(default_factory=dict)
    foreign: set[tuple[str, Resource]] = field(default_factory=set)
    others: dict[tuple[str, Resource], Value] = field(default_factory=dict)

    def value(self, cgroup: str, resource: Resource) -> Value | None:
        return self.values.get((cgroup, resource))

    def reaches(self, cgroup: str, resource: Resource, least: int) -> bool:
        value = self.value(cgroup, resource)
        return isinstance(value, int) and value >= least

    def original(self, cgroup: str, resource: Resource) -> Value | None:
        return self.originals.get((cgroup, resource), self.value(cgroup, resource))

    def without(self, owner: str, cgroup: str, resource: Resource) -> Value | None:
        return self.others.get((cgroup, resource), self.original(cgroup, resource))

    def is_ours(self, cgroup: str, resource: Resource) -> bool:
        return (cgroup, resource) in self.originals.keys() - self.foreign

    def children(self, cgroup: str, of: Resource | None = None) -> tuple[str, ...]:
        return tuple(sorted(c for c in self.cgroups if c.rpartition("/")[0] == cgroup and c))

    def add(self, cgroup: str, **values: Value) -> Kernel:
        """``cpus`` and ``quota`` of a cgroup."""
        self.cgroups.add(cgroup)
        names = {"cpus": Resource.CPUSET_CPUS, "quota": Resource.CPU_QUOTA_US}
        names |= {"period": Resource.CPU_PERIOD_US, "idle": Resource.CPU_IDLE}
        self.values.update({(cgroup, names[name]): value for name, value in values.items()})
        return self

    def take(self, plan: Plan) -> None:
        """What the actuator does with a plan: set what it lists, put back what it gave up."""
        wanted = {(s.cgroup, s.resource) for s in plan.settings}
        if not plan.keep_all:
            for key in self.originals.keys() - wanted - set(plan.keep):
                original = self.originals.pop(key)
                if key not in self.foreign:
                    self.values[key] = original
        for setting in plan.settings:
            key = setting.cgroup, setting.resource
            self.originals.setdefault(key, self.values[key])
            self.values[key] = setting.value


def topology(
    count: int, *, cores: list[int] | None = None, numa: list[int] | None = None, sockets=None
) -> Topology:
    cores = cores or list(range(count))
    numa = numa or [0] * count
    sockets = sockets or [0] * count
    return Topology(tuple(Cpu(i, cores[i], sockets[i], numa[i], sockets[i]) for i in range(count)))


EIGHT = topology(8, cores=[0, 0, 1, 1, 2, 2, 3, 3], numa=[0, 0, 0, 0, 1, 1, 1, 1])
"""Siblings {0,1}{2,3} on NUMA node 0 and {4,5}{6,7} on 1."""


def node(cpus: int | Topology, capacity_milli: int | None = None, **fields: Any) -> Node:
    """``fields``: of the node, or of one of its groups."""
    cpus = topology(cpus) if isinstance(cpus, int) else cpus
    capacity = len(cpus.cpus) * 1000 if capacity_milli is None else capacity_milli
    flat = {
        "root": KUBEPODS,
        "besteffort": BE_DIR,
        "burstable": "kubepods/burstable",
        "cpusets_nest": True,
    } | fields
    groups = {"cpus": NodeCpus, "kubelet": Kubelet, "tree": KubepodsTree, "rules": KernelRules}
    groups |= {"rdt": Rdt}
    found = {
        name: kind(**{key: flat.pop(key) for key in kind.__struct_fields__ if key in flat})
        for name, kind in groups.items()
        if name not in flat
    }
    return Node("n", cpus, capacity, 1 << 34, **found, **flat)


def bare(cpus: int | Topology, **fields: Any) -> Node:
    """A node without kubepods."""
    return node(cpus, root="", besteffort="", burstable="", **fields)


def capabilities(**supported: bool) -> dict[str, Capability]:
    """``cpu_idle=True`` becomes the capability ``cpu.idle``."""
    return {
        name.replace("_", ".", 1): Capability(name.replace("_", ".", 1), value, "tried")
        for name, value in supported.items()
    }


def pod(
    uid: str,
    qos: str | None = "LS",
    kube: str = "Burstable",
    *,
    cpus: Iterable[int] | None = None,
    containers: tuple[str, ...] = (),
    **fields: Any,
) -> Pod:
    where = {"Guaranteed": "kubepods", "Burstable": "kubepods/burstable", "BestEffort": BE_DIR}
    cgroup = f"{where[kube]}/pod{uid}"
    return Pod(
        uid,
        cgroup,
        KubeQoS(kube),
        containers=tuple(Container(c, f"{cgroup}/{c}") for c in containers),
        raw_qos=None if qos is None else QoSClass(qos),
        pinned_cpus=None if cpus is None else frozenset(cpus),
        **fields,
    )


def be_pod(uid: str, **fields: Any) -> Pod:
    return pod(uid, "BE", "BestEffort", **fields)


def app(name: str, qos: str | None, cgroup: str | None = None, **fields: Any) -> Application:
    return Application(
        name, name if cgroup is None else cgroup, None if qos is None else QoSClass(qos), **fields
    )


def slo(**fields: Any) -> NodeSLOSpec:
    fields = {"enable": True, "cpu_suppress_threshold_percent": 70} | fields
    return NodeSLOSpec(resource_used_threshold_with_be=ResourceThresholdStrategy(**fields))


def metrics(
    used: float | None,
    pods: Mapping[str, float] | None = None,
    apps: Mapping[str, float] | None = None,
) -> Metrics:
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    if used is not None:
        found[NODE_CPU_USAGE.kind, ()] = used
    found |= {(POD_CPU_USAGE.kind, (uid,)): value for uid, value in (pods or {}).items()}
    found |= {
        (HOST_APPLICATION_CPU_USAGE.kind, (name,)): value for name, value in (apps or {}).items()
    }
    return Metrics(found)


def kernel(cpus: int, be_cpus: str = "", quota: int = -1) -> Kernel:
    """kubepods with all CPUs and an unlimited quota, besteffort with the given values."""
    every = format_cpulist(range(cpus))
    found = Kernel()
    found.add("", cpus=every)
    found.add(KUBEPODS, cpus=every, quota=-1)
    found.add(BE_DIR, cpus=be_cpus or every, quota=quota)
    return found


def snapshot(
    node_: Node,
    *,
    pods: Iterable[Pod] = (),
    apps: Iterable[Application] = (),
    spec: NodeSLOSpec | None = None,
    metrics_: Metrics | None = None,
    in_force: Kernel | None = None,
    now: float = 100.0,
    wake: Wake = Wake(),  # noqa: B008  an immutable struct
    **fields: Any,
) -> Snapshot:
    return Snapshot(
        now=now,
        time=1.7e9 + now,
        wake=wake,
        node=node_,
        pods=tuple(pods),
        applications=tuple(apps),
        slo=slo() if spec is None else spec,
        metrics=metrics_ or metrics(0.0),
        in_force=in_force or kernel(len(node_.topology.cpus)),
        **fields,
    )


def cpus_of(plan: Plan) -> dict[str, Value]:
    return {s.cgroup: s.value for s in plan.settings if s.resource is Resource.CPUSET_CPUS}


def quotas_of(plan: Plan) -> dict[str, Value]:
    return {s.cgroup: s.value for s in plan.settings if s.resource is Resource.CPU_QUOTA_US}


def cpu_ids(value: Value) -> CPUSet:
    from koordlet.protocol.cpuset import parse_cpulist

    assert isinstance(value, str)
    return parse_cpulist(value)
