"""What a binding says of devices, and what a pod's annotations tell of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koord_scheduler.model.cluster.columns import MOST_AMOUNT
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.place.device.request import PROVIDER, asks_for
from koord_scheduler.place.device.types import GPU, Given, Grant, VirtualFunction
from koordlet.protocol import keys
from koordlet.protocol.annotation_types import DeviceAllocation
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.quantity import bytes_text
from koordlet.protocol.resources import GPU_MEMORY

BIND_TIMESTAMP = "scheduling.koordinator.sh/bind-timestamp"
GPU_MINORS = "scheduling.koordinator.sh/gpu-minors"
_HAMI = "hami-core"


def binding_annotations(grant: Grant, *, adapted: bool = False) -> dict[str, str]:
    """``device-allocated``
    (docs/reference/protocol.md 2.3). ``adapted``: and what device plugins of vendors
    read."""
    tree = {of: [_written(each) for each in given] for of, given in grant.devices.items()}
    found = {keys.DEVICE_ALLOCATED.name: msgspec.json.encode(tree, order="sorted").decode()}
    if adapted:
        found[BIND_TIMESTAMP] = str(int(grant.granted_s * 1e9))
        if GPU in grant.devices:
            found[GPU_MINORS] = ",".join(str(each.minor) for each in grant.devices[GPU])
    return found


def binding_labels(pod: Pod, grant: Grant) -> dict[str, str]:
    """HAMi finds pods with its slices by the name of their node."""
    if GPU in grant.devices and pod.labels.get(PROVIDER, "").lower() == _HAMI:
        return {keys.VGPU_NODE.name: grant.node}
    return {}


def read_grant(pod: Pod) -> Grant | None:
    """What ``device-allocated`` tells, whoever wrote it. Types that the pod does not ask for count
    for nothing: nobody gave them."""
    try:
        allocated = keys.DEVICE_ALLOCATED.read(pod.annotations)
    except ProtocolError:
        return None
    devices = {
        of: tuple(_read(each) for each in given if each.minor >= 0)
        for of, given in (allocated or {}).items()
        if asks_for(pod.cls, of)
    }
    return Grant(devices, node=pod.node) if devices else None


def _written(given: Given) -> dict[str, Any]:
    found: dict[str, Any] = {
        "minor": given.minor,
        "resources": {
            name: bytes_text(amount) if name == GPU_MEMORY else str(amount)
            for name, amount in given.amounts.items()
        },
    }
    if given.id:
        found["id"] = given.id
    extension: dict[str, Any] = {}
    if given.functions:
        extension["vfs"] = [{"minor": vf.minor, "busID": vf.bus_id} for vf in given.functions]
    if given.template:
        extension["gpuSharedResourceTemplate"] = given.template
    if extension:
        found["extension"] = extension
    return found


def _read(each: DeviceAllocation) -> Given:
    extension = each.extension
    amounts: Mapping[str, int] = {
        name: min(max(amount.value, 0), MOST_AMOUNT) for name, amount in each.resources.items()
    }
    return Given(
        minor=each.minor,
        amounts=amounts,
        id=each.id,
        functions=tuple(
            VirtualFunction(vf.minor, vf.bus_id) for vf in (extension.vfs if extension else ())
        ),
        template=extension.gpu_shared_resource_template if extension else "",
    )
