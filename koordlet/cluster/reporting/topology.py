"""What the node's NodeResourceTopology says
(docs/reference/metrics.md 6.6, protocol.md 2.8, 4.4). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from koordlet.cluster.reporting.pools import (
    KubeletCpus,
    kubelet_allocations,
    kubelet_reserved,
    pools,
    reserved_cpus,
)
from koordlet.cluster.reporting.zones import Withheld, ours_of, topology_policy, with_others, zones
from koordlet.decision.snapshot import CpuPool, Pod, Topology
from koordlet.kernel.node_info import UNKNOWN, CpuInfo, NumaMemory
from koordlet.protocol import keys
from koordlet.protocol.annotations import NodeKeys, parse_node
from koordlet.protocol.cpuset import format_cpulist
from koordlet.protocol.objects.numa_topology import NumaTopology, Zone

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "Koordinator"
NUMA_RESERVATION = "node.koordinator.sh/enable-numa-reservation"
CPU_BASIC_INFO = "node.koordinator.sh/cpu-basic-info"
CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"


class Facts(NamedTuple):
    """``labels``: of the Node; ``keys``: what its annotations say, the last good value of those
    that cannot be read. ``withheld``: capacity less allocatable of the Node."""

    topology: Topology
    memory: Mapping[int, NumaMemory]
    cpu: CpuInfo = CpuInfo()
    pods: tuple[Pod, ...] = ()
    kubelet: KubeletCpus = KubeletCpus()
    labels: Mapping[str, str] = {}
    keys: NodeKeys = NodeKeys()
    withheld: Withheld = Withheld()
    huge_pages: bool = False


class Report(NamedTuple):
    """``labels``: None takes a label away."""

    labels: Mapping[str, str | None]
    annotations: Mapping[str, str]
    topology: NumaTopology


def topology_report(facts: Facts) -> Report | None:
    """None while too little is known of the machine."""
    if not facts.topology.cpus or not facts.memory:
        return None
    reservation_label = facts.labels.get(NUMA_RESERVATION) or None
    withheld = facts.withheld if reservation_label == "true" else None
    return Report(
        {MANAGED_BY: MANAGER, NUMA_RESERVATION: reservation_label},
        _annotations(facts),
        NumaTopology(
            topology_policies=(
                facts.kubelet.topology_word
                or topology_policy(facts.kubelet.topology_policy, facts.kubelet.topology_scope),
            ),
            zones=zones(
                facts.topology, facts.memory, huge_pages=facts.huge_pages, withheld=withheld
            ),
        ),
    )


def _annotations(facts: Facts) -> dict[str, str]:
    topology, kubelet, said = facts.topology, facts.kubelet, facts.keys
    allocations = kubelet_allocations(kubelet, facts.pods)
    reserved = reserved_cpus(topology, said.reservation)
    shared = pools(topology, facts.pods, allocations, reserved, said.system_qos)
    policy = {
        "policy": kubelet.policy,
        "options": dict(sorted(kubelet.options.items())),
        "reservedCPUs": format_cpulist(kubelet_reserved(topology, kubelet)),
    }
    info = {
        "cpuModel": facts.cpu.model if facts.cpu.model != UNKNOWN else "",
        "hyperThreadEnabled": facts.cpu.is_hyper_threaded,
        "turboEnabled": facts.cpu.is_turbo_enabled,
        "catL3CbmMask": facts.cpu.l3_mask,
        "vendorID": facts.cpu.vendor if facts.cpu.vendor != UNKNOWN else "",
    }
    detail = [
        {"id": cpu.id, "core": cpu.core, "socket": cpu.socket, "node": cpu.numa}
        for cpu in topology.cpus
    ]
    allocated = [
        {
            "namespace": each.namespace,
            "name": each.name,
            "uid": each.uid,
            "cpuset": format_cpulist(each.cpuset),
            "managedByKubelet": True,
        }
        for each in allocations
    ]
    return {
        CPU_BASIC_INFO: _json(_without_zeros(info)),
        CPU_TOPOLOGY: _json({"detail": detail}),
        keys.CPU_SHARED_POOLS.name: _json([_pool(each) for each in shared.ls]),
        keys.BE_CPU_SHARED_POOLS.name: _json([_pool(each) for each in shared.be]),
        keys.CPU_MANAGER_POLICY.name: _json(_without_zeros(policy)),
        keys.POD_CPU_ALLOCS.name: _json(allocated or None),
        keys.NODE_RESERVATION.name: _json(_reservation(facts)),
        keys.SYSTEM_QOS_RESOURCE.name: _json(_system(said)),
    }


def _pool(pool: CpuPool) -> dict[str, Any]:
    cpus = {"cpuset": format_cpulist(pool.cpus)} if pool.cpus else {}
    return {"socket": pool.socket, "node": pool.numa, **cpus}


def _reservation(facts: Facts) -> dict[str, Any]:
    said = facts.keys.reservation
    if said is None:
        return {}
    found = {
        "resources": {name: str(amount) for name, amount in sorted(said.resources.items())},
        "reservedCPUs": format_cpulist(reserved_cpus(facts.topology, said)),
        "applyPolicy": said.apply_policy,
    }
    return _without_zeros(found)


def _system(said: NodeKeys) -> dict[str, Any]:
    if said.system_qos is None:
        return {}
    cpus = format_cpulist(said.system_qos.cpuset)
    exclusive = said.system_qos.cpuset_exclusive
    return {**({"cpuset": cpus} if cpus else {}), "cpusetExclusive": exclusive}


def _without_zeros(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if value}


def _json(tree: Any) -> str:
    return msgspec.json.encode(tree).decode()


class Present(NamedTuple):
    """The object as it is there."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    policies: tuple[str, ...] = ()
    zones: tuple[Zone, ...] = ()


def kubelet_there(there: Present) -> KubeletCpus:
    """What was reported of kubelet last, by this run or an earlier one."""
    said = parse_node(
        {
            name: text
            for name, text in there.annotations.items()
            if name in (keys.CPU_MANAGER_POLICY.name, keys.POD_CPU_ALLOCS.name)
        }
    )
    policy = said.cpu_manager_policy
    allocated = (each for each in said.pod_cpu_allocs or () if each.managed_by_kubelet)
    return KubeletCpus(
        policy=(policy.policy or "") if policy is not None else "",
        options=policy.options if policy is not None else {},
        reserved_cpus=policy.reserved_cpus if policy is not None else frozenset(),
        topology_word=there.policies[0] if len(there.policies) == 1 else "",
        given={each.uid: each.cpuset for each in allocated},
    )


def changes(report: Report, there: Present) -> dict[str, Any]:
    """A merge patch that makes of what is there what is reported; empty where it says so already.
    Annotations are compared as JSON, so that another order of keys is no difference."""
    metadata: dict[str, Any] = {}
    labels = {name: v for name, v in report.labels.items() if there.labels.get(name) != v}
    annotations = {
        name: text
        for name, text in report.annotations.items()
        if not _same_json(text, there.annotations.get(name))
    }
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    patch: dict[str, Any] = {"metadata": metadata} if metadata else {}
    if there.policies != report.topology.topology_policies:
        patch["topologyPolicies"] = report.topology.topology_policies
    if ours_of(report.topology.zones) != ours_of(there.zones):
        patch["zones"] = with_others(report.topology.zones, there.zones)
    return patch


def _same_json(text: str, other: str | None) -> bool:
    if other is None:
        return False
    if text == other:
        return True
    try:
        return bool(json.loads(text) == json.loads(other))
    except (ValueError, RecursionError):
        return False
