"""RDMA devices and the traffic of their ports (docs/reference/metrics.md 2.15; D-14 mended).

Read in a thread: for many of these files a driver asks the firmware of its card.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from koordlet.collectors.base import CollectorPart, Machine, Round, SlowCollectorOptions
from koordlet.collectors.devices.series import Series
from koordlet.decision import metrics
from koordlet.decision.snapshot import Capability
from koordlet.kernel.devices import outcomes
from koordlet.kernel.devices.aside import Aside
from koordlet.kernel.devices.outcomes import class_directory

if TYPE_CHECKING:  # loaded where there is RDMA
    from koordlet.collectors.devices.rdma_rates import Reading
    from koordlet.decision.devices import Inventory


class RdmaCollector:
    """``inventory``: as of the last reading, None before it."""

    name = "rdma"
    optional = True

    def __init__(self, machine: Machine, interval_s: float = 10.0) -> None:
        self.interval_s = interval_s
        self._host = machine.host
        self._sys_root = machine.sys_root
        self._series = Series(machine.store)
        self._aside: Aside[Reading] = machine.asides.rdma
        self._is_late = False
        self._reads = False
        """The call of ``_aside`` is a reading of this collector, not yet taken."""
        self._last: Reading | None = None
        self.capabilities: tuple[Capability, ...] = ()
        self.inventory: Inventory | None = None

    @property
    def has_ended(self) -> bool:
        if self._aside.has_ended:
            return self._reads
        return not self._is_late and self._aside.is_late(self._host.monotonic())

    def collect(self, round_: Round) -> None:
        """Raises TimeoutError while firmware hangs, OSError where sysfs refuses."""
        if self._aside.runs and not self._aside.has_ended:
            self._look(round_.now_s)
        elif self._reads:
            self._take(round_)
        elif self._host.exists(class_directory(self._sys_root)):
            self._reads, self._is_late = True, False
            self._aside.start(self._read, round_.now_s)
        else:
            self._forget()
            self.capabilities = (outcomes.no_rdma(self._sys_root),)

    def close(self) -> None:
        self._reads = self._is_late = False
        self._forget()

    def _forget(self) -> None:
        self._last, self.inventory = None, None
        self._series.close()

    def _read(self) -> Reading:
        from koordlet.collectors.devices.rdma_rates import read

        return read(self._host, self._sys_root)

    def _look(self, now_s: float) -> None:
        if self._aside.is_late(now_s):
            self._is_late = True
            self._forget()
            found = outcomes.rdma_hangs(now_s - self._aside.begun_s)
            self.capabilities = (found,)
            raise TimeoutError(found.why)

    def _take(self, round_: Round) -> None:
        from koordlet.collectors.devices.rdma_rates import inventory_of, rates, samples

        self._reads = False
        found, last = self._aside.take(), self._last
        self._last = found
        names = [each.name for each in found.devices]
        works = outcomes.rdma_works(names, self._aside.cpu_s)
        self.capabilities = (works if names else outcomes.no_rdma(self._sys_root),)
        since = rates(last, found) if last is not None else {}
        self.inventory = inventory_of(found.devices, since)
        self._series.write(round_, samples(found.devices, since))


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
