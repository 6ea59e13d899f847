"""Waits of latency-sensitive work for a CPU, for the thread that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koordlet.collectors.waits.figures import Row, added, growth, rows
from koordlet.collectors.waits.groups import Group, Kind
from koordlet.collectors.waits.names import Names
from koordlet.collectors.waits.program_source import ProgramSource
from koordlet.collectors.waits.readings import NEW_KERNEL, Feature, Subjects
from koordlet.collectors.waits.series import Labels
from koordlet.decision.snapshot import Capability
from koordlet.kernel.background import Pause
from koordlet.kernel.bpf.run_queue import IDLE, OLDER, SLOTS, THROTTLED, Reading
from koordlet.kernel.cgroup.layout import Layout, passed_on
from koordlet.kernel.host import Host

FEATURE = Feature(
    "bpf-run-queue",
    "who makes latency-sensitive work wait for a CPU is not known (koordlet blame)",
)
BCC_FEATURE = Feature("bcc-run-queue", FEATURE.without)
"""How long tasks wait, and not for whom; where the kernel has no BTF."""
_NO_MATRIX = (
    "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF); through BCC it is measured how long tasks of "
    "a container wait (histogram alone), not who makes whom wait"
)
_SPECIAL = {
    IDLE: Group(Kind.IDLE, ""),
    THROTTLED: Group(Kind.THROTTLED, ""),
    OLDER: Group(Kind.OLDER, ""),
}
_NO_WAITS = (0,) * SLOTS


@dataclass(frozen=True)
class RunQueueLook:
    """``rows``: by victim, which are all in it; none where it is not measured who makes whom wait.
    ``slots``: how many waits of each length, by container."""

    rows: Mapping[Group, Row]
    slots: Mapping[Labels, tuple[int, ...]]
    unwatched: int
    """Cgroups that found no room among the watched ones."""
    lost: int
    """Waits that found no room in the kernel's maps."""


class RunQueueSource(ProgramSource[Reading, RunQueueLook]):
    """Who makes whom wait for a CPU."""

    def __init__(self, host: Host, layout: Layout, pause: Pause) -> None:
        """Raises OSError where the kernel or the machine lacks something."""
        by_cpu = "cpu" in layout.v1 or "cpu" in passed_on(host, layout)
        root = layout.reference_root if by_cpu else layout.v2
        assert root is not None  # a layout without cpu on v1 has v2
        self._names = Names(host, root, _SPECIAL)
        self._queue = host.run_queue(by_cpu_controller=by_cpu, pause=pause)
        super().__init__(host, self._queue)
        self._unwatched = 0

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        attached = "attached programs to the scheduler's tracepoints"
        if self._queue.has_matrix:
            return (FEATURE.there(attached, self.costs, self.cost_unknown),)
        return (
            Capability(FEATURE.name, False, _NO_MATRIX, FEATURE.without, NEW_KERNEL),
            BCC_FEATURE.there(f"compiled with BCC: {attached}", self.costs, self.cost_unknown),
        )

    def watch(self, subjects: Subjects, pause: Pause) -> None:
        if self._names.list(subjects, pause):
            self._unwatched = self._queue.watch(self._names.victims.keys())

    def since(
        self, before: Reading, reading: Reading, span_s: float, subjects: Subjects, pause: Pause
    ) -> RunQueueLook:
        found: dict[Group, Row] = {}
        if self._queue.has_matrix:  # else nothing is known, which is not a 0
            grown = growth(reading.waits_ns, before.waits_ns)
            groups = self._names.of({each for row in grown.values() for each in row}, pause)
            victim_of = self._names.groups()
            everyone: dict[Group, Row] = {group: {} for group in victim_of.values()}
            found = everyone | rows(grown, victim_of, groups.__getitem__, span_s)
        return RunQueueLook(found, self._slots(reading, before), self._unwatched, reading.lost)

    def _slots(self, reading: Reading, before: Reading) -> dict[Labels, tuple[int, ...]]:
        by_container: dict[str, list[tuple[int, ...]]] = {}
        for cgroup, delays in reading.delays.items():
            place = self._names.victims.get(cgroup)
            if place is None or not place.container_id:
                continue
            last = before.delays.get(cgroup)
            slots = delays.slots
            if last is delays:
                slots = _NO_WAITS
            elif last is not None and delays.waits >= last.waits:
                slots = tuple(now - then for now, then in zip(slots, last.slots, strict=True))
            by_container.setdefault(place.container_id, []).append(slots)
        return {(container,): added(parts) for container, parts in by_container.items()}
