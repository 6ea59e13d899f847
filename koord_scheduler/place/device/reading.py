"""Device objects and templates of shares, as the API has them, to what this room works with.

Nothing here raises: a device that cannot be read is left out, and the others count.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from koord_scheduler.model.amounts import Text, amount_of
from koord_scheduler.model.cluster.columns import MOST_AMOUNT
from koord_scheduler.place.device.types import (
    Amounts,
    Device,
    NodeDevices,
    Partition,
    Shape,
    VFGroup,
    VirtualFunction,
)
from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.objects.device import (
    GPU_MODEL,
    GPU_PARTITION_POLICY,
    GPU_PARTITIONS,
    GPU_VENDOR,
)
from koordlet.protocol.resources import MEMORY

WELL_PLANNED = "node.koordinator.sh/secondary-device-well-planned"
MOST_DEVICES = 256
"""Of a node; the largest have 16 GPUs and as many network cards."""
_MOST_MINOR = 1023
_MOST_FUNCTIONS = 512
_MOST_PARTITIONS = 512
_MOST_TEXT = 64 << 10
_MOST_SHAPES = 4096
_MOST_TEMPLATES = 1024
T = TypeVar("T")
Templates = Mapping[str, Mapping[str, Amounts]]
"""``vendor-model`` -> name of a template -> what it gives (docs/reference/protocol.md 3.4)."""

_shapes: dict[Shape, Shape] = {}


class _Wire(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _Topology(_Wire, frozen=True):
    node_id: int = msgspec.field(default=-1, name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")


class _Function(_Wire, frozen=True):
    minor: int = 0
    bus_id: str = msgspec.field(default="", name="busID")


class _Group(_Wire, frozen=True):
    labels: dict[str, str] | None = None
    vfs: tuple[_Function, ...] | None = ()


class _Device(_Wire, frozen=True):
    type: str
    health: bool = False
    id: str = ""
    minor: int | None = 0
    labels: dict[str, str] | None = None
    resources: dict[str, Text] | None = None
    topology: _Topology | None = None
    vf_groups: tuple[_Group, ...] | None = ()


class _Partition(_Wire, frozen=True):
    minors: tuple[int, ...]
    allocation_score: int = 0
    ring_bus_bandwidth: Text | None = None


def read_device(
    labels: Mapping[str, str], annotations: Mapping[str, str], spec: Any
) -> NodeDevices:
    """``spec``: the tree of a Device's ``spec`` (docs/reference/protocol.md 4.3)."""
    given = spec.get("devices") if isinstance(spec, Mapping) else None
    devices: dict[tuple[str, int], Device] = {}
    ids: dict[tuple[str, int], str] = {}
    for tree in given[:MOST_DEVICES] if isinstance(given, list) else ():
        wire = _converted(tree, _Device)
        if wire is None or not 0 <= (wire.minor or 0) <= _MOST_MINOR:
            continue
        found = _device(wire)
        devices.setdefault((found.type, found.minor), found)
        if wire.id:
            ids.setdefault((found.type, found.minor), wire.id)
    shape = Shape(
        devices=tuple(devices[key] for key in sorted(devices)),
        partitions=_partitions(annotations.get(GPU_PARTITIONS)),
        vendor=labels.get(GPU_VENDOR, ""),
        model=labels.get(GPU_MODEL, ""),
        honor=labels.get(GPU_PARTITION_POLICY) == "Honor",
        well_planned=labels.get(WELL_PLANNED) == "true",
    )
    if len(_shapes) >= _MOST_SHAPES:
        _shapes.clear()
    return NodeDevices(_shapes.setdefault(shape, shape), ids)


def read_templates(tree: Any) -> Templates:
    """``tree``: what the YAML of the ConfigMap's ``data.yaml`` holds."""
    found: dict[str, dict[str, Amounts]] = {}
    count = 0
    for key, templates in tree.items() if isinstance(tree, Mapping) else ():
        for name, resources in templates.items() if isinstance(templates, Mapping) else ():
            wire = _converted(resources, dict[str, Text])
            count += 1
            if wire is not None and count <= _MOST_TEMPLATES:
                found.setdefault(str(key), {})[str(name)] = dict(_amounts(wire))
    return found


def _device(wire: _Device) -> Device:
    topology = wire.topology
    return Device(
        type=sys.intern(wire.type),
        minor=wire.minor or 0,
        total=tuple(sorted(_amounts(wire.resources or {}))) if wire.health else (),
        labels=_labels(wire.labels),
        placed=topology is not None,
        numa=topology.node_id if topology is not None else -1,
        pcie=sys.intern(topology.pcie_id) if topology is not None else "",
        groups=tuple(
            VFGroup(
                _labels(group.labels),
                tuple(
                    VirtualFunction(vf.minor, sys.intern(vf.bus_id))
                    for vf in (group.vfs or ())[:_MOST_FUNCTIONS]
                ),
            )
            for group in wire.vf_groups or ()
        ),
    )


def _amounts(resources: Mapping[str, Text]) -> Iterator[tuple[str, int]]:
    """Without zeros."""
    for name, text in resources.items():
        amount = amount_of(text, MEMORY)
        if amount is not None and amount > 0:
            yield sys.intern(name), min(amount, MOST_AMOUNT)


def _labels(labels: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((labels or {}).items()))


def _partitions(text: str | None) -> tuple[tuple[int, tuple[Partition, ...]], ...] | None:
    if not text or len(text) > _MOST_TEXT:
        return None
    try:
        table = msgspec.json.decode(text, type=dict[str, list[_Partition]], strict=False)
    except UNREADABLE:
        return None
    found = {}
    for number, partitions in table.items():
        if not (number.isascii() and number.isdecimal() and len(number) <= 4):
            continue
        read = [
            Partition(each.minors, each.allocation_score, _bandwidth(each.ring_bus_bandwidth))
            for each in partitions[:_MOST_PARTITIONS]
            if len(set(each.minors)) == len(each.minors) == int(number)
            and all(0 <= minor <= _MOST_MINOR for minor in each.minors)
        ]
        found[int(number)] = tuple(sorted(read, key=lambda each: -each.score))
    return tuple(sorted(found.items()))


def _bandwidth(text: Text | None) -> int | None:
    return None if text is None else amount_of(text, MEMORY)


def _converted(tree: Any, shape: type[T]) -> T | None:
    try:
        return msgspec.convert(tree, shape, strict=False)
    except msgspec.ValidationError:
        return None
