"""Stalls for memory and segments sent again, for the thread that reads them."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass

from koordlet.collectors.waits.figures import Part, PartRows, Rows, rows
from koordlet.collectors.waits.groups import Group, Kind, victims
from koordlet.collectors.waits.names import Names, left_out
from koordlet.collectors.waits.program_source import ProgramSource, WaitLook
from koordlet.collectors.waits.readings import Feature, Subjects
from koordlet.collectors.waits.shares import blamed, stalls_since
from koordlet.decision.snapshot import Capability
from koordlet.kernel.background import Pause
from koordlet.kernel.bpf.need import NeedError
from koordlet.kernel.bpf.run_queue import KERNEL, OLDER
from koordlet.kernel.bpf.stalls import Reading
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host

FEATURE = Feature(
    "bpf-memory-stalls", "who makes latency-sensitive work wait for memory is not known"
)
TCP_FEATURE = Feature("bpf-tcp-retransmits", "for which pods TCP sends segments again is not known")

_SPECIAL = {KERNEL: Group(Kind.KERNEL, ""), OLDER: Group(Kind.OLDER, "")}


@dataclass(frozen=True)
class MemoryLook(WaitLook):
    """``retransmits``: segments a second, by uid of each pod that has a cgroup in the unified
    hierarchy."""

    retransmits: Mapping[tuple[str, ...], float]


class MemorySource(ProgramSource[Reading, MemoryLook]):
    """Who makes whom wait for memory, and what TCP sends again."""

    def __init__(self, host: Host, layout: Layout) -> None:
        """Raises OSError where the kernel or the machine lacks something."""
        root = layout.v1.get("memory", layout.v2)
        assert root is not None  # a layout without v2 has controllers on v1
        self._sockets = Names(host, layout.v2) if layout.v2 is not None else None
        programs = host.stalls(by_memory_controller="memory" in layout.v1)
        super().__init__(host, layout, Names(host, root, _SPECIAL), programs)
        self._tcp = _tcp(layout)

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        why = "attached programs to the tracepoints of reclaim"
        return self.there(FEATURE, why), self._tcp

    def watch(self, subjects: Subjects, pause: Pause) -> None:
        """They count for all."""

    def since(
        self,
        before: Reading,
        reading: Reading,
        times: tuple[Part, ...],
        subjects: Subjects,
        pause: Pause,
    ) -> MemoryLook:
        everyone: Rows = {place.group: {} for place in victims(*subjects)}
        stalls = stalls_since(reading.memory, before.memory)
        if stalls:
            self._names.list_victims(subjects, pause)
        cgroups = {each for row in stalls.values() for each in row} | {OLDER}
        culprit_of = self._names.of(cgroups, subjects, pause).__getitem__
        victim_of = self._names.groups()
        found = []
        for part in times:
            grown = blamed(stalls, part)
            row = rows(grown, victim_of, culprit_of, Part(part.span_s))
            found.append(PartRows(part.span_s, {**everyone, **row}))
        again = self._again(subjects, reading.retransmits, before.retransmits, pause)
        span_s = sum(part.span_s for part in times)
        return MemoryLook(
            tuple(found),
            left_out(self._names, 0, 0),
            {(uid,): count / span_s for uid, count in again.items()},
        )

    def _again(
        self, subjects: Subjects, now: Mapping[int, int], before: Mapping[int, int], pause: Pause
    ) -> dict[str, int]:
        """Segments since the look before, by uid of pods."""
        if self._sockets is None:
            return {}
        self._sockets.list_victims(subjects, pause)
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
