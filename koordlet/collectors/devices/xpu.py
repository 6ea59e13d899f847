"""Accelerators that device daemons describe in files
(docs/reference/metrics.md 2.15; D-14 mended)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from koordlet.collectors.base import CollectorPart, Machine, Round, SlowCollectorOptions
from koordlet.collectors.devices.series import Series, health_sample
from koordlet.decision import metrics
from koordlet.decision.options import about, absolute
from koordlet.decision.snapshot import Capability
from koordlet.kernel.devices import outcomes
from koordlet.protocol.errors import Problem

if TYPE_CHECKING:  # loaded where there are such files
    from koordlet.decision.devices import Inventory
    from koordlet.kernel.devices.xpu import XpuReader

DIRECTORY = "/var/run/koordlet/xpu-device-infos"


class XpuOptions(SlowCollectorOptions, frozen=True):
    directory: Annotated[str, about("Files that describe accelerators, one per device daemon.")] = (
        DIRECTORY
    )


def _check(options: XpuOptions) -> Iterator[Problem]:
    yield from absolute(options.directory, "directory")


class XpuCollector:
    """``inventory``: as of the last round, None where there are no such files."""

    name = "xpu"
    optional = True

    def __init__(self, machine: Machine, directory: str, interval_s: float = 10.0) -> None:
        self.interval_s = interval_s
        self._host = machine.host
        self._directory = directory
        self._reader: XpuReader | None = None
        self._series = Series(machine.store)
        self.capabilities: tuple[Capability, ...] = ()
        self.inventory: Inventory | None = None

    def collect(self, round_: Round) -> None:
        """Raises OSError where the directory cannot be read."""
        if not self._host.exists(self._directory):
            self.close()
            self.capabilities = (outcomes.no_xpu(self._directory),)
            return
        if self._reader is None:
            from koordlet.kernel.devices.xpu import XpuReader

            self._reader = XpuReader(self._host, self._directory)
        from koordlet.decision.devices import Inventory

        began_s = time.thread_time()
        try:
            found = self._reader.read()
        except OSError as error:
            self.close()
            self.capabilities = (outcomes.xpu_unread(error),)
            raise
        cpu_s = time.thread_time() - began_s
        self.capabilities = (outcomes.xpu_works(len(found.xpus), self._directory, cpu_s),)
        round_.skipped += found.refused
        self.inventory = Inventory(xpus=found.xpus, refused=found.refused)
        samples = (health_sample("xpu", each.minor, each.uuid, each.health) for each in found.xpus)
        self._series.write(round_, [sample for each in samples for sample in each])

    def close(self) -> None:
        self.inventory = None
        self._series.close()


COLLECTOR = CollectorPart(
    name=XpuCollector.name,
    help="Accelerators that device daemons describe in files, and their health.",
    options=XpuOptions(),
    check=_check,
    make=lambda machine, options: XpuCollector(
        machine, options.directory, options.interval_seconds
    ),
    metrics=(metrics.NODE_DEVICE_HEALTHY,),
)
