"""How long block requests of latency-sensitive work take, and whose requests the device completed
meanwhile (eBPF; ``docs/concepts/blame.md``)."""

from __future__ import annotations

from koordlet.collectors.base import CollectorPart, Round, SeriesStore, SlowCollectorOptions
from koordlet.collectors.waits.block_source import FEATURE, BlockLook, BlockSource
from koordlet.collectors.waits.readings import BackgroundCollector, Readings
from koordlet.collectors.waits.series import Matrices, QuantileSeries
from koordlet.decision import metrics
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host


class BlockCollector(BackgroundCollector[BlockLook]):
    name = "disks"

    def __init__(
        self, host: Host, layout: Layout, store: SeriesStore, read_every_s: float = 10.0
    ) -> None:
        waits = Matrices(store, metrics.IO_WAIT)
        latencies = QuantileSeries(store, metrics.CONTAINER_IO_LATENCY)
        super().__init__(
            Readings(host, self.name, FEATURE, lambda _: BlockSource(host, layout), read_every_s),
            store,
            (waits, latencies),
        )
        self._waits = waits
        self._latencies = latencies

    def add(self, round_: Round, look: BlockLook) -> None:
        self.add_parts(round_, self._waits, look.rows)
        self._waits.busiest.add(round_, look.busiest)
        self._latencies.add(round_, look.slots)
        round_.skipped += look.skipped


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
