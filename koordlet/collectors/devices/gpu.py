"""GPUs, by card and by who uses them (spec/metrics.md 2.15; D-13 mended).

NVML is asked in a thread, because it hangs when the driver does. A reading that was begun in one
round is taken in the next; none is begun while one runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from koordlet.collectors.base import CollectorPart, Machine, Round, SlowCollectorOptions
from koordlet.collectors.devices.owners import Owner, owner_of, owners
from koordlet.collectors.devices.series import Sample, Series, health_sample
from koordlet.decision import metrics
from koordlet.decision.devices import Gpu, GpuUser, Inventory, State, UserKind
from koordlet.decision.metrics import Metric
from koordlet.decision.snapshot import Capability
from koordlet.kernel.devices import outcomes
from koordlet.kernel.devices.aside import Aside

if TYPE_CHECKING:  # loaded where there is a GPU
    from koordlet.kernel.devices.gpus import GpuProcess, GpuReader, GpuReading, GpuReadings
    from koordlet.kernel.devices.nvml import Nvml

_OF_USERS: dict[UserKind, tuple[Metric, Metric]] = {
    UserKind.CONTAINER: (metrics.CONTAINER_GPU_CORE_USAGE, metrics.CONTAINER_GPU_MEMORY_USAGE),
    UserKind.POD: (metrics.POD_GPU_CORE_USAGE, metrics.POD_GPU_MEMORY_USAGE),
    UserKind.APPLICATION: (
        metrics.HOST_APPLICATION_GPU_CORE_USAGE,
        metrics.HOST_APPLICATION_GPU_MEMORY_USAGE,
    ),
    UserKind.SYSTEM: (metrics.SYS_GPU_CORE_USAGE, metrics.SYS_GPU_MEMORY_USAGE),
}


class GpuCollector:
    """``inventory``: as of the last reading."""

    name = "gpu"
    optional = True

    def __init__(self, machine: Machine, interval_s: float = 10.0) -> None:
        self.interval_s = interval_s
        self._machine = machine
        self._series = Series(machine.store)
        self._aside: Aside[GpuReadings] = Aside("gpu")
        self._nvml: Nvml | None = None
        self._reader: GpuReader | None = None
        self._begun_s = 0.0
        self.capabilities: tuple[Capability, ...] = ()
        self.inventory = Inventory()

    @property
    def has_ended(self) -> bool:
        return self._aside.has_ended

    def collect(self, round_: Round) -> None:
        """Raises TimeoutError while the driver hangs, NvmlError where it refuses. Without a driver
        there is nothing to measure, and nothing to complain about."""
        if self._aside.runs and not self._aside.has_ended:
            self._look(round_.now_s - self._begun_s)
        elif self._aside.runs and self._reader is not None:
            self._take(round_)
        else:
            self._begin(round_.now_s)

    def close(self) -> None:
        """Lets go of the driver, in a thread that waits for a reading that runs."""
        reader, self._reader = self._reader, None
        self.inventory = Inventory()
        self._series.close()
        if reader is not None:
            Aside[None]("gpu-close").start(reader.close)

    def _begin(self, now_s: float) -> None:
        machine = self._machine
        if self._reader is None:
            try:
                self._nvml = machine.host.nvml()
            except OSError as error:
                found = outcomes.no_driver(machine.host, error, machine.proc_root)
                self.capabilities = (found,)
                return
            from koordlet.kernel.devices.gpus import GpuReader

            self._reader = GpuReader(self._nvml, machine.host, machine.proc_root, machine.sys_root)
        self._begun_s = now_s
        self._aside.start(self._reader.read)

    def _look(self, waited_s: float) -> None:
        if waited_s > outcomes.ANSWERS_WITHIN_S:
            found = outcomes.hangs(waited_s)
            self.capabilities, self.inventory = (found,), Inventory()
            self._series.close()
            raise TimeoutError(found.why)

    def _take(self, round_: Round) -> None:
        from koordlet.kernel.devices.nvml import NvmlError

        try:
            found = self._aside.take()
        except NvmlError as error:
            self.capabilities, self.inventory = (outcomes.refused(error),), Inventory()
            self._series.close()
            raise
        gpus = len(found.gpus)
        self.capabilities = (outcomes.works(gpus, found.driver_version, self._aside.cpu_s),)
        round_.skipped += found.failed
        if self._nvml is not None:
            self._machine.gpu_health.follow(self._nvml)
        known = owners(round_.pods, round_.applications)
        users = [user for each in found.gpus for user in _users(each, known)]
        cards = tuple(self._with_health(each.gpu) for each in found.gpus)
        self.inventory = Inventory(cards, found.driver_version, tuple(users))
        self._series.write(round_, _samples(self.inventory))

    def _with_health(self, gpu: Gpu) -> Gpu:
        """What the driver says of a card that it has lost counts more than its events."""
        if gpu.health.state is State.UNHEALTHY:
            return gpu
        return msgspec.structs.replace(gpu, health=self._machine.gpu_health.of(gpu.uuid))


def _users(reading: GpuReading, known: dict[str, Owner]) -> Iterator[GpuUser]:
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


def _samples(found: Inventory) -> Iterator[Sample]:
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
    cores: dict[tuple[Metric, tuple[str, ...]], list[float | None]] = defaultdict(list)
    for user in users:
        card = (str(minors[user.gpu]), user.gpu)
        subjects = [(user.kind, user.name)]
        if user.kind is UserKind.CONTAINER:
            subjects.append((UserKind.POD, user.pod))
        for kind, name in subjects:
            labels: tuple[str, ...] = (name, *card) if name else card
            core, memory = _OF_USERS[kind]
            cores[core, labels].append(user.core_percent)
            cores[memory, labels].append(user.memory_bytes)
    for (metric, labels), values in cores.items():
        yield from _known(metric, labels, _sum(values))


def _known(metric: Metric, labels: tuple[str, ...], value: float | None) -> Iterator[Sample]:
    if value is not None:
        yield Sample(metric, labels, value)


def _sum(values: Iterable[float | None]) -> float | None:
    """Of those that are known; None where none is."""
    known = [each for each in values if each is not None]
    return sum(known) if known else None


COLLECTOR = CollectorPart(
    name=GpuCollector.name,
    help="GPUs of NVIDIA: use by card, pod, container and application, and their health.",
    options=SlowCollectorOptions(),
    make=lambda machine, options: GpuCollector(machine, options.interval_seconds),
    metrics=(
        metrics.NODE_GPU_CORE_USAGE,
        metrics.NODE_GPU_MEMORY_USAGE,
        metrics.NODE_GPU_MEMORY_TOTAL,
        *(metric for pair in _OF_USERS.values() for metric in pair),
        metrics.NODE_GPU_INSTANCE_MEMORY_USAGE,
        metrics.NODE_GPU_INSTANCE_MEMORY_TOTAL,
        metrics.NODE_DEVICE_HEALTHY,
    ),
)
