"""Devices on the wire: the files that describe accelerators, and the Device object
(docs/reference/protocol.md 3.3, 4.3)."""

from __future__ import annotations

import msgspec

from koordlet.protocol.slo import Section

GPU = "gpu"
RDMA = "rdma"

GPU_MODEL = "node.koordinator.sh/gpu-model"
GPU_VENDOR = "node.koordinator.sh/gpu-vendor"
GPU_DRIVER_VERSION = "node.koordinator.sh/gpu-driver-version"
GPU_PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy"
GPU_PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"


# A file about accelerators, written by a device daemon


class XpuLink(Section, frozen=True):
    """``peer_minor``: minors joined by commas."""

    peer_minor: str = ""
    type: str = ""


class XpuTopology(Section, frozen=True):
    p2p_links: tuple[XpuLink, ...] = msgspec.field(default=(), name="p2pLinks")
    must_honor_partition: bool = False
    socket_id: str = msgspec.field(default="", name="socketID")
    node_id: str = msgspec.field(default="", name="nodeID")
    pcie_id: str = msgspec.field(default="", name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class XpuStatus(Section, frozen=True):
    healthy: bool = False
    err_code: str = ""
    err_message: str = ""


class XpuInfo(Section, frozen=True):
    """``resources``: quantities as text."""

    vendor: str = ""
    model: str = ""
    uuid: str = ""
    minor: str = ""
    resources: dict[str, str] = msgspec.field(default_factory=dict)
    topology: XpuTopology | None = None
    status: XpuStatus | None = None


# The object


class DeviceTopology(msgspec.Struct, frozen=True, omit_defaults=True):
    """``socket_id`` is -1 where nobody knows."""

    socket_id: int = msgspec.field(name="socketID")
    node_id: int = msgspec.field(name="nodeID")
    pcie_id: str = msgspec.field(name="pcieID")
    bus_id: str = msgspec.field(default="", name="busID")


class VirtualFunction(msgspec.Struct, frozen=True, omit_defaults=True):
    minor: int
    bus_id: str = msgspec.field(default="", name="busID")


class VirtualFunctionGroup(Section, frozen=True):
    vfs: tuple[VirtualFunction, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class Condition(Section, frozen=True):
    """``status``: True, False or Unknown; ``last_transition_time``: RFC 3339."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str


class DeviceInfo(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    type: str
    health: bool
    id: str = ""
    minor: int | None = None
    resources: dict[str, str] = msgspec.field(default_factory=dict)
    topology: DeviceTopology | None = None
    vf_groups: tuple[VirtualFunctionGroup, ...] = ()
    conditions: tuple[Condition, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    module_id: int | None = msgspec.field(default=None, name="moduleID")


class DeviceSpec(Section, frozen=True):
    devices: tuple[DeviceInfo, ...] = ()


class Device(Section, frozen=True):
    """What koordlet says of its node's devices; the object has the node's name."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    devices: tuple[DeviceInfo, ...] = ()


class Partition(msgspec.Struct, frozen=True, rename="camel"):
    """Devices that links join; the value of the annotation ``GPU_PARTITIONS`` has lists of them by
    their number of devices."""

    minors: tuple[int, ...]
    gpu_link_type: str
    allocation_score: int = 1
