"""Devices that a scheduler hands out: GPUs, other accelerators, RDMA devices
(docs/reference/metrics.md
2.15)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec

from koordlet.protocol.quantity import Quantity


class State(StrEnum):
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


class Health(msgspec.Struct, frozen=True):
    """``code``: one word for programs, such as ``Xid79``; ``why``: one sentence for people.
    ``since``: unix seconds, None where nobody knows."""

    state: State = State.UNKNOWN
    code: str = ""
    why: str = ""
    since: float | None = None

    @property
    def is_known(self) -> bool:
        return self.state is not State.UNKNOWN

    @property
    def is_broken(self) -> bool:
        return self.state is State.UNHEALTHY

    @property
    def is_good(self) -> bool:
        return self.state is State.HEALTHY


HEALTHY = Health(State.HEALTHY)


class Place(msgspec.Struct, frozen=True):
    """Where a device is plugged in. ``bus_id``: PCI address as sysfs writes it, empty for a device
    that is on no PCI bus; ``pcie``: its root, such as ``pci0000:3a``; ``numa``: None where the
    kernel does not tell."""

    bus_id: str = ""
    pcie: str = ""
    numa: int | None = None


class GpuInstance(msgspec.Struct, frozen=True):
    """A part of a card in MIG mode."""

    uuid: str
    model: str
    memory_bytes: int | None
    used_bytes: int | None


class Gpu(msgspec.Struct, frozen=True):
    """A card of NVIDIA. ``used_bytes``: of its memory, by whomever. ``core_percent``: of its
    multiprocessors. None: the driver does not tell."""

    uuid: str
    minor: int
    model: str
    place: Place
    memory_bytes: int | None
    health: Health = Health()
    used_bytes: int | None = None
    core_percent: float | None = None
    instances: tuple[GpuInstance, ...] = ()


class UserKind(StrEnum):
    CONTAINER = "container"
    POD = "pod"
    APPLICATION = "application"
    SYSTEM = "system"


class GpuUser(msgspec.Struct, frozen=True):
    """Who has processes on a card. ``name``: id of the container, uid of the pod, name of the
    application; empty for the system. ``instance``: uuid of the part of the card."""

    gpu: str
    kind: UserKind
    name: str
    pod: str = ""
    instance: str = ""
    processes: int = 0
    core_percent: float | None = None
    memory_bytes: int | None = None


class Link(msgspec.Struct, frozen=True):
    """``peers``: minors of the devices that it leads to."""

    peers: tuple[int, ...]
    kind: str


class Xpu(msgspec.Struct, frozen=True):
    """An accelerator that another program describes in a file. ``resources``: by the names that
    the scheduler knows. ``links_are_binding``: devices may only be handed out in groups that
    links join."""

    uuid: str
    minor: int
    vendor: str = ""
    model: str = ""
    resources: Mapping[str, Quantity] = msgspec.field(default_factory=dict)
    place: Place | None = None
    links: tuple[Link, ...] = ()
    links_are_binding: bool = False
    health: Health = Health()


class RdmaPort(msgspec.Struct, frozen=True):
    """``state``: of the link, such as ``ACTIVE``; ``rate``: as the driver writes it, such as
    ``100 Gb/sec (4X EDR)``. Bytes per second are None until two readings were made."""

    number: int
    state: str
    rate: str = ""
    link_layer: str = ""
    received_per_s: float | None = None
    sent_per_s: float | None = None


class RdmaDevice(msgspec.Struct, frozen=True):
    """A physical function, by the first name of its RDMA devices. ``virtual_functions``: PCI
    addresses."""

    name: str
    minor: int
    place: Place
    ports: tuple[RdmaPort, ...] = ()
    virtual_functions: tuple[str, ...] = ()
    network_devices: tuple[str, ...] = ()
    health: Health = Health()


class Inventory(msgspec.Struct, frozen=True):
    """What was found last. ``refused``: what somebody else has written and nobody can read, file
    and fault."""

    gpus: tuple[Gpu, ...] = ()
    driver_version: str = ""
    users: tuple[GpuUser, ...] = ()
    xpus: tuple[Xpu, ...] = ()
    rdma: tuple[RdmaDevice, ...] = ()
    refused: tuple[str, ...] = ()

    def health(self) -> Iterator[tuple[str, Health]]:
        """What each device is called, and how it is."""
        yield from ((f"gpu {each.uuid}", each.health) for each in self.gpus)
        yield from ((f"xpu {each.uuid}", each.health) for each in self.xpus)
        yield from ((f"rdma {each.name}", each.health) for each in self.rdma)
