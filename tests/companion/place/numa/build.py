"""Machines with CPUs for tests of NUMA."""

from __future__ import annotations

import itertools
import json
from typing import Any

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.model.cluster.verdict import REASONS, Refusal
from koord_scheduler.place.numa.plugin import make
from koord_scheduler.place.numa.reading import CPU_TOPOLOGY, read_numa
from koord_scheduler.place.numa.request import NUMA_TOPOLOGY_SPEC, RESOURCE_SPEC
from koord_scheduler.place.numa.topology import Cpu, Topology, mask_of
from koord_scheduler.place.numa.types import NAME, NUMA, Grant
from koordlet.protocol.cpuset import parse_cpulist
from koordlet.protocol.qos import PriorityClass

GI = 1 << 30
_numbers = itertools.count(2_000_000)


def topology(sockets: int, nodes: int, cores: int, threads: int) -> Topology:
    """Ids are consecutive within a core (docs/reference/central.md 5.7)."""
    return Topology(
        Cpu(core * threads + thread, socket << 16 | core, core // cores, socket)
        for core in range(sockets * nodes * cores)
        for socket in (core // cores // nodes,)
        for thread in range(threads)
    )


def cpus(text: str) -> int:
    return mask_of(parse_cpulist(text)) if text else 0


class Lab:
    """A cluster with the plugin; nodes are machines as `topology` makes them."""

    def __init__(self, **args: Any) -> None:
        self.cluster = Cluster()
        self.plugin = make(args)

    def node(
        self,
        name: str = "n1",
        shape: tuple[int, int, int, int] = (1, 2, 4, 2),
        *,
        memory: int = 64 * GI,
        zones: bool = True,
        topology_policy: str = "",
        said: dict[str, str] | None = None,
        cpu: int | None = None,
        extra: dict[str, int] | None = None,
        **more: Any,
    ) -> None:
        """``memory``: of each NUMA node. ``said``: more annotations of its topology."""
        machine = topology(*shape)
        detail = [
            {"id": c.id, "core": c.core & 0xFFFF, "socket": c.socket, "node": c.node}
            for c in machine.cpus
        ]
        tree: dict[str, Any] = {"topologyPolicies": [topology_policy]}
        if zones:
            tree["zones"] = [
                {
                    "name": f"node-{node}",
                    "type": "Node",
                    "resources": [
                        {"name": "cpu", "allocatable": str(mask.bit_count())},
                        {"name": "memory", "allocatable": str(memory)},
                    ],
                }
                for node, mask in machine.nodes.items()
            ]
        annotations = {CPU_TOPOLOGY: json.dumps({"detail": detail})} | (said or {})
        self.cluster.put(NUMA, name, read_numa(annotations, tree))
        allocatable = {
            "cpu": 1000 * len(machine.cpus) if cpu is None else cpu,
            "memory": memory * len(machine.nodes),
            "pods": 110,
            **(extra or {}),
        }
        self.cluster.set_node(Node(name=name, allocatable=allocatable, **more))

    def reasons(self, of: PodClass) -> list[str]:
        rows = self.cluster.rows()
        return [REASONS[int(code)].text for code in self.plugin.judge(self.cluster, of, rows).why]

    def scores(self, of: PodClass) -> list[int]:
        found = self.plugin.judge(self.cluster, of, self.cluster.rows()).score
        assert found is not None
        return [int(score) for score in found]

    def grant(self, of: PodClass, row: int = 0, **grants: Any) -> Grant | str | None:
        pod = Pod(key=f"ns/p{next(_numbers)}", uid="u", cls=of, annotations=of.annotations)
        found = self.plugin.allocate(self.cluster, pod, row, grants)
        return REASONS[found.why].text if isinstance(found, Refusal) else found

    def place(self, of: PodClass, row: int = 0, **more: Any) -> Grant:
        """The pod is there now."""
        found = self.grant(of, row)
        assert isinstance(found, Grant), found
        self.hold(of, found, row, **more)
        return found

    def hold(self, of: PodClass, grant: Grant | None, row: int = 0, **more: Any) -> Pod:
        node = self.cluster.nodes[row]
        assert node is not None
        reservation = more.pop("reservation", "")
        key, uid = more.pop("key", f"ns/p{next(_numbers)}"), more.get("holds") or "u"
        pod = Pod(key=key, uid=uid, cls=of, **more)
        grants = {NAME: grant} if grant is not None else {}
        self.cluster.add(Claim(pod, node.name, grants=grants, reservation=reservation))
        return pod


def pods(cpu: int = 0, memory: int = 0, *, qos: str = "", **more: Any) -> PodClass:
    """``cpu`` in milli-cores. ``numa``, ``sole``, ``required``, ``preferred``, ``exclusive``: of
    the annotations."""
    annotations = {}
    numa = {
        "numaTopologyPolicy": more.pop("numa", ""),
        "singleNUMANodeExclusive": more.pop("sole", ""),
    }
    spec = {
        "requiredCPUBindPolicy": more.pop("required", ""),
        "preferredCPUBindPolicy": more.pop("preferred", ""),
        "preferredCPUExclusivePolicy": more.pop("exclusive", ""),
    }
    if any(numa.values()):
        annotations[NUMA_TOPOLOGY_SPEC] = json.dumps(numa)
    if any(spec.values()):
        annotations[RESOURCE_SPEC] = json.dumps(spec)
    amounts = {"cpu": cpu, "memory": memory, **more.pop("extra", {})}
    return PodClass(
        number=next(_numbers),
        namespace="ns",
        labels={"koordinator.sh/qosClass": qos} if qos else {},
        annotations=annotations,
        requests={name: amount for name, amount in amounts.items() if amount},
        priority_class=more.pop("priority_class", PriorityClass.PROD),
        **more,
    )
