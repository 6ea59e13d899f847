"""Zones of the NodeResourceTopology, one for each NUMA node
(docs/reference/metrics.md 6.6). Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from koordlet.decision.snapshot import Topology
from koordlet.kernel.node_info import HUGE_PAGES, NumaMemory
from koordlet.protocol.objects.numa_topology import Zone, ZoneResource
from koordlet.protocol.quantity import bytes_text, cpu_text
from koordlet.protocol.resources import CPU, MEMORY

NUMA_TYPE = "Node"
MANAGED = frozenset({CPU, MEMORY, *HUGE_PAGES})
"""Resources of a zone that koordlet writes. Those of others in it stay."""
POLICIES = {
    "single-numa-node": "SingleNUMANode",
    "restricted": "Restricted",
    "best-effort": "BestEffort",
}


class Withheld(NamedTuple):
    """What the Node's allocatable lacks of its capacity."""

    cpu_milli: int = 0
    memory_bytes: int = 0


def topology_policy(policy: str, scope: str) -> str:
    """Kubelet's topology manager, in words of the NodeResourceTopology."""
    word = POLICIES.get(policy)
    if word is None:
        return "None"
    return f"{word}{'Pod' if scope == 'pod' else 'Container'}Level"


def zones(
    topology: Topology,
    memory: Mapping[int, NumaMemory],
    *,
    huge_pages: bool = False,
    withheld: Withheld | None = None,
) -> tuple[Zone, ...]:
    """``huge_pages``: they are reported apart from memory, else as 0. ``withheld``: taken in equal
    parts from what each zone allows; capacity stays as it is."""
    cpus = Counter(cpu.numa for cpu in topology.cpus)
    numas = sorted(memory.keys() | cpus)
    parts = len(numas) or 1
    less_cpu = math.ceil(withheld.cpu_milli / parts) if withheld is not None else 0
    less_memory = math.ceil(withheld.memory_bytes / parts) if withheld is not None else 0
    found = []
    for numa in numas:
        here = memory.get(numa, NumaMemory(0, {}))
        huge = {name: here.huge_bytes.get(name, 0) if huge_pages else 0 for name in HUGE_PAGES}
        size_bytes = max(here.total_bytes - sum(huge.values()), 0)
        milli = 1000 * cpus[numa]
        resources = [
            _resource(CPU, cpu_text(milli), cpu_text(max(milli - less_cpu, 0))),
            _resource(MEMORY, bytes_text(size_bytes), bytes_text(max(size_bytes - less_memory, 0))),
            *(_resource(name, bytes_text(size), bytes_text(size)) for name, size in huge.items()),
        ]
        ordered = tuple(sorted(resources, key=lambda each: each.name))
        found.append(Zone(name=f"node-{numa}", type=NUMA_TYPE, resources=ordered))
    return tuple(found)


def _resource(name: str, capacity: str, allocatable: str) -> ZoneResource:
    return ZoneResource(name, capacity, allocatable, allocatable)


def ours_of(zones: Iterable[Zone]) -> dict[str, tuple[str, frozenset[ZoneResource]]]:
    """What of zones koordlet answers for, whatever its order and whatever else is there: what
    somebody else adds must not make a write."""
    return {
        zone.name: (zone.type, frozenset(r for r in zone.resources if r.name in MANAGED))
        for zone in zones
    }


def with_others(ours: tuple[Zone, ...], there: Iterable[Zone]) -> tuple[Zone, ...]:
    """Our zones with what others wrote into those of the same name: resources, costs, attributes,
    parent. Zones of other names are dropped."""
    known = {zone.name: zone for zone in there}
    return tuple(_merged(zone, known[zone.name]) if zone.name in known else zone for zone in ours)


def _merged(ours: Zone, there: Zone) -> Zone:
    foreign = (each for each in there.resources if each.name not in MANAGED)
    resources = sorted((*ours.resources, *foreign), key=lambda each: each.name)
    return Zone(
        name=ours.name,
        type=ours.type,
        parent=there.parent,
        costs=there.costs,
        attributes=there.attributes,
        resources=tuple(resources),
    )
