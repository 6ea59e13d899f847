"""How long interrupts hold up latency-sensitive work, in short windows: the programs would cost
much if they always ran (eBPF; ``docs/concepts/blame.md``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from koordlet.collectors.base import (
    CollectorOptions,
    CollectorPart,
    Interval,
    Round,
    SeriesStore,
)
from koordlet.collectors.waits.groups import Kind, Place
from koordlet.collectors.waits.names import Names
from koordlet.collectors.waits.readings import BackgroundCollector, Feature, Readings, Subjects
from koordlet.collectors.waits.series import Labels, ValueSeries
from koordlet.collectors.waits.suspicion import Recent
from koordlet.decision import metrics
from koordlet.decision.options import about
from koordlet.decision.snapshot import Capability
from koordlet.kernel.background import Pause
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.bpf.irq import Interrupted
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host

FEATURE = Feature(
    "bpf-interrupts", "how long interrupts hold up latency-sensitive work is not known"
)
_KINDS = ("softirq", "hardirq")

Times = Mapping[Labels, float]
"""By pod and kind, milliseconds a second."""


class InterruptSource:
    """See ``readings.Source``. ``look`` begins a window, ``finish`` ends it when it is over."""

    def __init__(self, host: Host, layout: Layout, window_s: float, every_s: float) -> None:
        """Raises OSError where the kernel or the machine lacks something."""
        root = layout.v1.get("cpu", layout.v2)
        assert root is not None  # a layout without v2 has controllers on v1
        self._host = host
        self._window_s = window_s
        self._every_s = every_s
        self._names = Names(host, root)
        self._interrupts = host.interrupts(by_cpu_controller="cpu" in layout.v1)
        self._watched: Mapping[int, Place] = {}
        self._before: Mapping[int, Interrupted] = {}
        self._began_s = 0.0
        self.goes_on = False
        self.costs: Mapping[str, Cost] = {}

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        return (
            FEATURE.there(
                "loaded programs for the tracepoints of interrupts",
                self.costs,
                self._interrupts.meter.unknown,
                self._interrupts.memory_bytes,
            ),
        )

    def others_ns(self) -> int:
        """Nothing that would be worth a closer look."""
        return 0

    def follow(self, subjects: Subjects, pause: Pause) -> None:
        """No culprits, so no names."""

    def look(self, subjects: Subjects, pause: Pause, recent: Recent | None = None) -> Times | None:
        if self.goes_on:
            return None
        self._names.list_victims(subjects, pause)
        if self._names.victims is not self._watched:
            self._watched = self._names.victims
            self._interrupts.watch(tuple(self._watched))
        self._before = self._interrupts.read(pause)
        self._interrupts.attach()
        self.goes_on = True
        self._began_s = self._host.monotonic()
        self._interrupts.meter.begin(self._began_s)
        return None

    def finish(self, pause: Pause) -> Times | None:
        now_s = self._host.monotonic()
        span_s = now_s - self._began_s
        if span_s < self._window_s:
            return None
        self.goes_on = False
        costs = self._interrupts.meter.end(now_s)
        self._interrupts.detach()
        share = span_s / max(self._every_s, span_s)
        self.costs = {
            name: Cost(cost.cores * share, cost.ns_per_run, cost.runs_per_s * share)
            for name, cost in costs.items()
        }
        found: dict[Labels, float] = {}
        nothing = Interrupted(0, 0)
        for cgroup, now in self._interrupts.read(pause).items():
            place = self._names.victims.get(cgroup)
            if place is None or place.group.kind is not Kind.POD:
                continue
            before = self._before.get(cgroup, nothing)
            for kind, ns, then in zip(_KINDS, now, before, strict=True):
                key = place.group.name, kind
                found[key] = found.get(key, 0.0) + (ns - then) / 1e6 / span_s
        return found

    def close(self) -> None:
        self._interrupts.close()


class InterruptCollector(BackgroundCollector[Times]):
    """A window ends with the first round after it. An alarm begins none."""

    name = "interrupts"

    def __init__(
        self,
        host: Host,
        layout: Layout,
        store: SeriesStore,
        window_s: float = 1.0,
        every_s: float = 60.0,
    ) -> None:
        times = ValueSeries(store, metrics.POD_IRQ_TIME)
        super().__init__(
            Readings(
                host,
                self.name,
                FEATURE,
                lambda _: InterruptSource(host, layout, window_s, every_s),
                every_s,
            ),
            store,
            (times,),
        )
        self._times = times

    def alarm(self) -> None: ...

    def add(self, round_: Round, look: Times) -> None:
        self._times.add(round_, look)


class InterruptOptions(CollectorOptions, frozen=True):
    interval_seconds: Interval = 60.0
    window_seconds: Annotated[
        Annotated[float, Meta(ge=0.1, le=60)],
        about("How long interrupts are measured each time; a window ends with a round."),
    ] = 1.0


COLLECTOR = CollectorPart(
    name=InterruptCollector.name,
    help="How long interrupts hold up latency-sensitive work (eBPF, in short windows).",
    options=InterruptOptions(),
    make=lambda machine, options: InterruptCollector(
        machine.host,
        machine.cgroups.layout,
        machine.store,
        options.window_seconds,
        options.interval_seconds,
    ),
    metrics=(metrics.POD_IRQ_TIME,),
)
