"""The part of the collector that may block, for its thread."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from koordlet.collectors.waits.figures import Row, added, growth, rows
from koordlet.collectors.waits.groups import (
    Group,
    Kind,
    Place,
    group_of,
    paths_of,
    prefixes,
    victims,
)
from koordlet.collectors.waits.suspicion import Recent
from koordlet.decision.snapshot import Application, Pod
from koordlet.kernel.background import Pause
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.bpf.run_queue import IDLE, OLDER, SLOTS, THROTTLED, Reading
from koordlet.kernel.cgroup.ids import ids_below
from koordlet.kernel.cgroup.layout import Layout, passed_on
from koordlet.kernel.host import Host

LOOK_AGAIN_S = 300.0
"""After so long it is listed anew which cgroups containers have made in theirs."""
MEASURE_EVERY_S = 10.0
ROOT_ID = 1
_NOTHING = Reading({}, {}, 0)
_SPECIAL = {
    IDLE: Group(Kind.IDLE, ""),
    THROTTLED: Group(Kind.THROTTLED, ""),
    OLDER: Group(Kind.OLDER, ""),
    ROOT_ID: Group(Kind.SYSTEM, "/"),
}
_GONE = Group(Kind.GONE, "")
_NO_WAITS = (0,) * SLOTS

Subjects = tuple[tuple[Pod, ...], tuple[Application, ...]]


@dataclass(frozen=True)
class Look:
    """What happened since the look before. ``rows``: by victim, which are all in it; none where it
    is not measured who makes whom wait. ``slots``: how many waits of each length, by container."""

    rows: Mapping[Group, Row]
    slots: Mapping[str, tuple[int, ...]]
    costs: Mapping[str, Cost] = field(default_factory=dict)
    unwatched: int = 0
    """Cgroups that found no room among the watched ones."""
    lost: int = 0
    """Waits that found no room in the kernel's maps."""
    has_matrix: bool = True


class Watcher:
    """Made by ``open_watcher``; not for use from several threads."""

    def __init__(self, host: Host, layout: Layout, pause: Pause) -> None:
        """Raises OSError where the kernel or the machine lacks something."""
        by_cpu = "cpu" in layout.v1 or "cpu" in passed_on(host, layout)
        root = layout.reference_root if by_cpu else layout.v2
        assert root is not None  # a layout without cpu on v1 has v2
        self._host = host
        self._root = root
        self._queue = host.run_queue(by_cpu_controller=by_cpu, pause=pause)
        self._meter = self._queue.meter
        self._costs: Mapping[str, Cost] = {}
        self._measured_s = -math.inf
        self._subjects: Subjects | None = None
        self._listed_s = -math.inf
        self._victims: dict[int, Place] = {}
        self._groups: dict[int, Group] = {}
        self._unwatched = 0
        self._last = _NOTHING
        self._last_s = -math.inf
        self._others_ns = 0

    def look(self, subjects: Subjects, pause: Pause, recent: Recent | None = None) -> Look:
        """``recent``: give what of it fell into so short a time, where all the rest was calm.
        Raises OSError where the kernel refuses."""
        now_s = self._host.monotonic()
        self.measure()
        if subjects != self._subjects or now_s - self._listed_s >= LOOK_AGAIN_S:
            self._list(subjects, now_s, pause)
        reading = self._queue.read(pause)
        span_s = now_s - self._last_s
        before, self._last, self._last_s = self._last, reading, now_s
        others_ns = self._queue.others_ns()
        part_ns, self._others_ns = others_ns - self._others_ns, others_ns
        if now_s - self._measured_s >= MEASURE_EVERY_S:
            self._measured_s = now_s
            self._meter.begin(now_s)
        everyone: dict[Group, Row] = {}
        if self._queue.has_matrix:  # else nothing is known, which is not a 0
            everyone = {place.group: {} for place in self._victims.values()}
        if not 0 < span_s < math.inf:
            return self._look({}, {}, reading)
        grown = growth(reading.waits_ns, before.waits_ns)
        self._resolve({culprit for row in grown.values() for culprit in row}, pause)
        victim_of = {cgroup: place.group for cgroup, place in self._victims.items()}
        if recent is not None:
            # Waits before it are as good as none: all are taken to be in the same proportions.
            span_s = recent.span_s * max(part_ns / max(recent.ns, 1), 1.0)
        found = rows(grown, victim_of, lambda cgroup: self._groups.get(cgroup, _GONE), span_s)
        slots = self._slots(reading, before)
        return self._look(everyone | found, slots, reading)

    def _look(
        self, found: dict[Group, Row], slots: dict[str, tuple[int, ...]], reading: Reading
    ) -> Look:
        has_matrix = self._queue.has_matrix
        return Look(found, slots, self._costs, self._unwatched, reading.lost, has_matrix)

    def measure(self) -> None:
        """End a measurement of our programs, if one goes on."""
        if self._meter.measuring:
            self._costs = self._meter.end(self._host.monotonic()) or self._costs

    @property
    def measuring(self) -> bool:
        return self._meter.measuring

    def others_ns(self) -> int:
        """Waits of all victims because of others; takes microseconds, for any thread."""
        return self._queue.others_ns()

    def close(self) -> None:
        self._queue.close()

    def _list(self, subjects: Subjects, now_s: float, pause: Pause) -> None:
        found: dict[int, Place] = {}
        for place in victims(*subjects):
            ids = ids_below(self._host, f"{self._root}/{place.cgroup}", pause)
            found |= dict.fromkeys(ids, place)
        self._unwatched = self._queue.watch(found.keys())
        if subjects != self._subjects:
            self._groups = dict(_SPECIAL)
        self._groups |= {cgroup: place.group for cgroup, place in found.items()}
        self._victims, self._subjects, self._listed_s = found, subjects, now_s

    def _resolve(self, culprits: set[int], pause: Pause) -> None:
        unknown = frozenset(culprits - self._groups.keys())
        if unknown and self._subjects is not None:
            of_prefix = prefixes(*self._subjects)
            for cgroup, path in paths_of(self._host, self._root, unknown, pause).items():
                self._groups[cgroup] = group_of(path, of_prefix)

    def _slots(self, reading: Reading, before: Reading) -> dict[str, tuple[int, ...]]:
        by_container: dict[str, list[tuple[int, ...]]] = {}
        for cgroup, delays in reading.delays.items():
            place = self._victims.get(cgroup)
            if place is None or not place.container_id:
                continue
            last = before.delays.get(cgroup)
            slots = delays.slots
            if last is delays:
                slots = _NO_WAITS
            elif last is not None and delays.waits >= last.waits:
                slots = tuple(now - then for now, then in zip(slots, last.slots, strict=True))
            by_container.setdefault(place.container_id, []).append(slots)
        return {container: added(parts) for container, parts in by_container.items()}
