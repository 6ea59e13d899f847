"""GPUs of NVIDIA and the processes on them, by NVML (spec/metrics.md 2.15; D-13 mended).

Everything here may hang with the driver, so it runs beside the event loop (``aside``).
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import NamedTuple, TypeVar

from koordlet.decision.devices import Gpu, GpuInstance, Health, Place, State
from koordlet.kernel.devices.nvml import Handle, Instance, Nvml, NvmlError, Process, Sample
from koordlet.kernel.devices.nvml_abi import Code
from koordlet.kernel.devices.pci import place
from koordlet.kernel.host import Host
from koordlet.kernel.proc.cgroup import cgroup_paths

MOST_GPUS = 64
MOST_PROCESSES = 512
"""Of one GPU, that are looked at: those with the most memory."""
_FIRST_US = 2_000_000
"""Of the first samples only those so long before the newest count: others may be of any age."""
_AHEAD_US = 60_000_000
"""A sample from so far in the future is none; drivers return such garbage now and then."""
_WHOLE_PERCENT = 100

_LOST = {
    Code.GPU_IS_LOST: "GpuIsLost",
    Code.RESET_REQUIRED: "GpuResetRequired",
}
"""What the driver says of a card that does not work any more."""
_OVER = frozenset({Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH})
"""What it says when the session has ended: it was loaded anew."""
_NOT_TOLD = frozenset({Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND, Code.NO_PERMISSION})

T = TypeVar("T")


class GpuProcess(NamedTuple):
    """``instance``: uuid of the part of the card, empty where it is not divided. ``cgroups``: its
    paths in the hierarchies, none where it has ended."""

    pid: int
    memory_bytes: int | None
    core_percent: float | None
    instance: str
    cgroups: frozenset[str]


class GpuReading(NamedTuple):
    gpu: Gpu
    processes: tuple[GpuProcess, ...]


class GpuReadings(NamedTuple):
    """``failed``: what could not be read of which card."""

    driver_version: str
    gpus: tuple[GpuReading, ...]
    failed: tuple[str, ...]


class GpuReader:
    """Keeps the session with the driver, and up to when samples were read. ``close`` may come from
    another thread than ``read``, and waits for it."""

    def __init__(self, nvml: Nvml, host: Host, proc_root: str = "/proc", sys_root: str = "/sys"):
        self._nvml = nvml
        self._host = host
        self._proc_root = proc_root
        self._pci = f"{sys_root}/bus/pci/devices"
        self._lock = threading.Lock()
        self._is_open = False
        self._known: dict[int, Gpu] = {}
        self._read_us: dict[str, int] = {}

    def read(self) -> GpuReadings:
        """Raises NvmlError where nothing can be read; the next call begins a new session."""
        with self._lock:
            if not self._is_open:
                self._nvml.init()
                self._is_open = True
            try:
                return self._read()
            except NvmlError:
                self._end()
                raise

    def close(self) -> None:
        """Lets go of the driver, which cannot be unloaded, nor a card be reset, before that."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(NvmlError):
                self._nvml.shutdown()

    def _read(self) -> GpuReadings:
        version, count = self._nvml.driver_version(), self._nvml.count()
        found: list[GpuReading] = []
        failed: list[str] = []
        for index in range(min(count, MOST_GPUS)):
            try:
                reading = self._gpu(index)
            except NvmlError as error:
                if error.code in _OVER:
                    raise
                failed.append(f"GPU {index}: {error}")
                known = self._known.get(index)
                if known is not None and error.code in _LOST:
                    health = Health(State.UNHEALTHY, _LOST[Code(error.code)], str(error))
                    found.append(GpuReading(_without_use(known, health), ()))
                continue
            self._known[index] = reading.gpu
            found.append(reading)
        return GpuReadings(version, tuple(found), tuple(failed))

    def _gpu(self, index: int) -> GpuReading:
        nvml = self._nvml
        device = nvml.handle(index)
        uuid, minor, name = nvml.uuid(device), nvml.minor(device), nvml.name(device)
        total, used = self._memory(device)
        parts = self._parts(device)
        samples = self._asked(lambda: self._samples(device, uuid))
        uuids = {number: part.uuid for number, part in parts.items()}
        gpu = Gpu(
            uuid=uuid,
            minor=minor,
            model=name,
            place=self._place(nvml.bus_id(device)),
            memory_bytes=total,
            used_bytes=used,
            core_percent=self._core_percent(device, samples),
            instances=tuple(parts.values()),
        )
        return GpuReading(gpu, self._processes(device, samples, uuids))

    def _place(self, bus_id: str) -> Place:
        found = place(self._host, f"{self._pci}/{bus_id}")
        return found if found.bus_id else Place(bus_id)

    def _parts(self, device: Handle) -> Mapping[Instance, GpuInstance]:
        """Those of a divided card, by the numbers that processes name."""
        nvml = self._nvml
        handles = nvml.parts(device) if nvml.is_divided(device) else ()
        return {nvml.instance(each): self._part(each) for each in handles}

    def _part(self, part: Handle) -> GpuInstance:
        nvml = self._nvml
        return GpuInstance(nvml.uuid(part), nvml.name(part), *self._memory(part))

    def _memory(self, device: Handle) -> tuple[int | None, int | None]:
        return self._asked(lambda: self._nvml.memory(device)) or (None, None)

    def _processes(
        self, device: Handle, samples: Mapping[int, float] | None, uuids: Mapping[Instance, str]
    ) -> tuple[GpuProcess, ...]:
        """Those that hold memory, and those that ran since the last reading. Who has no sample
        was idle; where there are none at all, nobody knows."""
        listed = self._asked(lambda: self._nvml.processes(device)) or ()
        pids = {each.pid for each in listed}
        ran = [Process(pid, None, None) for pid in samples or () if pid not in pids]
        found = sorted((*listed, *ran), key=lambda each: -(each.memory_bytes or 0))
        return tuple(
            GpuProcess(
                pid=each.pid,
                memory_bytes=each.memory_bytes,
                core_percent=None if samples is None else samples.get(each.pid, 0.0),
                instance=uuids.get(each.instance, "") if each.instance is not None else "",
                cgroups=self._cgroups(each.pid),
            )
            for each in found[:MOST_PROCESSES]
        )

    def _samples(self, device: Handle, uuid: str) -> Mapping[int, float]:
        """pid -> percent of the multiprocessors since the last reading."""
        since_us = self._read_us.get(uuid, 0)
        ahead_us = int(self._host.time() * 1e6) + _AHEAD_US
        found = [
            each
            for each in self._nvml.samples(device, since_us)
            if each.pid and each.sm_percent <= _WHOLE_PERCENT
            if since_us < each.time_us < ahead_us
        ]
        if not found:
            return {}
        newest_us = max(each.time_us for each in found)
        self._read_us[uuid] = newest_us
        if not since_us:
            found = [each for each in found if each.time_us > newest_us - _FIRST_US]
        return _means(found)

    def _core_percent(self, device: Handle, samples: Mapping[int, float] | None) -> float | None:
        """The sum of what processes use, as in the reference; where the driver does not tell that,
        the share of time in which anything ran."""
        if samples is not None:
            return min(sum(samples.values()), float(_WHOLE_PERCENT))
        return self._asked(lambda: float(self._nvml.gpu_percent(device)))

    def _cgroups(self, pid: int) -> frozenset[str]:
        try:
            return cgroup_paths(self._host, pid, self._proc_root)
        except OSError:
            return frozenset()

    def _asked(self, question: Callable[[], T]) -> T | None:
        """None where this card does not tell."""
        try:
            return question()
        except NvmlError as error:
            if error.code in _NOT_TOLD:
                return None
            raise


def _means(samples: list[Sample]) -> Mapping[int, float]:
    by_pid = defaultdict(list)
    for each in samples:
        by_pid[each.pid].append(each.sm_percent)
    return {pid: fmean(values) for pid, values in by_pid.items()}


def _without_use(gpu: Gpu, health: Health) -> Gpu:
    return Gpu(gpu.uuid, gpu.minor, gpu.model, gpu.place, gpu.memory_bytes, health)
