"""What a binding says of CPUs and NUMA nodes, and what a pod's annotations tell of them."""

from __future__ import annotations

from typing import Any

import msgspec

from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.place.numa.reading import mask, said
from koord_scheduler.place.numa.request import RESOURCE_SPEC, exclusive_of, read_spec
from koord_scheduler.place.numa.topology import MOST_NUMA_NODES, bits
from koord_scheduler.place.numa.types import Amounts, Grant
from koordlet.protocol import keys
from koordlet.protocol.cpuset import format_cpulist
from koordlet.protocol.quantity import bytes_text, cpu_text
from koordlet.protocol.resources import CPU, MEMORY


def binding_annotations(pod: Pod, grant: Grant) -> dict[str, str]:
    """``resource-status``, and ``resource-spec`` with the policies that were used where the pod
    left them open (docs/reference/central.md 5.3)."""
    status: dict[str, Any] = {}
    if grant.cpus:
        status["cpuset"] = format_cpulist(bits(grant.cpus))
    if grant.zones:
        status["numaNodeResources"] = [
            {"node": node, "resources": texts(there)} for node, there in grant.zones
        ]
    found = {keys.RESOURCE_STATUS.name: msgspec.json.encode(status, order="sorted").decode()}
    if grant.cpus:
        spec = read_spec(pod.annotations)
        required, preferred = spec.required_cpu_bind_policy, spec.preferred_cpu_bind_policy
        more = {}
        if grant.node_policy and required != grant.node_policy:
            more = {"required_cpu_bind_policy": grant.node_policy}
        elif grant.preferred and (preferred == "Default" or not (preferred or required)):
            more = {"preferred_cpu_bind_policy": grant.preferred}
        if more:
            completed = msgspec.structs.replace(spec, **more)
            found[RESOURCE_SPEC] = msgspec.json.encode(completed).decode()
    return found


def read_grant(pod: Pod) -> Grant | None:
    """What ``resource-status`` tells, whoever wrote it. No pod takes more of a node's CPUs and NUMA
    nodes than it asks for."""
    status = said(keys.RESOURCE_STATUS, pod.annotations)
    if status is None:
        return None
    rest = dict(pod.cls.requests)
    cpus = mask(status.cpuset)
    if 1000 * cpus.bit_count() > rest.get(CPU, 0):
        cpus = 0
    zones: dict[int, dict[str, int]] = {}
    nodes = set()
    for each in sorted(status.numa_node_resources, key=lambda zone: zone.node):
        if not 0 <= each.node < MOST_NUMA_NODES:
            continue
        nodes.add(each.node)
        for name, amount in each.resources.items():
            share = min(amount.milli if name == CPU else amount.value, rest.get(name, 0))
            if share > 0:
                zones.setdefault(each.node, {})[name] = share
                rest[name] -= share
    if not cpus and not zones:
        return None
    return Grant(
        cpus=cpus,
        exclusive=exclusive_of(read_spec(pod.annotations)),
        zones=tuple(zones.items()),
        numa_nodes=tuple(sorted(nodes)),
    )


def texts(amounts: Amounts) -> dict[str, str]:
    """As quantities."""
    found = {}
    for name, amount in amounts.items():
        if name == CPU:
            found[name] = cpu_text(amount)
        else:
            found[name] = bytes_text(amount) if name == MEMORY else str(amount)
    return found
