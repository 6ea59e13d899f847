"""Keeps threads of best-effort cgroups each on one CPU, as many on each (``places``).

A cgroup stands for its threads and those of all cgroups below it. The value is the list of CPUs
over which they are spread, ``""`` for none. Which cgroups are spread is kept here, from what is
written and, after a restart, from the journal (``adopt``). Threads come and go, so ``sweep`` looks
again.

Only busy threads are kept. Those that somebody else has given a narrower list are left alone.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from koordlet.decision.resource import Resource, Value
from koordlet.kernel.background import Pause, no_pause
from koordlet.kernel.cgroup.cgroups import Cgroups, Place, Unsupported
from koordlet.kernel.host import Host
from koordlet.kernel.parse import schedstat
from koordlet.kernel.proc.files import start_ticks
from koordlet.kernel.proc.members import ids_within, vanished
from koordlet.kernel.proc.places import IDLE, Thread, parents_of_many, places
from koordlet.protocol.cpuset import CPUSet, format_cpulist, parse_cpulist

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_EVERYWHERE = frozenset(range(max(os.cpu_count() or 1, 1024)))
"""Every CPU, and more: the kernel takes those that the cpuset allows, also when that changes."""
_LEAST_SPAN_S = 0.2
"""The kernel brings the time of a running thread up to date at its clock ticks."""
MOST_THREADS = 1000
"""Threads of one cgroup that are looked at; a look costs some 13 us for each."""
MOST_EACH_TIME, IDLE_EVERY = 64, 5
"""Threads above which those that rest are looked at each fifth time."""


class _Looked(NamedTuple):
    """A thread: seconds that it had run and waited ``at_s`` (CLOCK_MONOTONIC), and its demand."""

    spent_s: float
    at_s: float
    demand: float


@dataclass
class _Spread:
    """One cgroup. ``place``: which of those that have had its name; None where it could not be
    looked at yet. ``ours``: thread -> the CPU on which we keep it. ``parents``: process -> its
    parent. ``too_many``: threads that there were, where that was too many. ``refused``: what the
    kernel said at the last look. ``ended``: it is not to be spread any more, which a look in
    another thread may not know yet. ``turn``: number of the look."""

    cpus: CPUSet
    place: Place | None
    ours: dict[int, int] = field(default_factory=dict)
    looked: dict[int, _Looked] = field(default_factory=dict)
    parents: dict[int, int] = field(default_factory=dict)
    too_many: int = 0
    refused: str = ""
    ended: bool = False
    turn: int = 0


@dataclass(frozen=True)
class SpreadState:
    """Outcome of the last look at one cgroup: ``kept`` of ``threads`` are kept on one CPU each."""

    threads: int
    kept: int
    too_many: int
    refused: str


class CpuSpread:
    """A backend of ``Knobs``."""

    def __init__(self, host: Host, cgroups: Cgroups, proc_root: str) -> None:
        self._host = host
        self._cgroups = cgroups
        self._proc_root = proc_root
        self._spread: dict[str, _Spread] = {}
        self.state: Mapping[str, SpreadState] = {}
        """Outcomes of the last look, by cgroup."""

    def path(self, cgroup: str, resource: Resource) -> str:
        return f"{resource} of {self._cgroups.path(cgroup, Resource.TASKS)}"

    def id(self, cgroup: str, resource: Resource) -> int:
        return self._cgroups.id(cgroup, Resource.TASKS)

    def encode(self, resource: Resource, value: Value) -> bytes:
        return _checked(value).encode()

    def equal(self, resource: Resource, wanted: Value, found: Value) -> bool:
        return str(wanted) == str(found)

    def read(self, cgroup: str, resource: Resource) -> Value:
        known = self._known(cgroup)
        return format_cpulist(known.cpus) if known is not None else ""

    def read_raw(self, cgroup: str, resource: Resource) -> bytes:
        return str(self.read(cgroup, resource)).encode()

    def write(self, cgroup: str, resource: Resource, value: Value) -> None:
        """Lets all go at once; threads are kept from the next ``sweep`` on."""
        text = _checked(value)
        known = self._known(cgroup)
        if text and known is not None:
            known.cpus = parse_cpulist(text)
        elif text:
            place = self._cgroups.place(cgroup, Resource.TASKS)
            self._spread[cgroup] = _Spread(parse_cpulist(text), place)
        else:
            self._spread.pop(cgroup, None)
            if known is not None:
                known.ended = True
                self._free(known)

    def write_raw(self, cgroup: str, resource: Resource, data: bytes) -> None:
        self.write(cgroup, resource, data.decode())

    def holds(self, cgroup: str, resource: Resource, data: bytes) -> bool:
        return self.read_raw(cgroup, resource) == data

    def adopt(self, written: Mapping[str, Sequence[str]]) -> None:
        """Learn from the journal which cgroups are spread: cgroup -> values that it may hold. Every
        thread of theirs that is kept on one CPU counts as kept by us."""
        for cgroup, values in written.items():
            lists = [text for text in values if text]
            known, place = self._spread.get(cgroup), self._place_or_none(cgroup)
            if lists and (known is None or known.place != place):
                cpus = parse_cpulist(lists[-1])
                self._spread[cgroup] = _Spread(cpus, place, ours=self._single(cgroup, cpus))

    @property
    def is_wanted(self) -> bool:
        """Return whether any cgroup is to be spread, or was at the last look."""
        return bool(self._spread or self.state)

    def sweep(self, pause: Pause = no_pause) -> None:
        """Look at all cgroups that are spread: place new threads, even out the CPUs. Cgroups that
        are gone are forgotten. In a thread of its own, one look at a time."""
        for cgroup, known in list(self._spread.items()):
            try:
                self._look(cgroup, known, pause)
            except (OSError, Unsupported) as error:
                known.refused = str(error)
            if self._place_or_none(cgroup) != known.place and self._spread.get(cgroup) is known:
                self._spread.pop(cgroup, None)
        self.state = {
            cgroup: SpreadState(len(each.looked), len(each.ours), each.too_many, each.refused)
            for cgroup, each in list(self._spread.items())
        }

    def _known(self, cgroup: str) -> _Spread | None:
        """Return it; None where another cgroup has its name now: its threads went with it. Raises
        OSError and Unsupported where there is none."""
        place = self._cgroups.place(cgroup, Resource.TASKS)
        known = self._spread.get(cgroup)
        if known is not None and known.place is None:
            known.place = place
        return known if known is not None and known.place == place else None

    def _place_or_none(self, cgroup: str) -> Place | None:
        with suppress(OSError, Unsupported):
            return self._cgroups.place(cgroup, Resource.TASKS)
        return None

    def _look(self, cgroup: str, known: _Spread, pause: Pause) -> None:
        if self._known(cgroup) is not known:
            return
        ids = self._threads(cgroup)
        known.too_many = len(ids) if len(ids) > MOST_THREADS else 0
        if known.too_many:
            self._free(known)
            return
        many = parents_of_many(self._parents(cgroup, known))
        now_s = self._host.monotonic()
        looked: dict[int, _Looked] = {}
        threads = []
        known.turn += 1
        for each in ids:
            pause()
            before = known.looked.get(each)
            if before is not None and len(ids) > MOST_EACH_TIME and _rests(each, before, known):
                looked[each] = before
                continue
            thread = self._thread(each, known, now_s, looked)
            if thread is not None:
                threads.append(thread._replace(demand=0.0) if each in many else thread)
        known.looked = looked
        self._let_go(known, known.ours.keys() - looked.keys())
        known.refused = ""
        found = places(threads, known.cpus)
        for each, cpu in found.items():
            refused = self._set(each, _EVERYWHERE if cpu is None else frozenset({cpu}))
            if cpu is None:
                known.ours.pop(each, None)
            elif not refused:
                known.ours[each] = cpu
            known.refused = known.refused or refused
        if found:
            # One that ended meanwhile may have left its number to somebody else's.
            self._let_go(known, known.ours.keys() - set(self._threads(cgroup)))
        if known.ended:
            self._free(known)

    def _let_go(self, known: _Spread, gone: Collection[int]) -> None:
        """Threads that are not in the cgroup any more run where they like."""
        for each in gone:
            cpu = known.ours.pop(each)
            try:
                held = self._host.thread_cpus(each)
            except OSError:
                continue
            if held == {cpu}:
                self._set(each, _EVERYWHERE)

    def _thread(
        self, each: int, known: _Spread, now_s: float, looked: dict[int, _Looked]
    ) -> Thread | None:
        """None for one that has ended, and for one that somebody else keeps where it is. What one
        wants that nobody has looked at before is what it wanted since its start."""
        try:
            cpus = self._host.thread_cpus(each)
            spent_s = self._spent_s(each)
            before = known.looked.get(each) or _Looked(0.0, self._started_s(each), 0.0)
        except OSError as error:
            if vanished(error):
                return None
            raise
        found = before
        if now_s - before.at_s >= _LEAST_SPAN_S:
            demand = max(0.0, spent_s - before.spent_s) / (now_s - before.at_s)
            found = _Looked(spent_s, now_s, min(1.0, demand))
        cpu = known.ours.get(each)
        if cpu is not None and cpus != {cpu}:
            known.ours.pop(each, None)  # somebody else has moved it, or its CPU is no more allowed
            cpu = None
        if cpu is None and not cpus >= known.cpus:
            return None
        looked[each] = found
        return Thread(each, found.demand, cpu)

    def _started_s(self, each: int) -> float:
        """Seconds after boot."""
        return start_ticks(self._host, each, self._proc_root) / _TICKS_PER_S

    def _spent_s(self, each: int) -> float:
        """Seconds that it has run, and waited to run (``schedstat``)."""
        path = f"{self._proc_root}/{each}/schedstat"
        return sum(schedstat(self._host.read(path), path)) / 1e9

    def _threads(self, cgroup: str) -> list[int]:
        # 0 stands for a thread of another PID namespace.
        return [each for each in ids_within(self._cgroups, cgroup, Resource.TASKS) if each]

    def _parents(self, cgroup: str, known: _Spread) -> Mapping[int, int]:
        """Process -> its parent, read once for each."""
        found: dict[int, int] = {}
        for pid in ids_within(self._cgroups, cgroup, Resource.PROCS):
            if pid in known.parents:
                found[pid] = known.parents[pid]
            elif pid:
                try:
                    data = self._host.read(f"{self._proc_root}/{pid}/stat")
                except OSError as error:
                    if not vanished(error):
                        raise
                    continue
                found[pid] = int(data.rpartition(b")")[2].split()[1])
        known.parents = found
        return found

    def _single(self, cgroup: str, cpus: CPUSet) -> dict[int, int]:
        """Threads that may run on one of ``cpus`` alone, with that one."""
        found: dict[int, int] = {}
        with suppress(OSError, Unsupported):  # the cgroup has gone
            for each in self._threads(cgroup):
                with suppress(OSError):  # it has ended
                    held = self._host.thread_cpus(each)
                    if len(held) == 1 and held <= cpus:
                        found[each] = next(iter(held))
        return found

    def _free(self, known: _Spread) -> None:
        """Let those that we keep run where they like."""
        for each in list(known.ours):
            self._set(each, _EVERYWHERE)
            known.ours.pop(each, None)

    def _set(self, each: int, cpus: CPUSet) -> str:
        """Why it could not be; empty where it could, or has ended."""
        try:
            self._host.set_thread_cpus(each, cpus)
        except OSError as error:
            if not vanished(error):
                return f"sched_setaffinity: {error.strerror}"
        return ""


def _rests(each: int, before: _Looked, known: _Spread) -> bool:
    """Return whether a thread rested at the last look, is not kept, and has its turn later."""
    is_idle = before.demand <= IDLE and each not in known.ours
    return is_idle and each % IDLE_EVERY != known.turn % IDLE_EVERY


def _checked(value: Value) -> str:
    """Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{Resource.CPU_SPREAD}: {value!r} is not a list of CPUs")
    return format_cpulist(parse_cpulist(value)) if value else ""
