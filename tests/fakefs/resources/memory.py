"""Memory of cgroups: charges, limits, reclaim of page cache, OOM kills."""

from __future__ import annotations

import errno

from koordlet_fakefs.cgroup import Cgroup
from koordlet_fakefs.machine import Process
from koordlet_fakefs.parse import PAGE_BYTES, refuse
from koordlet_fakefs.resources.cpuset import mems_allowed

EVENTS = ("low", "high", "max", "oom", "oom_kill", "oom_group_kill")


class MemoryState:
    """Charges of one memcg. ``anon`` by pid, ``file_bytes`` page cache by NUMA node."""

    def __init__(self, group: Cgroup) -> None:
        self.group = group
        self.anon: dict[int, dict[int, int]] = {}
        self.file_bytes: dict[int, int] = {}
        self.limits: dict[str, int | None] = {"max": None, "high": None, "soft": None}
        self.floors = {"min": 0, "low": 0}
        self.oom_group = 0
        self.swappiness = 60
        self.peak_bytes = 0
        self.failcnt = 0
        self.events = dict.fromkeys(EVENTS, 0)
        self.vendor: dict[str, int] = {}
        self.cold_anon_bytes = self.cold_file_bytes = 0
        """Of its own, what nobody uses any more."""
        self.refaults = 0

    @property
    def own_anon_bytes(self) -> int:
        return sum(sum(pages.values()) for pages in self.anon.values())

    @property
    def own_file_bytes(self) -> int:
        return sum(self.file_bytes.values())


def memory_of(group: Cgroup) -> MemoryState:
    """The memcg that is charged for what happens in ``group``: the nearest one above."""
    for above in group.ancestors():
        if above.memory is not None:
            return above.memory
    raise refuse(errno.ENOENT)


def usage_bytes(group: Cgroup) -> int:
    return anon_bytes(group) + file_bytes(group)


def states_below(group: Cgroup) -> list[MemoryState]:
    return [below.memory for below in group.subtree() if below.memory is not None]


def anon_bytes(group: Cgroup) -> int:
    return sum(state.own_anon_bytes for state in states_below(group))


def file_bytes(group: Cgroup) -> int:
    return sum(state.own_file_bytes for state in states_below(group))


def node_bytes(states: list[MemoryState], node: int) -> tuple[int, int]:
    """(anon, file) on one NUMA node."""
    anon = sum(pages.get(node, 0) for state in states for pages in state.anon.values())
    return anon, sum(state.file_bytes.get(node, 0) for state in states)


def spread(size: int, nodes: frozenset[int]) -> dict[int, int]:
    """``size`` in whole pages over the nodes, as evenly as pages allow."""
    pages, ordered = -(-size // PAGE_BYTES), sorted(nodes)
    share, extra = divmod(pages, len(ordered))
    return {n: (share + (i < extra)) * PAGE_BYTES for i, n in enumerate(ordered)}


def reclaim(group: Cgroup, wanted_bytes: int) -> int:
    """Drop page cache below ``group``; returns what was freed."""
    freed = 0
    for state in states_below(group):
        for node, held in state.file_bytes.items():
            taken = min(held, -(-(wanted_bytes - freed) // PAGE_BYTES) * PAGE_BYTES)
            if taken > 0:
                state.file_bytes[node] = held - taken
                freed += taken
    return freed


def _kill(group: Cgroup) -> bool:
    """OOM: end the process with the most anonymous memory below ``group``."""
    machine = group.machine
    charged: dict[int, int] = {}
    for state in states_below(group):
        for pid, pages in state.anon.items():
            charged[pid] = charged.get(pid, 0) + sum(pages.values())
    victims = [pid for pid in charged if pid in machine.processes and charged[pid]]
    if not victims:
        return False
    victim = machine.processes[max(sorted(victims), key=charged.__getitem__)]
    home = next(s for s in states_below(group) if victim.pid in s.anon)
    for above in home.group.ancestors():
        if above.memory is not None:
            above.memory.events["oom_kill"] += 1
    machine.exit(victim)
    return True


def enforce(group: Cgroup) -> None:
    """After a charge: reclaim and kill until every limit above holds again."""
    for above in group.ancestors():
        state = above.memory
        if state is None:
            continue
        high, limit = state.limits["high"], state.limits["max"]
        if high is not None and usage_bytes(above) > high:
            state.events["high"] += 1
            reclaim(above, usage_bytes(above) - high)
        while limit is not None and usage_bytes(above) > limit:
            state.failcnt += 1
            state.events["max"] += 1
            if reclaim(above, usage_bytes(above) - limit):
                continue
            state.events["oom"] += 1
            if not _kill(above):
                break
        state.peak_bytes = max(state.peak_bytes, usage_bytes(above))


def set_anon(process: Process, size: int) -> None:
    """Set the anonymous memory of a process.

    Growth is charged to the memcg it is in now; what was charged elsewhere stays there, as
    without move_charge_at_immigrate. Shrinking frees everything and touches ``size`` anew.
    """
    group = _group_of(process, "memory")
    held = [s for s in states_below(group.hierarchy.root) if process.pid in s.anon]
    charged = sum(sum(s.anon[process.pid].values()) for s in held)
    if size < charged:
        for state in held:
            del state.anon[process.pid]
        charged = 0
    pages = memory_of(group).anon.setdefault(process.pid, {})
    _add(pages, spread(size - charged, mems_allowed(_group_of(process, "cpuset"))))
    enforce(group)


def read_files(process: Process, size: int) -> None:
    """The process reads ``size`` bytes of files: page cache of its memcg."""
    group = _group_of(process, "memory")
    pages = spread(size, mems_allowed(_group_of(process, "cpuset")))
    _add(memory_of(group).file_bytes, pages)
    enforce(group)


def rss_bytes(group: Cgroup, pid: int) -> int:
    """Anonymous memory of a process below ``group``."""
    return sum(sum(state.anon.get(pid, {}).values()) for state in states_below(group))


def reparent(state: MemoryState, parent: Cgroup) -> None:
    """A memcg goes away: what it still holds is its parent's."""
    heir = memory_of(parent)
    for pid, pages in state.anon.items():
        _add(heir.anon.setdefault(pid, {}), pages)
    _add(heir.file_bytes, state.file_bytes)


def _add(held: dict[int, int], more: dict[int, int]) -> None:
    for node, size in more.items():
        held[node] = held.get(node, 0) + size


def _group_of(process: Process, controller: str) -> Cgroup:
    for hierarchy, group in process.threads[process.pid].cgroups.items():
        if controller in hierarchy.controllers:
            return group
    raise refuse(errno.ENOENT)
