"""Waits of latency-sensitive work for disks, for the thread that reads them."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from koordlet.collectors.waits.figures import Part, PartRows, Rows, added, growth, rows, slots_since
from koordlet.collectors.waits.groups import Group, Kind, Place
from koordlet.collectors.waits.names import Names, left_out
from koordlet.collectors.waits.program_source import ProgramSource, WaitLook
from koordlet.collectors.waits.readings import Feature, Subjects
from koordlet.decision.snapshot import Capability
from koordlet.kernel.background import Pause
from koordlet.kernel.bpf.block import IDLE, KERNEL, OLDER, Reading
from koordlet.kernel.bpf.need import NeedError
from koordlet.kernel.cgroup.cgroups import enabling
from koordlet.kernel.cgroup.layout import Layout, passed_on
from koordlet.kernel.host import Host

FEATURE = Feature(
    "bpf-block-io", "whose disk requests make latency-sensitive work wait is not known"
)
STAGES = ("queue", "device")
_MANY = 100
"""Events that the programs did not see between two looks; fewer change no figure."""
_SPECIAL = {
    IDLE: Group(Kind.IDLE, ""),
    KERNEL: Group(Kind.KERNEL, ""),
    OLDER: Group(Kind.OLDER, ""),
}

Slots = tuple[int, ...]


@dataclass(frozen=True)
class BlockLook(WaitLook):
    """``slots``: how many requests of each length, by container and stage."""

    slots: Mapping[tuple[str, ...], Slots]


class BlockSource(ProgramSource[Reading, BlockLook]):
    """Whose requests make whom wait for a disk."""

    def __init__(self, host: Host, layout: Layout) -> None:
        """Raises OSError where the kernel or the machine lacks something."""
        root, self._is_v1 = _root(host, layout), "blkio" in layout.v1
        self._root = root
        self._io = host.block_io()
        super().__init__(host, layout, Names(host, root, _SPECIAL), self._io)
        self._victims: Mapping[int, Place] = {}
        self._watched: Mapping[int, Group] = {}
        self._unwatched = 0

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        return (self.there(FEATURE, "attached programs to the tracepoints of requests"),)

    def watch(self, subjects: Subjects, pause: Pause) -> None:
        self._names.list_victims(subjects, pause)
        if self._names.victims is not self._victims:
            self._victims = self._names.victims
            self._watched = {
                cgroup: place.group
                for cgroup, place in self._victims.items()
                if self._has_io(place.cgroup)
            }
            self._unwatched = self._io.watch(tuple(self._watched))

    def since(
        self,
        before: Reading,
        reading: Reading,
        times: tuple[Part, ...],
        subjects: Subjects,
        pause: Pause,
    ) -> BlockLook:
        grown = growth(reading.waits_ns, before.waits_ns)
        culprits = {each for row in grown.values() for each in row}
        culprit_of = self._names.of(culprits, subjects, pause).__getitem__
        everyone: Rows = {group: {} for group in self._watched.values()}
        return BlockLook(
            tuple(
                PartRows(p.span_s, {**everyone, **rows(grown, self._watched, culprit_of, p)})
                for p in times
            ),
            (
                *left_out(self._names, self._unwatched, reading.lost - before.lost),
                *_unseen(reading.skipped - before.skipped),
            ),
            self._slots(reading, before),
        )

    def _has_io(self, cgroup: str) -> bool:
        """On v2 its requests count as those of the cgroup above where the controller is not enabled
        for it."""
        return self._is_v1 or self._host.exists(f"{self._root}/{cgroup}/io.stat")

    def _slots(self, reading: Reading, before: Reading) -> dict[tuple[str, ...], Slots]:
        found: dict[tuple[str, ...], list[Slots]] = {}
        for cgroup, stages in reading.stages.items():
            place = self._names.victims.get(cgroup)
            if place is None or not place.container_id:
                continue
            last = before.stages.get(cgroup)
            for number, stage in enumerate(STAGES):
                then = last[number].slots if last is not None else None
                slots = slots_since(stages[number].slots, then)
                found.setdefault((place.container_id, stage), []).append(slots)
        return {key: added(parts) for key, parts in found.items()}


def _unseen(skipped: int) -> Iterator[str]:
    if skipped >= _MANY:
        yield f"{skipped} events of disks were not seen: the kernel was busy with the one before"


def _root(host: Host, layout: Layout) -> str:
    """Of the hierarchy by which the kernel owns block requests."""
    if "blkio" in layout.v1:
        return layout.v1["blkio"]
    if layout.v2 is None:
        why, remedy = "neither the v1 controller blkio nor cgroup v2 is mounted", "mount cgroup2"
        raise NeedError(errno.ENOENT, why, "/proc/self/mountinfo", remedy)
    control = f"{layout.v2}/cgroup.subtree_control"
    if "io" not in passed_on(host, layout):
        why = "controller io is not enabled, so that no request belongs to a pod"
        raise NeedError(errno.EOPNOTSUPP, why, control, enabling("io", control))
    return layout.v2
