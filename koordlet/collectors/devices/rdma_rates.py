"""Counters of RDMA ports, and what becomes of them between two readings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from koordlet.collectors.devices.series import Sample, health_sample
from koordlet.decision import metrics
from koordlet.decision.devices import Inventory, RdmaDevice, RdmaPort
from koordlet.kernel.devices.rdma import PortCounters, read_counters, read_devices
from koordlet.kernel.host import Host


class Reading(NamedTuple):
    """``counters``: by device and port, as of ``at_s``."""

    at_s: float
    devices: tuple[RdmaDevice, ...]
    counters: Mapping[tuple[str, int], PortCounters]


class Rates(NamedTuple):
    """Of a port, per second; None where two readings have no such counter."""

    received: float | None
    sent: float | None
    others: Mapping[str, float]


def read(host: Host, sys_root: str) -> Reading:
    devices = read_devices(host, sys_root)
    counters = {
        (each.device, each.port): each
        for device in devices
        for each in read_counters(host, device, sys_root)
    }
    return Reading(host.monotonic(), devices, counters)


def rates(last: Reading, now: Reading) -> dict[tuple[str, int], Rates]:
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
            others = {n: rate(before.others.get(n), value) for n, value in after.others.items()}
            found[key] = Rates(
                rate(before.received_bytes, after.received_bytes),
                rate(before.sent_bytes, after.sent_bytes),
                {name: value for name, value in others.items() if value is not None},
            )
    return found


def inventory_of(
    devices: tuple[RdmaDevice, ...], rates: Mapping[tuple[str, int], Rates]
) -> Inventory:
    return Inventory(rdma=tuple(_with_rates(each, rates) for each in devices))


def _with_rates(device: RdmaDevice, rates: Mapping[tuple[str, int], Rates]) -> RdmaDevice:
    def of(port: RdmaPort) -> RdmaPort:
        found = rates.get((device.name, port.number))
        if found is None:
            return port
        return msgspec.structs.replace(port, received_per_s=found.received, sent_per_s=found.sent)

    return msgspec.structs.replace(device, ports=tuple(map(of, device.ports)))


def samples(
    devices: tuple[RdmaDevice, ...], rates: Mapping[tuple[str, int], Rates]
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
        for counter, value in found.others.items():
            yield Sample(metrics.NODE_RDMA_COUNTER, (*labels, counter), value)
