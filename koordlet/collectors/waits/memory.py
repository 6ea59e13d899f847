"""How long latency-sensitive work waits for memory and who took it, and for which pods TCP sends
segments again (eBPF; ``docs/concepts/blame.md``)."""

from __future__ import annotations

from koordlet.collectors.base import CollectorPart, Round, SeriesStore, SlowCollectorOptions
from koordlet.collectors.waits.memory_source import FEATURE, MemoryLook, MemorySource
from koordlet.collectors.waits.readings import BackgroundCollector, Readings
from koordlet.collectors.waits.series import Matrices, ValueSeries
from koordlet.decision import metrics
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host


class MemoryCollector(BackgroundCollector[MemoryLook]):
    name = "stalls"

    def __init__(
        self, host: Host, layout: Layout, store: SeriesStore, read_every_s: float = 10.0
    ) -> None:
        waits = Matrices(store, metrics.MEMORY_WAIT)
        retransmits = ValueSeries(store, metrics.POD_TCP_RETRANSMITS)
        super().__init__(
            Readings(host, self.name, FEATURE, lambda _: MemorySource(host, layout), read_every_s),
            store,
            (waits, retransmits),
        )
        self._waits = waits
        self._retransmits = retransmits

    def add(self, round_: Round, look: MemoryLook) -> None:
        self.add_parts(round_, self._waits, look.rows)
        self._waits.busiest.add(round_, look.busiest)
        self._retransmits.add(round_, look.retransmits)
        round_.skipped += look.skipped


COLLECTOR = CollectorPart(
    name=MemoryCollector.name,
    help="Who makes latency-sensitive work wait for memory, and what TCP sends again (eBPF).",
    options=SlowCollectorOptions(),
    make=lambda machine, options: MemoryCollector(
        machine.host, machine.cgroups.layout, machine.store, options.interval_seconds
    ),
    metrics=(*metrics.MEMORY_WAIT.metrics, metrics.POD_TCP_RETRANSMITS),
)
