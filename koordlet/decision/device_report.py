"""What the node's Device object says
(docs/reference/metrics.md 6.5, protocol.md 4.3), from what was found.
Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from koordlet.decision.devices import Gpu, Health, Inventory, Place, RdmaDevice, State, Xpu
from koordlet.protocol.objects import device as shape
from koordlet.protocol.objects.times import instant
from koordlet.protocol.quantity import bytes_text
from koordlet.protocol.resources import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA_SHARE

VENDOR = "nvidia"
_WHOLE = "100"
_UNKNOWN = -1
_LABEL_CHARACTERS = 63
_STATUS = {State.HEALTHY: "True", State.UNHEALTHY: "False", State.UNKNOWN: "Unknown"}


def device_report(
    found: Inventory, now: float, before: shape.Device | None = None, *, files_only: bool = False
) -> shape.Device:
    """``now``: unix seconds. ``before``: what was said last; the time of a condition whose status
    is the same stays. ``files_only``: GPUs are those that files describe, or none."""
    reporter = _Conditions(now, before)
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    if found.xpus:
        xpus = sorted(found.xpus, key=lambda each: each.uuid)
        gpus = [_xpu(each, reporter) for each in xpus]
        labels, annotations = _xpu_labels(xpus), _partitions(xpus)
    elif files_only:
        gpus = []
    else:
        gpus = [_gpu(each, reporter) for each in sorted(found.gpus, key=lambda each: each.minor)]
        labels = _gpu_labels(found) if found.gpus else {}
    # Who is on no PCI bus cannot be given to a container.
    functions = sorted(filter(lambda each: each.place.bus_id, found.rdma), key=lambda d: d.minor)
    rdma = [_rdma(each) for each in functions]
    return shape.Device(labels, annotations, (*gpus, *rdma))


class _Conditions:
    def __init__(self, now: float, before: shape.Device | None) -> None:
        self._now = instant(now)
        devices = before.devices if before is not None else ()
        self._times = {
            (device.type, device.id, each.status): each.last_transition_time
            for device in devices
            for each in device.conditions
        }

    def of(self, kind: str, identity: str, health: Health) -> tuple[shape.Condition, ...]:
        """None where the device is not watched."""
        if health.state is State.UNKNOWN and not health.code:
            return ()
        status = _STATUS[health.state]
        reason, message = "DeviceHealthy", "device is healthy"
        if health.state is not State.HEALTHY:
            reason, message = health.code or "Unknown", health.why
        time = self._times.get((kind, identity, status), self._now)
        return (shape.Condition("Healthy", status, reason, message, time),)


def _gpu(gpu: Gpu, conditions: _Conditions) -> shape.DeviceInfo:
    resources = {GPU_CORE: _WHOLE, GPU_MEMORY_RATIO: _WHOLE}
    if gpu.memory_bytes is not None:
        resources[GPU_MEMORY] = bytes_text(gpu.memory_bytes)
    return shape.DeviceInfo(
        type=shape.GPU,
        health=not gpu.health.is_broken,
        id=gpu.uuid,
        minor=gpu.minor,
        resources=dict(sorted(resources.items())),
        topology=_topology(gpu.place),
        conditions=conditions.of(shape.GPU, gpu.uuid, gpu.health),
    )


def _topology(place: Place) -> shape.DeviceTopology | None:
    """Of which all must be known."""
    if place.numa is None or not place.pcie or not place.bus_id:
        return None
    return shape.DeviceTopology(_UNKNOWN, place.numa, place.pcie, place.bus_id)


def _gpu_labels(found: Inventory) -> dict[str, str]:
    """The model where all cards are of one: the scheduler takes it for that of each."""
    models = {each.model for each in found.gpus}
    labels = {shape.GPU_VENDOR: VENDOR, shape.GPU_DRIVER_VERSION: _label(found.driver_version)}
    if len(models) == 1:
        labels[shape.GPU_MODEL] = _label(models.pop().removeprefix("NVIDIA "))
    return {name: value for name, value in labels.items() if value}


def _xpu(xpu: Xpu, conditions: _Conditions) -> shape.DeviceInfo:
    resources = {GPU_MEMORY_RATIO: _WHOLE}
    resources |= {name: str(amount) for name, amount in xpu.resources.items()}
    return shape.DeviceInfo(
        type=shape.GPU,
        health=not xpu.health.is_broken,
        id=xpu.uuid,
        minor=xpu.minor,
        resources=dict(sorted(resources.items())),
        topology=_told_topology(xpu.place),
        conditions=conditions.of(shape.GPU, xpu.uuid, xpu.health),
    )


def _told_topology(place: Place | None) -> shape.DeviceTopology | None:
    """As its file says: what that leaves out is not known."""
    if place is None:
        return None
    node = _UNKNOWN if place.numa is None else place.numa
    return shape.DeviceTopology(_UNKNOWN, node, place.pcie, place.bus_id)


def _xpu_labels(xpus: list[Xpu]) -> dict[str, str]:
    first = xpus[0]
    labels = {shape.GPU_MODEL: _label(first.model), shape.GPU_VENDOR: _label(first.vendor)}
    if first.links:
        labels[shape.GPU_PARTITION_POLICY] = "Honor" if first.links_are_binding else "Prefer"
    return {name: value for name, value in labels.items() if value}


def _partitions(xpus: Iterable[Xpu]) -> dict[str, str]:
    """By their number of devices; the same devices once."""
    found: dict[tuple[int, ...], shape.Partition] = {}
    for xpu in xpus:
        for link in xpu.links:
            minors = tuple(sorted({xpu.minor, *link.peers}))
            found.setdefault(minors, shape.Partition(minors, link.kind))
    by_size: dict[str, list[shape.Partition]] = defaultdict(list)
    for minors in sorted(found):
        by_size[str(len(minors))].append(found[minors])
    return {shape.GPU_PARTITIONS: _json(by_size)} if by_size else {}


def _json(value: Mapping[str, list[shape.Partition]]) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _rdma(device: RdmaDevice) -> shape.DeviceInfo:
    """Without a condition: readers of the object go by ``health``."""
    functions = (shape.VirtualFunction(-1, each) for each in sorted(device.virtual_functions))
    vfs = tuple(functions)
    return shape.DeviceInfo(
        type=shape.RDMA,
        health=not device.health.is_broken,
        id=device.place.bus_id,
        minor=device.minor,
        resources={RDMA_SHARE: _WHOLE},
        topology=_topology(device.place),
        vf_groups=(shape.VirtualFunctionGroup(vfs),) if vfs else (),
    )


def _label(text: str) -> str:
    """What is no value of a label becomes a dash (Kubernetes: letters, digits, ``-_.``, of which
    the first and the last is a letter or a digit)."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text)
    return kept[:_LABEL_CHARACTERS].strip("-_.")
