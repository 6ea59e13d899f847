"""GPUs of NVIDIA and the processes on them, by NVML (docs/reference/metrics.md 2.15; D-13 mended).

Everything here may hang with the driver, so it runs beside the event loop (``aside``).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from koordlet.decision.devices import Gpu, GpuInstance, Health, Place, State
from koordlet.kernel.devices.nvml import (
    KINDS,
    LACKING,
    Handle,
    Instance,
    Nvml,
    NvmlError,
    Process,
    Sample,
    merged,
)
from koordlet.kernel.devices.nvml_abi import Code
from koordlet.kernel.devices.pci import place
from koordlet.kernel.host import Host
from koordlet.kernel.proc.cgroup import cgroup_paths

MOST_GPUS = 64
MOST_PROCESSES = 512
"""Of one GPU, that are looked at: those with the most memory."""
_FIRST_US = 2_000_000
"""Of the first samples only those so long before the newest count: others may be of any age."""
_AHEAD_US = 1_000_000
"""A sample from so far in the future is none: drivers return such garbage now and then, and what
they had sampled before the clock was set back looks the same."""
_WHOLE_PERCENT = 100

_LOST = {
    Code.GPU_IS_LOST: "GpuIsLost",
    Code.RESET_REQUIRED: "GpuResetRequired",
}
"""What the driver says of a card that does not work any more."""
_OVER = frozenset({Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH})
"""What it says when the session has ended: it was loaded anew."""

T = TypeVar("T")


class GpuProcess(NamedTuple):
    """``instance``: uuid of the part of the card, empty where it is not divided. ``cgroups``: its
    paths in the hierarchies; of a process that has ended, those of the reading before."""

    pid: int
    memory_bytes: int | None
    core_percent: float | None
    instance: str
    cgroups: frozenset[str]


class GpuReading(NamedTuple):
    gpu: Gpu
    processes: tuple[GpuProcess, ...]


class GpuReadings(NamedTuple):
    """``failed``: what could not be read of which card, or is left out."""

    driver_version: str
    gpus: tuple[GpuReading, ...]
    failed: tuple[str, ...]


class _Card:
    """Asks about one card. ``failed``: what the driver refuses to say of it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.failed: list[str] = []

    def ask(self, question: Callable[[], T]) -> T | None:
        """None where the driver does not say. Raises NvmlError where the session is over or the
        card is lost: then no other answer counts either."""
        try:
            return question()
        except NvmlError as error:
            if error.code in _OVER or error.code in _LOST:
                raise
            if error.code not in LACKING:
                self.fail(error)
            return None

    def fail(self, why: object) -> None:
        self.failed.append(f"GPU {self.index}: {why}")


