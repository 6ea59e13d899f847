"""Devices as resources of their node (docs/reference/central.md 1.6,
docs/reference/protocol.md 3.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from koord_scheduler.model.facts import DeviceFacts
from koordlet.protocol.objects.device import (
    GPU,
    GPU_DRIVER_VERSION,
    GPU_MODEL,
    GPU_VENDOR,
    RDMA,
)
from koordlet.protocol.resources import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARE,
    GPU_SHARED,
    RDMA_SHARE,
)

_GPU_RESOURCES = (
    *(GPU_SHARE, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED),
    *("huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp"),
)
_LABELS = (GPU_VENDOR, GPU_MODEL, GPU_DRIVER_VERSION)
_VENDORS_OF_SHARES = ("", "nvidia")
_WHOLE = 100


class Devices(NamedTuple):
    """As in a plan of the node: None is to be removed, what is not there is left alone."""

    resources: Mapping[str, int | None]
    labels: Mapping[str, str | None]


def devices(device: DeviceFacts | None, *, sync_gpu_shared: bool = False) -> Devices:
    """Sums over healthy devices. Without a healthy GPU its resources go, and its labels stay.

    ``sync_gpu_shared``: feature gate EnableSyncGPUSharedResource of the reference.
    """
    healthy = [each for each in device.devices if each.healthy] if device is not None else []
    gpus = [each for each in healthy if each.type == GPU]
    resources: dict[str, int | None] = dict.fromkeys(_GPU_RESOURCES)
    labels: dict[str, str | None] = {}
    if device is not None and gpus:
        total: Counter[str] = Counter()
        for gpu in gpus:
            total.update(gpu.resources)
        resources.update(total)
        if device.labels.get(GPU_VENDOR, "") in _VENDORS_OF_SHARES:
            resources[GPU_SHARE] = total[GPU_CORE]
        if sync_gpu_shared:
            resources[GPU_SHARED] = len(gpus) * _WHOLE
        labels.update({key: device.labels[key] for key in _LABELS if key in device.labels})
    cards = sum(each.type == RDMA for each in healthy)
    resources[RDMA_SHARE] = cards * _WHOLE if cards else None
    return Devices(resources, labels)
