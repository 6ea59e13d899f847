"""NodeResourceTopology as the API has it, to what this room works with
(docs/reference/central.md 5.2).

Nothing here raises: what cannot be read counts as absent.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from koord_scheduler.model.amounts import Text, amount_of
from koord_scheduler.model.cluster.columns import MOST_AMOUNT
from koord_scheduler.place.numa.topology import (
    MOST_CPUS,
    MOST_NUMA_NODES,
    Cpu,
    Topology,
    mask_of,
)
from koord_scheduler.place.numa.types import (
    BEST_EFFORT,
    NO_POLICY,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    NodeNuma,
    Shape,
    Zone,
)
from koordlet.protocol import keys
from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.keys import Key

CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
AMPLIFICATION_RATIO = "node.koordinator.sh/resource-amplification-ratio"
_POLICIES = {
    "BestEffort": BEST_EFFORT,
    "Restricted": RESTRICTED,
    "SingleNUMANodePodLevel": SINGLE_NUMA_NODE,
}
"""Those of whole pods; what kubelet does container by container binds no pod to NUMA nodes."""
_MOST_TEXT = 512 << 10
_MOST_CORE = 1 << 16
_MOST_KEPT = 4096
_MOST_ZONES = 256
_MOST_RESOURCES = 64
_MOST_RATIO = 100.0
T = TypeVar("T")

_topologies: dict[str, Topology] = {}
_shapes: dict[Shape, Shape] = {}
_EMPTY = Topology(())


class _Cpu(msgspec.Struct, frozen=True):
    id: int
    core: int = 0
    socket: int = 0
    node: int = 0


class _Detail(msgspec.Struct, frozen=True):
    detail: tuple[_Cpu, ...] = ()


class _Resource(msgspec.Struct, frozen=True):
    name: str
    allocatable: Text = 0


class _Zone(msgspec.Struct, frozen=True):
    name: str = ""
    type: str = ""
    resources: tuple[_Resource, ...] | None = ()


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    topology_policies: tuple[str, ...] | None = ()
    zones: tuple[_Zone, ...] | None = ()


_detail = msgspec.json.Decoder(_Detail)
_ratios = msgspec.json.Decoder(dict[str, float])


def read_numa(annotations: Mapping[str, str], tree: Any) -> NodeNuma:
    """``tree``: a NodeResourceTopology, of which ``topologyPolicies`` and ``zones`` count."""
    try:
        found = msgspec.convert(tree, _Object, strict=False)
    except msgspec.ValidationError:
        found = _Object()
    manager = said(keys.CPU_MANAGER_POLICY, annotations)
    reserved = mask(manager.reserved_cpus) if manager is not None else 0
    for each in said(keys.POD_CPU_ALLOCS, annotations) or ():
        if each.managed_by_kubelet:
            reserved |= mask(each.cpuset)
    shape = Shape(
        topology=_topology(annotations.get(CPU_TOPOLOGY, "")),
        reserved=reserved,
        zones=_zones(found.zones or ()),
        policy=_POLICIES.get(next(iter(found.topology_policies or ()), ""), NO_POLICY),
        full_pcpus_only=manager is not None
        and manager.policy == "static"
        and manager.options.get("full-pcpus-only") == "true",
    )
    if len(_shapes) >= _MOST_KEPT:
        _shapes.clear()
    return NodeNuma(_shapes.setdefault(shape, shape))


def reserved_on(annotations: Mapping[str, str]) -> int:
    """CPUs that annotations of the node keep for others than pods."""
    reservation = said(keys.NODE_RESERVATION, annotations)
    system = said(keys.SYSTEM_QOS_RESOURCE, annotations)
    found = mask(reservation.reserved_cpus or ()) if reservation is not None else 0
    if system is not None and system.cpuset_exclusive:
        found |= mask(system.cpuset)
    return found


def ratios_of(annotations: Mapping[str, str]) -> tuple[tuple[str, float], ...]:
    """Return by how much the node's resources are amplified; only those that are."""
    text = annotations.get(AMPLIFICATION_RATIO)
    if not text or len(text) > 4096:
        return ()
    try:
        found = _ratios.decode(text)
    except UNREADABLE:
        return ()
    return tuple(sorted((n, min(ratio, _MOST_RATIO)) for n, ratio in found.items() if ratio > 1))


def said(key: Key[T], annotations: Mapping[str, str]) -> T | None:
    """None too for what cannot be read."""
    try:
        return key.read(annotations)
    except ProtocolError:
        return None


def mask(cpus: Any) -> int:
    """A set of CPUs, without numbers that no machine has."""
    return mask_of(cpu for cpu in cpus if 0 <= cpu < MOST_CPUS)


def _topology(text: str) -> Topology:
    """The same object for the same text, so that nodes of one make share it. Empty where there is
    none or it cannot be true."""
    if not text or len(text) > _MOST_TEXT:
        return _EMPTY
    found = _topologies.get(text)
    if found is None:
        if len(_topologies) >= _MOST_KEPT:
            _topologies.clear()
        found = _topologies[text] = _read_topology(text)
    return found


def _read_topology(text: str) -> Topology:
    try:
        cpus = _detail.decode(text).detail
    except UNREADABLE:
        return _EMPTY
    if len({cpu.id for cpu in cpus}) != len(cpus):
        return _EMPTY
    for cpu in cpus:
        inside = 0 <= cpu.id < MOST_CPUS and 0 <= cpu.core < _MOST_CORE
        if not (inside and 0 <= cpu.socket < MOST_CPUS and 0 <= cpu.node < MOST_NUMA_NODES):
            return _EMPTY
    return Topology(Cpu(c.id, c.socket << 16 | c.core, c.node, c.socket) for c in cpus)


def _zones(zones: tuple[_Zone, ...]) -> tuple[Zone, ...]:
    found: dict[int, Zone] = {}
    for zone in zones[:_MOST_ZONES]:
        number = zone.name.removeprefix("node-")
        known = zone.type == "Node" and number != zone.name
        if not (known and number.isascii() and number.isdecimal() and len(number) <= 4):
            continue
        if int(number) < MOST_NUMA_NODES:
            found.setdefault(int(number), Zone(int(number), _amounts(zone.resources or ())))
    return tuple(found[node] for node in sorted(found))


def _amounts(resources: tuple[_Resource, ...]) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for each in resources[:_MOST_RESOURCES]:
        amount = amount_of(each.allocatable, each.name)
        if amount is not None and amount >= 0:
            found[sys.intern(each.name)] = min(amount, MOST_AMOUNT)
    return tuple(sorted(found.items()))
