"""GPUs, by card and by who uses them (docs/reference/metrics.md 2.15; D-13 mended).

NVML is asked in a thread, because it hangs when the driver does. A reading that was begun in one
round is taken in the next; none is begun while one runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from koordlet.collectors.base import CollectorPart, Machine, Round, SlowCollectorOptions
from koordlet.collectors.devices.series import Series
from koordlet.decision import metrics
from koordlet.decision.snapshot import Capability
from koordlet.kernel.devices import outcomes
from koordlet.kernel.devices.aside import Aside

if TYPE_CHECKING:  # loaded where there is a GPU
    from koordlet.decision.devices import Inventory
    from koordlet.kernel.devices.gpus import GpuReader, GpuReadings
    from koordlet.kernel.devices.nvml import Nvml


class GpuCollector:
    """``inventory``: as of the last reading, None before it."""

    name = "gpu"
    optional = True

    def __init__(self, machine: Machine, interval_s: float = 10.0) -> None:
        self.interval_s = interval_s
        self._machine = machine
        self._series = Series(machine.store)
        self._aside: Aside[GpuReadings] = machine.asides.gpu
        self._is_late = False
        self._nvml: Nvml | None = None
        self._reader: GpuReader | None = None
        self._reads = False
        """The call of ``_aside`` is a reading of this collector, not yet taken."""
        self.capabilities: tuple[Capability, ...] = ()
        self.inventory: Inventory | None = None

    @property
    def has_ended(self) -> bool:
        if self._aside.has_ended:
            return self._reads
        return not self._is_late and self._aside.is_late(self._machine.host.monotonic())

    def collect(self, round_: Round) -> None:
        """Raises TimeoutError while the driver hangs, NvmlError where it refuses. Without a driver
        there is nothing to measure, and nothing to complain about."""
        if self._aside.runs and not self._aside.has_ended:
            self._look(round_.now_s)
        elif self._reads:
            self._take(round_)
        else:
            self._begin(round_.now_s)

    def close(self) -> None:
        """Lets go of the driver, after a reading that goes on."""
        reader, self._reader = self._reader, None
        self._reads = self._is_late = False
        self.inventory = None
        self._series.close()
        if reader is not None:
            self._aside.finish(reader.close, self._machine.host.monotonic())

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
        self._reads, self._is_late = True, False
        self._aside.start(self._reader.read, now_s)

    def _look(self, now_s: float) -> None:
        if self._aside.is_late(now_s):
            self._is_late = True
            found = outcomes.hangs(now_s - self._aside.begun_s)
            self.capabilities, self.inventory = (found,), None
            self._series.close()
            raise TimeoutError(found.why)

    def _take(self, round_: Round) -> None:
        from koordlet.collectors.devices.gpu_use import inventory_of, samples
        from koordlet.collectors.devices.owners import owners
        from koordlet.kernel.devices.nvml import NvmlError

        self._reads = False
        try:
            found = self._aside.take()
        except NvmlError as error:
            self.capabilities, self.inventory = (outcomes.refused(error),), None
            self._series.close()
            raise
        gpus = len(found.gpus)
        self.capabilities = (outcomes.works(gpus, found.driver_version, self._aside.cpu_s),)
        round_.skipped += found.failed
        if self._nvml is not None:
            self._machine.gpu_health.follow(self._nvml)
        self.inventory = inventory_of(
            found, owners(round_.pods, round_.applications), self._machine.gpu_health
        )
        self._series.write(round_, samples(self.inventory))


COLLECTOR = CollectorPart(
    name=GpuCollector.name,
    help="GPUs of NVIDIA: use by card, pod, container and application, and their health.",
    options=SlowCollectorOptions(),
    make=lambda machine, options: GpuCollector(machine, options.interval_seconds),
    metrics=(
        metrics.NODE_GPU_CORE_USAGE,
        metrics.NODE_GPU_MEMORY_USAGE,
        metrics.NODE_GPU_MEMORY_TOTAL,
        metrics.POD_GPU_CORE_USAGE,
        metrics.POD_GPU_MEMORY_USAGE,
        metrics.CONTAINER_GPU_CORE_USAGE,
        metrics.CONTAINER_GPU_MEMORY_USAGE,
        metrics.HOST_APPLICATION_GPU_CORE_USAGE,
        metrics.HOST_APPLICATION_GPU_MEMORY_USAGE,
        metrics.SYS_GPU_CORE_USAGE,
        metrics.SYS_GPU_MEMORY_USAGE,
        metrics.NODE_GPU_INSTANCE_MEMORY_USAGE,
        metrics.NODE_GPU_INSTANCE_MEMORY_TOTAL,
        metrics.NODE_DEVICE_HEALTHY,
    ),
)
