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
    """CPU socket; -1 where nobody knows."""
    node_id: int = msgspec.field(name="nodeID")
    """NUMA node."""
    pcie_id: str = msgspec.field(name="pcieID")
    """PCIe switch or root complex."""
    bus_id: str = msgspec.field(default="", name="busID")
    """Address on the PCI bus."""


class VirtualFunction(msgspec.Struct, frozen=True, omit_defaults=True):
    minor: int
    """Number of the function."""
    bus_id: str = msgspec.field(default="", name="busID")
    """Address on the PCI bus."""


class VirtualFunctionGroup(Section, frozen=True):
    vfs: tuple[VirtualFunction, ...] = ()
    """Virtual functions of the group."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels by which a pod selects the group."""


class Condition(Section, frozen=True):
    """``status``: True, False or Unknown; ``last_transition_time``: RFC 3339."""

    type: str
    """Aspect that the condition is about."""
    status: str
    """True, False or Unknown."""
    reason: str
    """Cause of the last change, in one word."""
    message: str
    """Cause of the last change, for people."""
    last_transition_time: str
    """Time of the last change of status."""
    observed_generation: int = 0
    """Generation of the object that was looked at."""


class DeviceInfo(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    type: str
    """Kind of device: gpu, rdma, fpga, xpu."""
    health: bool
    """True while the device works."""
    id: str = ""
    """UUID or bus address of the device."""
    minor: int | None = None
    """Number of the device among those of its type."""
    resources: dict[str, str] = msgspec.field(default_factory=dict)
    """Resources that the device has, and how much."""
    topology: DeviceTopology | None = None
    """Place of the device in the machine."""
    vf_groups: tuple[VirtualFunctionGroup, ...] = ()
    """Groups of virtual functions."""
    conditions: tuple[Condition, ...] = ()
    """Findings about the state of the device."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    """Labels of the device."""
    module_id: int | None = msgspec.field(default=None, name="moduleID")
    """Number of the device on its board."""


class DeviceSpec(Section, frozen=True):
    devices: tuple[DeviceInfo, ...] = ()
    """Devices of the node."""


class DeviceEntry(Section, frozen=True):
    """Pod that has devices."""

    namespace: str = ""
    """Namespace of the pod."""
    name: str = ""
    """Name of the pod."""
    uuid: str = ""
    """UID of the pod."""
    minors: tuple[int, ...] = ()
    """Numbers of its devices."""


class DeviceAllocation(Section, frozen=True):
    type: str = ""
    """Kind of device."""
    entries: tuple[DeviceEntry, ...] = ()
    """Pods that have devices of this kind."""


class DeviceStatus(Section, frozen=True):
    """Kept for others: nobody writes it, in the reference neither."""

    allocations: tuple[DeviceAllocation, ...] = ()
    """Devices that pods have, by kind."""


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
