"""RDMA devices and the traffic of their ports (spec/metrics.md 2.15; D-14 mended).

Read in a thread: for many of these files a driver asks the firmware of its card.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from koordlet.collectors.base import CollectorPart, Machine, Round, SlowCollectorOptions
from koordlet.collectors.devices.series import Sample, Series, health_sample
from koordlet.decision import metrics
from koordlet.decision.devices import Inventory, RdmaDevice, RdmaPort
from koordlet.decision.snapshot import Capability
from koordlet.kernel.devices import outcomes
from koordlet.kernel.devices.aside import Aside
from koordlet.kernel.devices.rdma import (
    PortCounters,
    class_directory,
    read_counters,
    read_devices,
)
from koordlet.kernel.host import Host


class _Reading(NamedTuple):
    """``counters``: by device and port, as of ``at_s``."""

    at_s: float
    devices: tuple[RdmaDevice, ...]
    counters: Mapping[tuple[str, int], PortCounters]


class _Rates(NamedTuple):
    """Of a port, per second; None where two readings have no such counter."""

    received: float | None
    sent: float | None
    hardware: Mapping[str, float]


class RdmaCollector:
    """``inventory``: as of the last reading."""

    name = "rdma"
    optional = True

    def __init__(self, machine: Machine, interval_s: float = 10.0) -> None:
        self.interval_s = interval_s
        self._host = machine.host
        self._sys_root = machine.sys_root
        self._series = Series(machine.store)
        self._aside: Aside[_Reading] = Aside("rdma")
        self._begun_s = 0.0
        self._last: _Reading | None = None
        self.capabilities: tuple[Capability, ...] = ()
        self.inventory = Inventory()

    @property
    def has_ended(self) -> bool:
        return self._aside.has_ended

    def collect(self, round_: Round) -> None:
        """Raises TimeoutError while firmware hangs, OSError where sysfs refuses."""
        if self._aside.has_ended:
            self._take(round_)
        elif self._aside.runs:
            self._look(round_.now_s - self._begun_s)
        elif self._host.exists(class_directory(self._sys_root)):
            self._begun_s = round_.now_s
            self._aside.start(lambda: _read(self._host, self._sys_root))
        else:
            self.close()
            self.capabilities = (outcomes.no_rdma(self._sys_root),)

    def close(self) -> None:
        self._last, self.inventory = None, Inventory()
        self._series.close()

    def _look(self, waited_s: float) -> None:
        if waited_s > outcomes.ANSWERS_WITHIN_S:
            self.close()
            found = outcomes.rdma_hangs(waited_s)
            self.capabilities = (found,)
            raise TimeoutError(found.why)

    def _take(self, round_: Round) -> None:
        found, last = self._aside.take(), self._last
        self._last = found
        names = [each.name for each in found.devices]
        works = outcomes.rdma_works(names, self._aside.cpu_s)
        self.capabilities = (works if names else outcomes.no_rdma(self._sys_root),)
        rates = _rates(last, found) if last is not None else {}
        self.inventory = Inventory(rdma=tuple(_with_rates(each, rates) for each in found.devices))
        self._series.write(round_, _samples(found.devices, rates))


def _read(host: Host, sys_root: str) -> _Reading:
    devices = read_devices(host, sys_root)
    counters = {
        (each.device, each.port): each
        for device in devices
        for each in read_counters(host, device, sys_root)
    }
    return _Reading(host.monotonic(), devices, counters)


def _rates(last: _Reading, now: _Reading) -> dict[tuple[str, int], _Rates]:
    """A counter that is new, or counts backwards because its driver was loaded anew, has none."""
    elapsed_s = now.at_s - last.at_s
    if elapsed_s <= 0:
        return {}

    def rate(before: int | None, after: int | None) -> float | None:
        known = before is not None and after is not None and after >= before
        return (after - before) / elapsed_s if known else None  # type: ignore[operator]

    found = {}
    for key, after in now.counters.items():
        before = last.counters.get(key)
        if before is not None:
            hardware = {
                n: rate(before.hardware.get(n), value) for n, value in after.hardware.items()
            }
            found[key] = _Rates(
                rate(before.received_bytes, after.received_bytes),
                rate(before.sent_bytes, after.sent_bytes),
                {name: value for name, value in hardware.items() if value is not None},
            )
    return found


def _with_rates(device: RdmaDevice, rates: Mapping[tuple[str, int], _Rates]) -> RdmaDevice:
    def of(port: RdmaPort) -> RdmaPort:
        found = rates.get((device.name, port.number))
        if found is None:
            return port
        return msgspec.structs.replace(port, received_per_s=found.received, sent_per_s=found.sent)

    return msgspec.structs.replace(device, ports=tuple(map(of, device.ports)))


def _samples(
    devices: tuple[RdmaDevice, ...], rates: Mapping[tuple[str, int], _Rates]
) -> Iterator[Sample]:
    for device in devices:
        identity = device.place.bus_id or device.name
        yield from health_sample("rdma", device.minor, identity, device.health)
    for (device_name, port), found in rates.items():
        labels = (device_name, str(port))
        if found.received is not None:
            yield Sample(metrics.NODE_RDMA_RECEIVED, labels, found.received)
        if found.sent is not None:
            yield Sample(metrics.NODE_RDMA_SENT, labels, found.sent)
        for counter, value in found.hardware.items():
            yield Sample(metrics.NODE_RDMA_COUNTER, (*labels, counter), value)


COLLECTOR = CollectorPart(
    name=RdmaCollector.name,
    help="RDMA devices: health, and traffic and errors of their ports.",
    options=SlowCollectorOptions(),
    make=lambda machine, options: RdmaCollector(machine, options.interval_seconds),
    metrics=(
        metrics.NODE_RDMA_RECEIVED,
        metrics.NODE_RDMA_SENT,
        metrics.NODE_RDMA_COUNTER,
        metrics.NODE_DEVICE_HEALTHY,
    ),
)
