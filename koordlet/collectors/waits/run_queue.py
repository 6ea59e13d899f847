"""Who makes latency-sensitive work wait for a CPU, and how long its tasks wait (eBPF on the
scheduler's tracepoints; ``docs/concepts/blame.md``)."""

from __future__ import annotations

from koordlet.collectors.base import CollectorPart, Round, SeriesStore, SlowCollectorOptions
from koordlet.collectors.waits.readings import BackgroundCollector, Readings
from koordlet.collectors.waits.run_queue_source import FEATURE, RunQueueLook, RunQueueSource
from koordlet.collectors.waits.series import Matrices, QuantileSeries
from koordlet.collectors.waits.suspicion import CPU_MS_PER_S
from koordlet.decision import metrics
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host


class RunQueueCollector(BackgroundCollector[RunQueueLook]):
    name = "waits"

    def __init__(
        self, host: Host, layout: Layout, store: SeriesStore, read_every_s: float = 10.0
    ) -> None:
        waits = Matrices(store, metrics.CPU_WAIT)
        latencies = QuantileSeries(store, metrics.CONTAINER_RUN_QUEUE_LATENCY)
        super().__init__(
            Readings(
                host,
                self.name,
                FEATURE,
                lambda pause: RunQueueSource(host, layout, pause),
                read_every_s,
                CPU_MS_PER_S,
            ),
            store,
            (waits, latencies),
        )
        self._waits = waits
        self._latencies = latencies

    def add(self, round_: Round, look: RunQueueLook) -> None:
        self.add_parts(round_, self._waits, look.rows)
        self._waits.busiest.add(round_, look.busiest)
        self._latencies.add(round_, look.slots)
        round_.skipped += look.skipped


COLLECTOR = CollectorPart(
    name=RunQueueCollector.name,
    help="Who makes latency-sensitive work wait for a CPU (eBPF), each second while it suffers.",
    options=SlowCollectorOptions(),
    make=lambda machine, options: RunQueueCollector(
        machine.host, machine.cgroups.layout, machine.store, options.interval_seconds
    ),
    metrics=(*metrics.CPU_WAIT.metrics, metrics.CONTAINER_RUN_QUEUE_LATENCY),
)
