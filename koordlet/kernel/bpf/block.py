"""Waiting for disks, by watched cgroup and by whose requests the device completed meanwhile; and
how long requests take (``programs/block.bpf.c``)."""

from __future__ import annotations

import errno
import struct
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from koordlet.kernel.bpf.cost import CostMeter, Meter
from koordlet.kernel.bpf.counters import Counters
from koordlet.kernel.bpf.objects import BpfObject, load
from koordlet.kernel.bpf.run_queue import IDLE, KERNEL, OLDER, SLOTS
from koordlet.kernel.bpf.syscalls import delete, entries, set_entry, sums

__all__ = ["IDLE", "KERNEL", "OLDER", "SLOTS"]

PROGRAM = "block"
_COUNTS = 2 + SLOTS
_NEWEST = 3
_DEVICE_WORDS = 2 + 3 * 64


class Counts(NamedTuple):
    """Of one stage. ``slots``: how many requests of each length, as in ``run_queue``."""

    requests: int
    total_ns: int
    slots: tuple[int, ...]


class Stages(NamedTuple):
    """``queue``: until the driver gets a request; nothing where the device keeps no statistics
    (queue/iostats is 0). ``device``: from then until it completes."""

    queue: Counts
    device: Counts


class Reading(NamedTuple):
    """Counters since a cgroup is watched. ``waits_ns``: how long its tasks slept for a disk until
    now, by victim and then by culprit, ids of cgroups both; a cell that was small for long may
    begin anew. A sleep that is not over is in ``OLDER``. ``lost``: requests and sleeps that found
    no room in a map. ``skipped``: runs of programs that the kernel left out, so that requests were
    not seen."""

    stages: Mapping[int, Stages]
    waits_ns: Mapping[int, Mapping[int, int]]
    lost: int
    skipped: int = 0


class BlockIo(Protocol):
    """Blocks: for a worker thread."""

    def watch(self, cgroups: Collection[int]) -> int:
        """From now on watch these ids and no others, the first ones where not all have room; how
        many have none."""
        ...

    def read(self, pause: Callable[[], None]) -> Reading: ...

    def others_ns(self) -> int:
        """Of all victims together, because of other cgroups; takes microseconds, for any thread."""
        ...

    @property
    def meter(self) -> Meter: ...

    @property
    def memory_bytes(self) -> int:
        """Of its maps in the kernel."""
        ...

    def close(self) -> None: ...


class BpfBlockIo:
    """Ids are inodes in the hierarchy of the controller ``blkio`` (v1) or ``io`` (v2). Raises
    OSError where the kernel or the machine lacks something."""

    def __init__(self) -> None:
        self._object = _load()
        self.meter = CostMeter(self._object.run_times)
        self._groups = Counters(self._object.map("groups", 1, 2 * _COUNTS + _NEWEST))
        self._waits = self._object.map("waits", 2, 1)
        self._sleeping = self._object.map("sleeping", 1, 2)
        self._read_ns = self._object.map("read_ns", 1, 1)
        self._all = self._object.map("all", 1, 2, per_cpu=True)
        self._devices = self._object.map("devices", 1, _DEVICE_WORDS)
        self._lost = 0
        self._until_ns = 0
        self._asleep_ns: dict[int, int] = {}
        """Parts of sleeps that were not over at a reading, by victim."""
        self._stages: dict[int, tuple[tuple[int, ...], Stages]] = {}
        self.memory_bytes = self._object.memory_bytes()
        try:
            self._object.attach()
        except OSError:
            self._object.close()
            raise

    def watch(self, cgroups: Collection[int]) -> int:
        before = self._groups.watched
        missed = self._groups.watch(cgroups)
        gone = before - self._groups.watched
        for victim in gone:
            self._asleep_ns.pop(victim, None)
        if gone:
            for found in entries(self._waits):
                for place in range(0, len(found.keys), 2):
                    if found.keys[place] in gone:
                        delete(self._waits, (found.keys[place], found.keys[place + 1]))
        return missed

    def read(self, pause: Callable[[], None]) -> Reading:
        before, self._stages = self._stages, {}
        for cgroup, words in self._groups.read(pause).items():
            known = before.get(cgroup)
            if known is None or known[0] is not words:
                stages_ = Stages(_counts(words[:_COUNTS]), _counts(words[_COUNTS : 2 * _COUNTS]))
                known = words, stages_
            self._stages[cgroup] = known
        stages = {cgroup: each for cgroup, (_, each) in self._stages.items()}
        self._read_sleeping()
        waits: dict[int, dict[int, int]] = {}
        for found in entries(self._waits):
            for number, ns in enumerate(found.values):
                pause()
                victim, culprit = found.keys[2 * number], found.keys[2 * number + 1]
                waits.setdefault(victim, {})[culprit] = ns
        for victim, ns in self._asleep_ns.items():
            row = waits.setdefault(victim, {})
            row[OLDER] = row.get(OLDER, 0) + ns
        lost = sums(self._all, 0)[0]
        if lost > self._lost:
            self._lost = lost
            self._forget_devices()
        return Reading(stages, waits, lost, sum(self._object.skipped_runs()))

    def _read_sleeping(self) -> None:
        """Count what tasks that sleep now have slept since the reading before. So no reading has
        more waiting than its tasks had time."""
        before_ns, now_ns = self._until_ns, time.monotonic_ns()
        set_entry(self._read_ns, 0, struct.pack("=Q", now_ns))
        self._until_ns = now_ns
        for found in entries(self._sleeping):
            for since_ns, victim in zip(found.values[::2], found.values[1::2], strict=True):
                ns = now_ns - max(since_ns, before_ns)
                if ns > 0 and victim in self._groups.watched:
                    self._asleep_ns[victim] = self._asleep_ns.get(victim, 0) + ns

    def _forget_devices(self) -> None:
        """The kernel does not say when a device goes, and a map with a lock in its entries cannot
        drop the oldest: where there is no room all go. Those that are there come again with their
        next request, and know no stretch from before."""
        for found in entries(self._devices):
            for device in found.keys:
                delete(self._devices, (device,))

    def others_ns(self) -> int:
        return sums(self._all, 0)[1]

    def close(self) -> None:
        self.meter.close()
        self._object.close()


def _load() -> BpfObject:
    try:
        return load(PROGRAM, options=struct.pack("=I", True))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return load(PROGRAM, options=struct.pack("=I", False))


def _counts(words: tuple[int, ...]) -> Counts:
    return Counts(words[0], words[1], words[2:])
