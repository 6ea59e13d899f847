"""How long block requests of latency-sensitive work take, and whose requests the device completed
meanwhile (eBPF; ``docs/concepts/blame.md``)."""

from __future__ import annotations

from koordlet.collectors.base import CollectorPart, Round, SeriesStore, SlowCollectorOptions
from koordlet.collectors.stalls.block_source import FEATURE, BlockLook, BlockSource
from koordlet.collectors.stalls.readings import Readings
from koordlet.collectors.stalls.series import Matrices, QuantileSeries
from koordlet.decision import metrics
from koordlet.decision.snapshot import Capability
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host


class BlockCollector:
    name = "disks"
    optional = True
    interval_s = 1.0
    """What was read in the background comes with the next round."""

    def __init__(
        self, host: Host, layout: Layout, store: SeriesStore, read_every_s: float = 10.0
    ) -> None:
        self._readings: Readings[BlockLook] = Readings(
            host, self.name, FEATURE, lambda: BlockSource(host, layout), read_every_s
        )
        self._waits = Matrices(store, metrics.IO_WAIT)
        self._latencies = QuantileSeries(store, metrics.CONTAINER_IO_LATENCY)

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        return self._readings.capabilities

    @property
    def costs(self) -> dict[str, Cost]:
        return self._readings.costs

    def alarm(self) -> None:
        self._readings.look_closely()

    def collect(self, round_: Round) -> None:
        """Raises OSError where the kernel refused a reading."""
        look = self._readings.take(round_)
        if look is None:
            return
        self._waits.add(round_, look.rows)
        self._latencies.add(round_, look.slots)
        if look.unwatched:
            round_.skipped.append(f"{look.unwatched} cgroups are beyond the bound of watched ones")

    def close(self) -> None:
        self._readings.close()
        self._waits.close()
        self._latencies.close()


COLLECTOR = CollectorPart(
    name=BlockCollector.name,
    help="Whose disk requests make latency-sensitive work wait (eBPF), each second while it "
    "suffers.",
    options=SlowCollectorOptions(),
    make=lambda machine, options: BlockCollector(
        machine.host, machine.cgroups.layout, machine.store, options.interval_seconds
    ),
    metrics=(*metrics.IO_WAIT.metrics, metrics.CONTAINER_IO_LATENCY),
)
