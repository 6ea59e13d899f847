"""Stalls for memory and segments sent again, for the thread that reads them."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass

from koordlet.collectors.waits.figures import Row, rows
from koordlet.collectors.waits.groups import Group, Kind, victims
from koordlet.collectors.waits.measure import Measurements
from koordlet.collectors.waits.names import Names
from koordlet.collectors.waits.readings import Feature, Spans, Subjects
from koordlet.collectors.waits.shares import OLDER, blamed, stalls_since
from koordlet.collectors.waits.suspicion import Recent
from koordlet.decision.snapshot import Capability
from koordlet.kernel.background import Pause
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.bpf.need import NeedError
from koordlet.kernel.bpf.stalls import Reading
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host

FEATURE = Feature(
    "bpf-memory-stalls", "who makes latency-sensitive work wait for memory is not known"
)
TCP_FEATURE = Feature("bpf-tcp-retransmits", "for which pods TCP sends segments again is not known")


@dataclass(frozen=True)
class MemoryLook:
    """``rows``: by victim, which are all in it. ``retransmits``: segments a second, by uid of each
    pod that has a cgroup in the unified hierarchy."""

    rows: Mapping[Group, Row]
    retransmits: Mapping[tuple[str, ...], float]


class MemorySource:
    """See ``readings.Source``."""

    def __init__(self, host: Host, layout: Layout) -> None:
        """Raises OSError where the kernel or the machine lacks something."""
        root = layout.v1.get("memory", layout.v2)
        assert root is not None  # a layout without v2 has controllers on v1
        self._host = host
        self._names = Names(host, root, {OLDER: Group(Kind.OLDER, "")})
        self._sockets = Names(host, layout.v2) if layout.v2 is not None else None
        self._stalls = host.stalls(by_memory_controller="memory" in layout.v1)
        self._measurements = Measurements(self._stalls.meter)
        self._last = Reading({}, {})
        self._spans = Spans()
        self._tcp = _tcp(layout)

    @property
    def costs(self) -> Mapping[str, Cost]:
        return self._measurements.costs

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        why = "attached programs to the tracepoints of reclaim"
        return FEATURE.there(why, self.costs, self._measurements.unknown), self._tcp

    @property
    def goes_on(self) -> bool:
        return self._measurements.goes_on

    def others_ns(self) -> int:
        return self._stalls.others_ns()

    def look(
        self, subjects: Subjects, pause: Pause, recent: Recent | None = None
    ) -> MemoryLook | None:
        now_s = self._host.monotonic()
        self._measurements.end(now_s)
        reading = self._stalls.read(pause)
        before, self._last = self._last, reading
        span_s = self._spans.next_s(now_s, self._stalls.others_ns(), recent)
        self._measurements.begin(now_s)
        if span_s is None:
            return None
        everyone: dict[Group, Row] = {place.group: {} for place in victims(*subjects)}
        grown = blamed(stalls_since(reading.memory, before.memory))
        found: dict[Group, Row] = {}
        if grown:
            self._names.list(subjects, pause)
            groups = self._names.of({each for row in grown.values() for each in row}, pause)
            found = rows(grown, self._names.groups(), groups.__getitem__, span_s)
        again = self._again(subjects, reading.retransmits, before.retransmits, pause)
        return MemoryLook(everyone | found, {(uid,): n / span_s for uid, n in again.items()})

    def finish(self, pause: Pause) -> None:
        self._measurements.end(self._host.monotonic())

    def close(self) -> None:
        self._stalls.close()

    def _again(
        self, subjects: Subjects, now: Mapping[int, int], before: Mapping[int, int], pause: Pause
    ) -> dict[str, int]:
        """Segments since the look before, by uid of pods."""
        if self._sockets is None:
            return {}
        self._sockets.list(subjects, pause)
        found: dict[str, int] = {}
        for cgroup, place in self._sockets.victims.items():
            if place.group.kind is Kind.POD:
                count, last = now.get(cgroup, 0), before.get(cgroup, 0)
                since = count - last if count >= last else count
                found[place.group.name] = found.get(place.group.name, 0) + since
        return found


def _tcp(layout: Layout) -> Capability:
    if layout.v2 is not None:
        return TCP_FEATURE.there(f"sockets belong to cgroups in {layout.v2}", {})
    why = "sockets know the unified hierarchy alone, which is not mounted"
    need = NeedError(errno.ENOENT, why, "/proc/self/mountinfo", "mount cgroup2")
    return TCP_FEATURE.missing(need)
