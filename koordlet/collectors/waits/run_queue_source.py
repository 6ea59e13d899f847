"""Waits of latency-sensitive work for a CPU, for the thread that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koordlet.collectors.waits.figures import Part, PartRows, Rows, added, growth, rows, slots_since
from koordlet.collectors.waits.groups import Group, Kind, Place
from koordlet.collectors.waits.names import Names, left_out
from koordlet.collectors.waits.program_source import ProgramSource, WaitLook
from koordlet.collectors.waits.readings import Feature, Subjects
from koordlet.collectors.waits.series import Labels
from koordlet.decision.snapshot import Capability
from koordlet.kernel.background import Pause
from koordlet.kernel.bpf.need import NEW_KERNEL
from koordlet.kernel.bpf.run_queue import IDLE, KERNEL, OLDER, THROTTLED, Reading
from koordlet.kernel.cgroup.layout import Layout, passed_on
from koordlet.kernel.host import Host

FEATURE = Feature(
    "bpf-run-queue",
    "who makes latency-sensitive work wait for a CPU is not known (koordlet blame)",
)
BCC_FEATURE = Feature("bcc-run-queue", FEATURE.without)
"""How long tasks wait, and not for whom; where the kernel has no BTF."""
_NO_MATRIX = (
    "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF) or is older than 5.12; through BCC it is "
    "measured how long tasks of a container wait (histogram alone), not who makes whom wait"
)
_SPECIAL = {
    IDLE: Group(Kind.IDLE, ""),
    KERNEL: Group(Kind.KERNEL, ""),
    THROTTLED: Group(Kind.THROTTLED, ""),
    OLDER: Group(Kind.OLDER, ""),
}


@dataclass(frozen=True)
class RunQueueLook(WaitLook):
    """No rows of a victim where it is not measured who makes whom wait. ``slots``: how many waits
    of each length, by container."""

    slots: Mapping[Labels, tuple[int, ...]]


class RunQueueSource(ProgramSource[Reading, RunQueueLook]):
    """Who makes whom wait for a CPU."""

    def __init__(self, host: Host, layout: Layout, pause: Pause) -> None:
        """Raises OSError where the kernel or the machine lacks something."""
        by_cpu = "cpu" in layout.v1 or "cpu" in passed_on(host, layout)
        root = layout.reference_root if by_cpu else layout.v2
        assert root is not None  # a layout without cpu on v1 has v2
        self._queue = host.run_queue(by_cpu_controller=by_cpu, pause=pause)
        super().__init__(host, layout, Names(host, root, _SPECIAL), self._queue)
        self._watched: Mapping[int, Place] = {}
        self._unwatched = 0

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        attached = "attached programs to the scheduler's tracepoints"
        if self._queue.has_matrix:
            return (self.there(FEATURE, attached),)
        return (
            Capability(FEATURE.name, False, _NO_MATRIX, FEATURE.without, NEW_KERNEL),
            self.there(BCC_FEATURE, f"compiled with BCC: {attached}"),
        )

    def watch(self, subjects: Subjects, pause: Pause) -> None:
        self._names.list_victims(subjects, pause)
        if self._names.victims is not self._watched:
            self._watched = self._names.victims
            self._unwatched = self._queue.watch(tuple(self._watched))

    def since(
        self,
        before: Reading,
        reading: Reading,
        times: tuple[Part, ...],
        subjects: Subjects,
        pause: Pause,
    ) -> RunQueueLook:
        found = tuple(PartRows(part.span_s, {}) for part in times)
        if self._queue.has_matrix:  # else nothing is known, which is not a 0
            grown = growth(reading.waits_ns, before.waits_ns)
            culprits = {each for row in grown.values() for each in row}
            culprit_of = self._names.of(culprits, subjects, pause).__getitem__
            victim_of = self._names.groups()
            everyone: Rows = {group: {} for group in victim_of.values()}
            found = tuple(
                PartRows(p.span_s, {**everyone, **rows(grown, victim_of, culprit_of, p)})
                for p in times
            )
        skipped = left_out(self._names, self._unwatched, reading.lost - before.lost)
        return RunQueueLook(found, skipped, self._slots(reading, before))

    def _slots(self, reading: Reading, before: Reading) -> dict[Labels, tuple[int, ...]]:
        by_container: dict[str, list[tuple[int, ...]]] = {}
        for cgroup, delays in reading.delays.items():
            place = self._names.victims.get(cgroup)
            if place is not None and place.container_id:
                last = before.delays.get(cgroup)
                slots = slots_since(delays.slots, last.slots if last is not None else None)
                by_container.setdefault(place.container_id, []).append(slots)
        return {(container,): added(parts) for container, parts in by_container.items()}
