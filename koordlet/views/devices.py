"""The node's devices: `koordlet devices`, checks of `doctor`, and the metrics page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypedDict

from koordlet.admin.devices import (
    DevicePartView,
    DevicePortView,
    DevicesView,
    DeviceUserView,
    DeviceView,
)
from koordlet.admin.model.doctor import CheckState, CheckView
from koordlet.decision.devices import (
    Gpu,
    GpuUser,
    Health,
    Inventory,
    Place,
    RdmaDevice,
    UserKind,
    Xpu,
)
from koordlet.decision.snapshot import Pod
from koordlet.engine.parts import Parts
from koordlet.kernel.devices.gpu_health import NOT_HEARD
from koordlet.protocol.resources import GPU_MEMORY


def inventory(parts: Parts) -> Inventory:
    """What all collectors of devices found last."""
    readers = parts.runner.devices()
    found = [each.inventory for each in readers if each.inventory is not None]
    return Inventory(
        gpus=tuple(gpu for each in found for gpu in each.gpus),
        driver_version="".join(each.driver_version for each in found),
        users=tuple(user for each in found for user in each.users),
        xpus=tuple(xpu for each in found for xpu in each.xpus),
        rdma=tuple(device for each in found for device in each.rdma),
        refused=tuple(text for each in found for text in each.refused),
    )


def devices(parts: Parts) -> DevicesView:
    found = inventory(parts)
    pods = {each.uid: each for each in parts.state.pods()}
    return DevicesView(
        devices=(
            *(_gpu(each, found.users, pods) for each in found.gpus),
            *(_xpu(each) for each in found.xpus),
            *(_rdma(each) for each in found.rdma),
        ),
        gpu_driver=found.driver_version,
        refused=found.refused,
        capabilities=tuple(
            each for reader in parts.runner.devices() for each in reader.capabilities
        ),
    )


def checks(found: Inventory) -> Iterator[CheckView]:
    """Devices that do not work, and those whose errors would go unnoticed; where all work, one
    line."""
    known = [
        *((each.uuid, each.health, _GPU_REMEDY) for each in found.gpus),
        *((each.uuid, each.health, _XPU_REMEDY) for each in found.xpus),
        *((each.name, each.health, _RDMA_REMEDY) for each in found.rdma),
    ]
    for name, health, remedy in known:
        if health.is_broken:
            yield CheckView(
                name=f"device: {name}",
                state=CheckState.LIMITED,
                why=_health(health)["why"] or "it does not say why",
                cost="work that is given this device fails or waits",
                remedy=remedy,
            )
        elif health.code == NOT_HEARD:
            yield CheckView(
                name=f"device: {name}",
                state=CheckState.LIMITED,
                why=_health(health)["why"],
                cost="koordlet does not notice when this device breaks",
                remedy=_EVENTS_REMEDY,
            )
    if known and not any(health.is_broken for _, health, _ in known):
        unknown = sum(not health.is_known for _, health, _ in known)
        why = (
            f"none of {len(known)} is broken"
            if not unknown
            else (
                f"none of {len(known)} is known to be broken; the health of {unknown} is not known"
            )
        )
        yield CheckView(name="devices", state=CheckState.OK, why=why)


_GPU_REMEDY = (
    "drain it, then reset or replace it; koordlet counts a GPU as broken until "
    "collectors.gpu.enable was off, or koordlet restarts"
)
_EVENTS_REMEDY = "`dmesg` has the driver's words; koordlet tries again every 30 s"
_XPU_REMEDY = "see the device daemon that writes the file about it"
_RDMA_REMEDY = "check cable, switch port and subnet manager; `koordlet devices` has the ports"


def _gpu(gpu: Gpu, users: Iterable[GpuUser], pods: Mapping[str, Pod]) -> DeviceView:
    return DeviceView(
        type="gpu",
        minor=gpu.minor,
        id=gpu.uuid,
        name=gpu.model,
        **_health(gpu.health),
        **_place(gpu.place),
        core_percent=gpu.core_percent,
        used_bytes=gpu.used_bytes,
        memory_bytes=gpu.memory_bytes,
        users=tuple(_user(each, pods) for each in users if each.gpu == gpu.uuid),
        parts=tuple(
            DevicePartView(
                id=each.uuid,
                model=each.model,
                memory_bytes=each.memory_bytes,
                used_bytes=each.used_bytes,
            )
            for each in gpu.instances
        ),
    )


def _user(user: GpuUser, pods: Mapping[str, Pod]) -> DeviceUserView:
    pod = pods.get(user.pod)
    containers = {each.id: each.name for each in pod.containers} if pod is not None else {}
    return DeviceUserView(
        kind=user.kind,
        name=(pod.name if pod is not None else "") or user.pod or user.name,
        namespace=pod.namespace if pod is not None else "",
        container=containers.get(user.name) or user.name if user.kind is UserKind.CONTAINER else "",
        part=user.instance,
        processes=user.processes,
        core_percent=user.core_percent,
        memory_bytes=user.memory_bytes,
    )


def _xpu(xpu: Xpu) -> DeviceView:
    memory = xpu.resources.get(GPU_MEMORY)
    return DeviceView(
        type="xpu",
        minor=xpu.minor,
        id=xpu.uuid,
        name=" ".join(filter(None, (xpu.vendor, xpu.model))),
        **_health(xpu.health),
        **_place(xpu.place or Place()),
        memory_bytes=memory.value if memory is not None else None,
        resources={name: str(amount) for name, amount in sorted(xpu.resources.items())},
    )


def _rdma(device: RdmaDevice) -> DeviceView:
    return DeviceView(
        type="rdma",
        minor=device.minor,
        id=device.place.bus_id or device.name,
        name=device.name,
        **_health(device.health),
        **_place(device.place),
        ports=tuple(
            DevicePortView(
                number=each.number,
                state=each.state,
                rate=each.rate,
                link_layer=each.link_layer,
                received_bytes_per_s=each.received_per_s,
                sent_bytes_per_s=each.sent_per_s,
            )
            for each in device.ports
        ),
        virtual_functions=device.virtual_functions,
        network_devices=device.network_devices,
    )


class _Health(TypedDict):
    health: str
    why: str
    since: float | None


def _health(health: Health) -> _Health:
    why = ": ".join(filter(None, (health.code, health.why)))
    return {"health": health.state, "why": why, "since": health.since}


class _Place(TypedDict):
    bus_id: str
    pcie_root: str
    numa_node: int | None


def _place(place: Place) -> _Place:
    return {"bus_id": place.bus_id, "pcie_root": place.pcie, "numa_node": place.numa}
