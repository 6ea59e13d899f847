"""What is known of a node's devices, and what pods were given of them.

Amounts are whole units: percent of a card for cores and ratio, bytes for memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from koord_scheduler.model.cluster.nodes import Slot

GPU, RDMA, FPGA = "gpu", "rdma", "fpga"
Amounts = Mapping[str, int]
NO_NUMA = -1
"""The NUMA node of a device that is near all of them."""


class VirtualFunction(NamedTuple):
    minor: int
    bus_id: str


class VFGroup(NamedTuple):
    labels: tuple[tuple[str, str], ...]
    functions: tuple[VirtualFunction, ...]


class Device(NamedTuple):
    """``numa`` and ``pcie`` count where ``placed``. An unhealthy device offers nothing, and
    ``total`` is empty then."""

    type: str
    minor: int
    total: tuple[tuple[str, int], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    placed: bool = False
    numa: int = NO_NUMA
    pcie: str = ""
    groups: tuple[VFGroup, ...] = ()


class Partition(NamedTuple):
    """GPUs that links join. ``bandwidth``: of the ring, in bytes per second; None: not known."""

    minors: tuple[int, ...]
    score: int = 1
    bandwidth: int | None = None

    @property
    def mask(self) -> int:
        return sum(1 << minor for minor in set(self.minors))


class Shape(NamedTuple):
    """All of a node's devices that decides, the same object for nodes that are alike.

    ``partitions``: by number of GPUs, the highest score first; None where the node says nothing.
    ``well_planned``: secondary devices can be assumed to stand beside the GPUs."""

    devices: tuple[Device, ...]
    partitions: tuple[tuple[int, tuple[Partition, ...]], ...] | None = None
    vendor: str = ""
    model: str = ""
    honor: bool = False
    well_planned: bool = False


class NodeDevices(msgspec.Struct, frozen=True):
    """Of one node. ``ids``: uuid or address of a device by type and minor."""

    shape: Shape
    ids: Mapping[tuple[str, int], str] = {}


DEVICES: Slot[NodeDevices] = Slot("devices")


class Given(msgspec.Struct, frozen=True):
    """A part of one device, or all of it."""

    minor: int
    amounts: Amounts
    id: str = ""
    functions: tuple[VirtualFunction, ...] = ()
    template: str = ""


class Grant(msgspec.Struct, frozen=True):
    """By type of device. ``granted_s``: Unix time; ``node``: its name."""

    devices: Mapping[str, tuple[Given, ...]]
    node: str = ""
    granted_s: float = 0.0
