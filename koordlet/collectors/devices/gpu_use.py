"""What a reading of GPUs says, by card and by who uses it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from koordlet.collectors.devices.owners import Owner, owner_of
from koordlet.collectors.devices.series import Sample, health_sample
from koordlet.decision import metrics
from koordlet.decision.devices import Gpu, GpuUser, Inventory, UserKind
from koordlet.decision.metrics import Metric
from koordlet.kernel.devices.gpu_health import GpuHealth
from koordlet.kernel.devices.gpus import GpuProcess, GpuReading, GpuReadings

_OF_USERS: dict[UserKind, tuple[Metric, Metric]] = {
    UserKind.CONTAINER: (metrics.CONTAINER_GPU_CORE_USAGE, metrics.CONTAINER_GPU_MEMORY_USAGE),
    UserKind.POD: (metrics.POD_GPU_CORE_USAGE, metrics.POD_GPU_MEMORY_USAGE),
    UserKind.APPLICATION: (
        metrics.HOST_APPLICATION_GPU_CORE_USAGE,
        metrics.HOST_APPLICATION_GPU_MEMORY_USAGE,
    ),
    UserKind.SYSTEM: (metrics.SYS_GPU_CORE_USAGE, metrics.SYS_GPU_MEMORY_USAGE),
}


def inventory_of(found: GpuReadings, owners: Mapping[str, Owner], health: GpuHealth) -> Inventory:
    """``owners``: by cgroup."""
    users = [user for each in found.gpus for user in _users(each, owners)]
    cards = tuple(_with_health(each.gpu, health) for each in found.gpus)
    return Inventory(cards, found.driver_version, tuple(users))


def _with_health(gpu: Gpu, health: GpuHealth) -> Gpu:
    """What the driver says of a card that it has lost counts more than its events."""
    by_events = health.of(gpu.uuid)
    if by_events is None or gpu.health.is_broken:
        return gpu
    return msgspec.structs.replace(gpu, health=by_events)


def _users(reading: GpuReading, known: Mapping[str, Owner]) -> Iterator[GpuUser]:
    by_owner: dict[tuple[Owner, str], list[GpuProcess]] = defaultdict(list)
    for process in reading.processes:
        by_owner[owner_of(process.cgroups, known), process.instance].append(process)
    for (owner, instance), processes in by_owner.items():
        memory = _sum(each.memory_bytes for each in processes)
        yield GpuUser(
            gpu=reading.gpu.uuid,
            kind=owner.kind,
            name=owner.name,
            pod=owner.pod,
            instance=instance,
            processes=len(processes),
            core_percent=_sum(each.core_percent for each in processes),
            memory_bytes=None if memory is None else int(memory),
        )


def samples(found: Inventory) -> Iterator[Sample]:
    minors = {each.uuid: each.minor for each in found.gpus}
    for gpu in found.gpus:
        labels = (str(gpu.minor), gpu.uuid)
        yield from _known(metrics.NODE_GPU_CORE_USAGE, labels, gpu.core_percent)
        yield from _known(metrics.NODE_GPU_MEMORY_USAGE, labels, gpu.used_bytes)
        yield from _known(metrics.NODE_GPU_MEMORY_TOTAL, labels, gpu.memory_bytes)
        yield from health_sample("gpu", gpu.minor, gpu.uuid, gpu.health)
        for part in gpu.instances:
            labels = (str(gpu.minor), part.uuid)
            yield from _known(metrics.NODE_GPU_INSTANCE_MEMORY_USAGE, labels, part.used_bytes)
            yield from _known(metrics.NODE_GPU_INSTANCE_MEMORY_TOTAL, labels, part.memory_bytes)
    yield from _of_users(found.users, minors)


def _of_users(users: Iterable[GpuUser], minors: dict[str, int]) -> Iterator[Sample]:
    """A pod has what its containers have, and what runs in none of them. Parts of a card are added
    up: these series are about cards."""
    parts: dict[tuple[Metric, tuple[str, ...]], list[float | None]] = defaultdict(list)
    for user in users:
        card = (str(minors[user.gpu]), user.gpu)
        subjects = [(user.kind, user.name)]
        if user.kind is UserKind.CONTAINER:
            subjects.append((UserKind.POD, user.pod))
        for kind, name in subjects:
            labels: tuple[str, ...] = (name, *card) if name else card
            core, memory = _OF_USERS[kind]
            parts[core, labels].append(user.core_percent)
            parts[memory, labels].append(user.memory_bytes)
    for (metric, labels), values in parts.items():
        yield from _known(metric, labels, _sum(values))


def _known(metric: Metric, labels: tuple[str, ...], value: float | None) -> Iterator[Sample]:
    if value is not None:
        yield Sample(metric, labels, value)


def _sum(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None where none is."""
    known = [each for each in values if each is not None]
    return sum(known) if known else None
