"""Block requests of latency-sensitive work, for the thread that reads them."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass

from koordlet.collectors.waits.figures import Row, added, growth, rows
from koordlet.collectors.waits.groups import Group, Kind
from koordlet.collectors.waits.names import Names
from koordlet.collectors.waits.program_source import ProgramSource
from koordlet.collectors.waits.readings import Feature, Subjects
from koordlet.decision.snapshot import Capability
from koordlet.kernel.background import Pause
from koordlet.kernel.bpf.block import IDLE, OLDER, SLOTS, Counts, Reading
from koordlet.kernel.bpf.need import NeedError
from koordlet.kernel.cgroup.cgroups import enabling
from koordlet.kernel.cgroup.layout import Layout, passed_on
from koordlet.kernel.host import Host

FEATURE = Feature(
    "bpf-block-io", "whose disk requests make latency-sensitive work wait is not known"
)
STAGES = ("queue", "device")
_SPECIAL = {IDLE: Group(Kind.IDLE, ""), OLDER: Group(Kind.OLDER, "")}
_NO_REQUESTS = (0,) * SLOTS

Slots = tuple[int, ...]


@dataclass(frozen=True)
class BlockLook:
    """``rows``: by victim, which are all in it. ``slots``: how many requests of each length, by
    container and stage."""

    rows: Mapping[Group, Row]
    slots: Mapping[tuple[str, ...], Slots]
    unwatched: int
    """Cgroups that found no room among the watched ones."""
    lost: int
    """Requests that found no room in the kernel's maps, since the programs were loaded."""


class BlockSource(ProgramSource[Reading, BlockLook]):
    """Whose requests make whom wait for a disk."""

    def __init__(self, host: Host, layout: Layout) -> None:
        """Raises OSError where the kernel or the machine lacks something."""
        root, self._is_v1 = _root(host, layout), "blkio" in layout.v1
        self._root = root
        self._names = Names(host, root, _SPECIAL)
        self._io = host.block_io()
        super().__init__(host, self._io)
        self._watched: Mapping[int, Group] = {}
        self._unwatched = 0

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        return (
            FEATURE.there(
                "attached programs to the tracepoints of requests",
                self.costs,
                self.cost_unknown,
            ),
        )

    def watch(self, subjects: Subjects, pause: Pause) -> None:
        if self._names.list(subjects, pause):
            self._watched = {
                cgroup: place.group
                for cgroup, place in self._names.victims.items()
                if self._has_io(place.cgroup)
            }
            self._unwatched = self._io.watch(self._watched.keys())

    def since(
        self, before: Reading, reading: Reading, span_s: float, subjects: Subjects, pause: Pause
    ) -> BlockLook:
        grown = growth(reading.waits_ns, before.waits_ns)
        groups = self._names.of({each for row in grown.values() for each in row}, pause)
        everyone: dict[Group, Row] = {group: {} for group in self._watched.values()}
        found = rows(grown, self._watched, groups.__getitem__, span_s)
        return BlockLook(
            everyone | found, self._slots(reading, before), self._unwatched, reading.lost
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
                slots = _since(stages[number], last[number] if last is not None else None)
                found.setdefault((place.container_id, stage), []).append(slots)
        return {key: added(parts) for key, parts in found.items()}


def _since(now: Counts, before: Counts | None) -> Slots:
    """A counter below its earlier value began anew."""
    if now is before:
        return _NO_REQUESTS
    if before is None or now.requests < before.requests:
        return now.slots
    return tuple(each - last for each, last in zip(now.slots, before.slots, strict=True))


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
