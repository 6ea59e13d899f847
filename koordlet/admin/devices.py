"""Views of devices (see ``model``)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlet.decision.why import Capability


class DevicePartView(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a GPU that is divided (MIG)."""

    id: str
    model: str
    memory_bytes: int | None = None
    used_bytes: int | None = None


class DevicePortView(msgspec.Struct, frozen=True, kw_only=True):
    """A port of an RDMA device. ``rate``: as its driver writes it."""

    number: int
    state: str
    rate: str = ""
    link_layer: str = ""
    received_bytes_per_s: float | None = None
    sent_bytes_per_s: float | None = None


class DeviceUserView(msgspec.Struct, frozen=True, kw_only=True):
    """``kind``: container, pod, application, or system, which is who belongs to none of these.
    ``name``: of the pod or application; its uid where the name is not known. ``part``: id of the
    part of the device."""

    kind: str
    name: str = ""
    namespace: str = ""
    container: str = ""
    part: str = ""
    processes: int = 0
    core_percent: float | None = None
    memory_bytes: int | None = None


class DeviceView(msgspec.Struct, frozen=True, kw_only=True):
    """``type``: gpu, xpu or rdma. ``id``: a uuid, or the PCI address, or the name of a device that
    has neither. ``health``: healthy, unhealthy or unknown; ``why`` and ``since`` of that.
    ``numa_node``: None where the kernel does not tell."""

    type: str
    minor: int
    id: str
    name: str
    health: str
    why: str = ""
    since: float | None = None
    bus_id: str = ""
    pcie_root: str = ""
    numa_node: int | None = None
    core_percent: float | None = None
    used_bytes: int | None = None
    memory_bytes: int | None = None
    resources: Mapping[str, str] = msgspec.field(default_factory=dict)
    users: tuple[DeviceUserView, ...] = ()
    parts: tuple[DevicePartView, ...] = ()
    ports: tuple[DevicePortView, ...] = ()
    virtual_functions: tuple[str, ...] = ()
    network_devices: tuple[str, ...] = ()


class DevicesView(msgspec.Struct, frozen=True, kw_only=True):
    """``refused``: what stands in files of other programs and cannot be read. ``capabilities``:
    whether this machine has what devices are read from."""

    devices: tuple[DeviceView, ...] = ()
    gpu_driver: str = ""
    refused: tuple[str, ...] = ()
    capabilities: tuple[Capability, ...] = ()