class GpuReader:
    """Keeps the session with the driver, and up to when samples were read. For one thread at a
    time."""

    def __init__(self, nvml: Nvml, host: Host, proc_root: str = "/proc", sys_root: str = "/sys"):
        self._nvml = nvml
        self._host = host
        self._proc_root = proc_root
        self._pci = f"{sys_root}/bus/pci/devices"
        self._is_open = False
        self._known: dict[int, Gpu] = {}
        self._read_us: dict[str, int] = {}
        self._cgroups: dict[int, frozenset[str]] = {}
        """Of the processes of the last reading."""

    def read(self) -> GpuReadings:
        """Raises NvmlError where nothing can be read; the next call begins a new session."""
        if not self._is_open:
            self._nvml.init()
            self._is_open = True
        try:
            return self._read()
        except NvmlError:
            with contextlib.suppress(NvmlError):  # the first error says more
                self.close()
            raise

    def close(self) -> None:
        """Lets go of the driver, which cannot be unloaded, nor a card be reset, before that. Raises
        NvmlError where it is kept all the same."""
        if self._is_open:
            self._is_open = False
            self._nvml.shutdown()

    def _read(self) -> GpuReadings:
        version, count = self._nvml.driver_version(), self._nvml.count()
        found: list[GpuReading] = []
        failed: list[str] = []
        cgroups: dict[int, frozenset[str]] = {}
        if count > MOST_GPUS:
            failed.append(f"{count} GPUs: only the first {MOST_GPUS} are read")
        for index in range(min(count, MOST_GPUS)):
            card = _Card(index)
            try:
                reading = self._gpu(card)
            except NvmlError as error:
                if error.code in _OVER:
                    raise
                card.fail(error)
                known = self._known.get(index)
                if known is not None and error.code in _LOST:
                    health = Health(State.UNHEALTHY, _LOST[Code(error.code)], str(error))
                    found.append(GpuReading(_without_use(known, health), ()))
            else:
                self._known[index] = reading.gpu
                cgroups |= {each.pid: each.cgroups for each in reading.processes}
                found.append(reading)
            failed += card.failed
        self._cgroups = cgroups
        return GpuReadings(version, tuple(found), tuple(failed))

    def _gpu(self, card: _Card) -> GpuReading:
        nvml = self._nvml
        device = nvml.handle(card.index)
        uuid, name = nvml.uuid(device), nvml.name(device)
        minor = card.ask(lambda: nvml.minor(device))
        address = card.ask(lambda: nvml.bus_id(device))
        total, used = self._memory(card, device)
        parts = self._parts(card, device)
        samples = card.ask(lambda: self._samples(device, uuid))
        gpu = Gpu(
            uuid=uuid,
            # Where devices have no such number, they are numbered as NVML does.
            minor=card.index if minor is None else minor,
            model=name,
            place=self._place(address) if address is not None else Place(),
            memory_bytes=total,
            used_bytes=used,
            core_percent=self._core_percent(card, device, samples),
            instances=tuple(parts.values()),
        )
        uuids = {number: part.uuid for number, part in parts.items()}
        return GpuReading(gpu, self._processes(card, device, samples, uuids))

    def _place(self, bus_id: str) -> Place:
        found = place(self._host, f"{self._pci}/{bus_id}")
        return found if found.bus_id else Place(bus_id)

    def _parts(self, card: _Card, device: Handle) -> Mapping[Instance, GpuInstance]:
        """Those of a divided card, by the numbers that processes name."""
        if not card.ask(lambda: self._nvml.is_divided(device)):
            return {}
        handles = card.ask(lambda: self._nvml.parts(device)) or ()
        # One may go while it is read.
        found = (card.ask(partial(self._part, card, each)) for each in handles)
        return dict(each for each in found if each is not None)

    def _part(self, card: _Card, part: Handle) -> tuple[Instance, GpuInstance]:
        nvml = self._nvml
        total, used = self._memory(card, part)
        return nvml.instance(part), GpuInstance(nvml.uuid(part), nvml.name(part), total, used)

    def _memory(self, card: _Card, device: Handle) -> tuple[int | None, int | None]:
        return card.ask(lambda: self._nvml.memory(device)) or (None, None)

    def _processes(
        self,
        card: _Card,
        device: Handle,
        samples: Mapping[int, float] | None,
        uuids: Mapping[Instance, str],
    ) -> tuple[GpuProcess, ...]:
        """Those that hold memory, and those that ran since the last reading. A process without a
        sample was idle; where no process has any, its use is not known."""
        lists = (card.ask(partial(self._nvml.processes, device, kind)) for kind in KINDS)
        listed = merged(each for each in lists if each is not None)
        pids = {each.pid for each in listed}
        ran = [Process(pid, None, None) for pid in samples or () if pid not in pids]
        found = sorted((*listed, *ran), key=lambda each: -(each.memory_bytes or 0))
        if len(found) > MOST_PROCESSES:
            card.fail(f"{len(found)} processes: only the {MOST_PROCESSES} with most memory count")
        return tuple(
            GpuProcess(
                pid=each.pid,
                memory_bytes=each.memory_bytes,
                core_percent=None if samples is None else samples.get(each.pid, 0.0),
                instance=uuids.get(each.instance, "") if each.instance is not None else "",
                cgroups=self._cgroups_of(each.pid),
            )
            for each in found[:MOST_PROCESSES]
        )

    def _samples(self, device: Handle, uuid: str) -> Mapping[int, float]:
        """pid -> percent of the multiprocessors since the last reading."""
        since_us = self._read_us.get(uuid, 0)
        if since_us > self._ahead_us():  # the clock was set back
            since_us = 0
        given = self._nvml.samples(device, since_us)
        ahead_us = self._ahead_us()
        found = [
            each
            for each in given
            if each.pid and each.sm_percent <= _WHOLE_PERCENT
            if since_us < each.time_us < ahead_us
        ]
        if not found:
            return {}
        newest_us = max(each.time_us for each in found)
        self._read_us[uuid] = newest_us
        if not since_us:
            found = [each for each in found if each.time_us > newest_us - _FIRST_US]
        return _shares(found)

    def _ahead_us(self) -> int:
        return int(self._host.time() * 1e6) + _AHEAD_US

    def _core_percent(
        self, card: _Card, device: Handle, samples: Mapping[int, float] | None
    ) -> float | None:
        """The sum of what processes use, as in the reference; where the driver does not say that,
        the share of time in which anything ran."""
        if samples is not None:
            return min(sum(samples.values()), float(_WHOLE_PERCENT))
        return card.ask(lambda: float(self._nvml.gpu_percent(device)))

    def _cgroups_of(self, pid: int) -> frozenset[str]:
        try:
            return cgroup_paths(self._host, pid, self._proc_root)
        except OSError:  # it has ended; the driver may list it for a while
            return self._cgroups.get(pid, frozenset())


def _shares(samples: list[Sample]) -> Mapping[int, float]:
    """NVML gives each process that ran one sample, which is a mean already (API reference;
    NVIDIA/go-nvml issue 51). Where a process has several, each is of one period, and a process
    without a sample was idle in it."""
    by_pid = defaultdict(list)
    for each in samples:
        by_pid[each.pid].append(each.sm_percent)
    are_periods = len(samples) > len(by_pid)
    periods = len({each.time_us for each in samples}) if are_periods else 1
    return {pid: sum(values) / periods for pid, values in by_pid.items()}


def _without_use(gpu: Gpu, health: Health) -> Gpu:
    return msgspec.structs.replace(
        gpu, health=health, used_bytes=None, core_percent=None, instances=()
    )
