"""What a NodeManager of YARN may use of a node's batch resources, and what it took; pure.

The keys are those of the reference's YARN operator, which writes to YARN in units of 10^6 bytes,
rounded up, and does not leave out what pods of Kubernetes have asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from koord_scheduler.model.amounts import Amounts
from koord_scheduler.model.facts import NodeFacts
from koord_scheduler.overcommit.third_party import (
    ALLOCATIONS,
    Allocations,
    present_origin,
)
from koordlet.protocol import limits
from koordlet.protocol.document import parse_limited
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.qos import PriorityClass
from koordlet.protocol.quantity import NANO, Format, Quantity
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY
from koordlet.protocol.verdicts import decoder

ALLOCATION = "hadoop-yarn"
"""The name of YARN's entry in the annotation of what others took."""
POD_NODE_ID = "yarn.hadoop.apache.org/node-id"
POD_CLUSTER_ID = "yarn.hadoop.apache.org/cluster-id"
NODE_NODE_ID = "node.yarn.koordinator.sh/node-id"
NODE_CLUSTER_ID = "node.yarn.koordinator.sh/cluster-id"
NODE_MANAGER_LABEL = "app.kubernetes.io/component"
NODE_MANAGER_VALUE = "node-manager"
MIB = 1 << 20
GROWS_BY = 0.02
"""Less more memory than this share is not worth a write; less memory is written at once."""
_LARGEST_VCORES = (1 << 31) - 1
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?", re.ASCII)
_allocations = decoder(Allocations, limits.NODE.values)


class Share(NamedTuple):
    """As YARN counts: ``memory_mib`` is what it calls MB."""

    vcores: int
    memory_mib: int


NOTHING = Share(0, 0)


class NodeManager(NamedTuple):
    """``port`` 0: whichever. ``cluster`` is empty for the only one."""

    cluster: str
    host: str
    port: int


def node_manager(annotations: Mapping[str, str], id_key: str, cluster_key: str) -> NodeManager:
    """The NodeManager that annotations name. Raises ValueError, with what to write instead."""
    text = annotations[id_key]
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, "0"
    number = int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else -1
    if not _HOST.fullmatch(host) or not 0 <= number < 65536:
        raise ValueError(f"{id_key}: {text[:64]!r} is no NodeManager: write HOST:PORT")
    cluster = annotations.get(cluster_key, "")
    if len(cluster) > 253:
        raise ValueError(f"{cluster_key}: longer than 253 characters")
    return NodeManager(cluster, host, number)


def offered(node: NodeFacts, requested: Amounts) -> Share:
    """Batch resources of ``node`` without what pods of Kubernetes ask for (``requested``, batch
    resources of pods that run or will) and without what others than YARN took.

    Nothing where the node has no batch resources: koordlet is not heard from, or colocation is off.
    """
    origin = present_origin(node)
    if origin is None:
        origin = node.extended_allocatable
    others = _others(node.annotations.get(ALLOCATIONS, ""))
    cpu = origin.get(BATCH_CPU, 0) - requested.cpu_milli - others.cpu_milli
    memory = origin.get(BATCH_MEMORY, 0) - requested.memory_bytes - others.memory_bytes
    return Share(min(max(cpu, 0) // 1000, _LARGEST_VCORES), max(memory, 0) // MIB)


def fits(used: Share, total: Share) -> bool:
    """Return whether containers that have ``used`` have room in ``total``."""
    return used.vcores <= total.vcores and used.memory_mib <= total.memory_mib


def is_due(present: Share, wanted: Share) -> bool:
    """Whether YARN is to be told. What shrinks is told at once, what hardly grows is not."""
    if present.vcores != wanted.vcores or wanted.memory_mib < present.memory_mib:
        return True
    return wanted.memory_mib - present.memory_mib > present.memory_mib * GROWS_BY


def allocations_text(old: str, used: Share) -> str | None:
    """The annotation of what others than Kubernetes took, with ``used`` as YARN's part, and all
    other entries as they are. None: it is to be removed. Raises ProtocolError where the old text
    cannot be read: what others wrote there must not be lost."""
    entries = [each for each in _entries(old) if each.get("name") != ALLOCATION]
    if used != NOTHING:
        resources = {
            BATCH_CPU: str(Quantity(used.vcores * 1000 * NANO)),
            BATCH_MEMORY: str(Quantity(used.memory_mib * MIB * NANO, Format.BINARY)),
        }
        entries.append(
            {"name": ALLOCATION, "priority": PriorityClass.BATCH.value, "resources": resources}
        )
    return msgspec.json.encode({"allocations": entries}).decode() if entries else None


def _entries(text: str) -> list[dict[str, Any]]:
    """As they stand there, with what only their writers know."""
    _read(text)
    tree = parse_limited(text, limits.NODE.values)[0] if text else None
    return list((tree or {}).get("allocations") or [])


def taken(text: str) -> Share:
    """YARN's part as the annotation has it; nothing where it has none or cannot be read."""
    try:
        entries = _read(text).allocations
    except ProtocolError:
        return NOTHING
    for each in entries:
        if each.name == ALLOCATION:
            cpu = each.resources.get(BATCH_CPU, Quantity(0)).value
            memory = each.resources.get(BATCH_MEMORY, Quantity(0)).value
            return Share(cpu // 1000, memory // MIB)
    return NOTHING


def _others(text: str) -> Amounts:
    try:
        entries = _read(text).allocations
    except ProtocolError:
        return Amounts()
    found = Amounts()
    for each in entries:
        if each.name != ALLOCATION and each.priority == PriorityClass.BATCH:
            cpu = each.resources.get(BATCH_CPU, Quantity(0)).value
            memory = each.resources.get(BATCH_MEMORY, Quantity(0)).value
            found = found.plus(Amounts(max(cpu, 0), max(memory, 0)))
    return found


def _read(text: str) -> Allocations:
    if len(text) > limits.NODE.characters:
        raise ProtocolError(f"has more than {limits.NODE.characters} characters; it is not read")
    return (_allocations(text) if text else None) or Allocations()
