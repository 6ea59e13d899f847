"""CPUs and NUMA nodes of a node as the service shows them (docs/reference/central.md 9.2)."""

from __future__ import annotations

from typing import Any

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.place.numa.free import State, state_of
from koord_scheduler.place.numa.sites import site_of
from koord_scheduler.place.numa.topology import bits
from koord_scheduler.place.numa.types import NAME, Grant
from koord_scheduler.place.numa.wire import texts
from koordlet.protocol.cpuset import format_cpulist
from koordlet.protocol.resources import CPU


class InvalidTopologyError(ValueError):
    """The node has no CPU topology that can be read; the service answers 500."""


def node_summary(cluster: Cluster, name: str) -> dict[str, Any] | None:
    """The answer to ``/nodes/NODE``; None where there is no such node. Raises
    InvalidTopologyError."""
    row = cluster.row.get(name)
    if row is None:
        return None
    state = state_of(site_of(cluster, row))
    topology = state.site.shape.topology
    if not topology.valid:
        raise InvalidTopologyError(f"node {name} has no valid CPU topology")
    pods = {
        key: {"cpuset": _text(grant.cpus), "numaNodeResources": _zones(dict(grant.zones))}
        for key, claim in cluster.claims_on(row).items()
        if isinstance(grant := claim.grants.get(NAME), Grant)
    }
    return {
        "name": name,
        "topologyOptions": _options(state),
        "remainingNUMANodeResources": _zones(state.left),
        "allocatedNUMANodeResources": _zones(
            {
                node: {name: amount - state.left[node][name] for name, amount in there.items()}
                for node, there in state.total.items()
            }
        ),
        "availableCPUs": _text(state.free),
        "allocatedCPUs": _text(state.site.used.cpus),
        "allocatedPods": pods,
    }


def _options(state: State) -> dict[str, Any]:
    site = state.site
    topology = site.shape.topology
    return {
        "cpuTopology": {
            "numCPUs": len(topology.cpus),
            "numCores": len(topology.cores),
            "numNodes": len(topology.nodes),
            "numSockets": len(topology.sockets),
        },
        "reservedCPUs": _text((site.shape.reserved | site.reserved) & topology.all),
        "maxRefCount": 1,
        "cpuBindPolicy": site.bind,
        "numaTopologyPolicy": site.policy,
        "amplificationRatios": {CPU: 1.0, **dict(site.ratios)},
        "numaNodeResources": _zones(state.total),
    }


def _zones(zones: dict[int, Any]) -> list[dict[str, Any]]:
    return [{"node": node, "resources": texts(there)} for node, there in sorted(zones.items())]


def _text(cpus: int) -> str:
    return format_cpulist(bits(cpus))
