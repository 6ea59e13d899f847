"""How long latency-sensitive work waits for memory and who took it, and for which pods TCP sends
segments again (eBPF; ``docs/concepts/blame.md``)."""

from __future__ import annotations

from koordlet.collectors.base import CollectorPart, Round, SeriesStore, SlowCollectorOptions
from koordlet.collectors.stalls.memory_source import FEATURE, MemoryLook, MemorySource
from koordlet.collectors.stalls.readings import Readings
from koordlet.collectors.stalls.series import Matrices, ValueSeries
from koordlet.decision import metrics
from koordlet.decision.snapshot import Capability
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host


class MemoryCollector:
    name = "stalls"
    optional = True
    interval_s = 1.0
    """What was read in the background comes with the next round."""

    def __init__(
        self, host: Host, layout: Layout, store: SeriesStore, read_every_s: float = 10.0
    ) -> None:
        self._readings: Readings[MemoryLook] = Readings(
            host, self.name, FEATURE, lambda: MemorySource(host, layout), read_every_s
        )
        self._waits = Matrices(store, metrics.MEMORY_WAIT)
        self._retransmits = ValueSeries(store, metrics.POD_TCP_RETRANSMITS)

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
        if look is not None:
            self._waits.add(round_, look.rows)
            self._retransmits.add(round_, look.retransmits)

    def close(self) -> None:
        self._readings.close()
        self._waits.close()
        self._retransmits.close()


COLLECTOR = CollectorPart(
    name=MemoryCollector.name,
    help="Who makes latency-sensitive work wait for memory, and what TCP sends again (eBPF).",
    options=SlowCollectorOptions(),
    make=lambda machine, options: MemoryCollector(
        machine.host, machine.cgroups.layout, machine.store, options.interval_seconds
    ),
    metrics=(*metrics.MEMORY_WAIT.metrics, metrics.POD_TCP_RETRANSMITS),
)
