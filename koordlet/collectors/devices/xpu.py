"""Accelerators that device daemons describe in files (spec/metrics.md 2.15; D-14 mended)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from koordlet.collectors.base import CollectorPart, Machine, Round, SlowCollectorOptions
from koordlet.collectors.devices.series import Series, health_sample
from koordlet.decision import metrics
from koordlet.decision.devices import Inventory
from koordlet.decision.options import about, absolute
from koordlet.decision.snapshot import Capability
from koordlet.kernel.devices.xpu import DIRECTORY, XpuReader
from koordlet.protocol.errors import Problem


class XpuOptions(SlowCollectorOptions, frozen=True):
    directory: Annotated[str, about("Files that describe accelerators, one per device daemon.")] = (
        DIRECTORY
    )


def _check(options: XpuOptions) -> Iterator[Problem]:
    yield from absolute(options.directory, "directory")


class XpuCollector:
    """``inventory``: as of the last round."""

    name = "xpu"
    optional = True

    def __init__(self, machine: Machine, directory: str, interval_s: float = 10.0) -> None:
        self.interval_s = interval_s
        self._reader = XpuReader(machine.host, directory)
        self._series = Series(machine.store)
        self.capabilities: tuple[Capability, ...] = ()
        self.inventory = Inventory()

    def collect(self, round_: Round) -> None:
        """Raises OSError where the directory cannot be read."""
        found = self._reader.read()
        round_.skipped += found.refused
        self.inventory = Inventory(xpus=found.xpus, refused=found.refused)
        samples = (health_sample("xpu", each.minor, each.uuid, each.health) for each in found.xpus)
        self._series.write(round_, [sample for each in samples for sample in each])

    def close(self) -> None:
        self.inventory = Inventory()
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
