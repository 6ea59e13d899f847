"""CPU and memory of many cgroups: what pods, containers and applications have in common.

The hot path of the daemon, up to a thousand files a second on a full node: descriptors of CPU
counters stay open, series ids are kept, and one pass does reading, parsing and the difference. Who
has not run is not read: a container whose pod's counter stands still, and the memory of a group
whose own does.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from koordlet.collectors.base import Round, SeriesStore, series_of
from koordlet.decision.metrics import Metric
from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.host import Host
from koordlet.kernel.parse import cpu_usage_ns, integer
from koordlet.kernel.parse_hot import memory_in_use, numa_in_use


class Kinds(NamedTuple):
    """The series of one sort of group."""

    cpu: Metric
    memory: Metric
    memory_with_page_cache: Metric


class Wanted(NamedTuple):
    """``counted``: its use goes into the round's totals (False: another group contains it).
    ``pod``: uid of the pod that it is in."""

    label: str
    cgroup: str
    counted: bool = True
    pod: str = ""


STILL_TURNS = 10
"""The memory of a group that does not run is read each so many of its turns: the kernel may have
reclaimed some."""


class Sums(NamedTuple):
    cpu_cores: float
    memory_bytes: float


class _Group:
    """One cgroup between rounds.

    ``read_cpu`` is the bound ``read`` of the kept file once that is open: no look-up on the way.
    ``memory_bytes`` is -1 until read; ``memory_at_ns`` the CPU counter then, and ``still_turns``
    how often it was taken as it was since. ``pod_ns``: counter of its pod when its own was read.
    """

    __slots__ = (
        "cache_bytes",
        "cache_id",
        "cache_path",
        "counted",
        "cpu_id",
        "cpu_path",
        "last_ns",
        "last_s",
        "memory_at_ns",
        "memory_bytes",
        "memory_id",
        "memory_path",
        "parse_cpu",
        "parse_memory",
        "pod_ns",
        "read_cpu",
        "still_turns",
        "wanted",
    )

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.counted = wanted.counted
        self.memory_bytes = self.cache_bytes = -1
        self.memory_at_ns = -1
        self.still_turns = 0
        self.last_ns = self.pod_ns = -1
        self.last_s = 0.0
        self.cpu_path = self.memory_path = self.cache_path = ""
        self.cpu_id = self.memory_id = self.cache_id = -1
        self.read_cpu: Callable[[], bytes] = bytes
        self.parse_cpu: Callable[[bytes], int] = cpu_usage_ns
        self.parse_memory: Callable[[bytes, str], tuple[int, int]] = memory_in_use


class GroupUsage:
    """``memory_rounds``: memory is read in every so many rounds, a part of the groups in each,
    since it costs the kernel several times as much as a CPU counter.

    ``raw_page_cache``: memory with page cache is what the kernel charged to the group
    (``memory.usage_in_bytes``, ``memory.current``) instead of the sum of its LRU lists."""

    def __init__(
        self,
        host: Host,
        cgroups: Cgroups,
        files: Descriptors,
        store: SeriesStore,
        kinds: Kinds,
        *,
        memory_rounds: int = 1,
        raw_page_cache: bool = False,
    ) -> None:
        self._host = host
        self._monotonic = host.monotonic
        self._cgroups = cgroups
        self._files = files
        self._store = store
        self._kinds = kinds
        self._memory_rounds = memory_rounds
        self._raw_page_cache = raw_page_cache
        self._turn = 0
        self._groups: dict[str, _Group] = {}
        self._with_cpu: list[_Group] = []
        self._with_memory: list[_Group] = []
        self._counted: list[_Group] = []

    def keep(self, wanted: Iterable[Wanted]) -> None:
        """From now on exactly these groups; those that are gone give up files and series."""
        old, self._groups = self._groups, {}
        for want in wanted:
            group = old.get(want.label)
            if group is not None and group.wanted.cgroup == want.cgroup:
                group.wanted = want
                group.counted = want.counted
                self._groups[want.label] = old.pop(want.label)
            else:
                self._groups[want.label] = self._new(want)
        for label, group in old.items():
            self._close(group, release=label not in self._groups)
        self._with_cpu = [group for group in self._groups.values() if group.cpu_path]
        self._with_memory = [group for group in self._groups.values() if group.memory_path]
        self._counted = [group for group in self._with_memory if group.counted]

    def look(self) -> None:
        """A first reading of the groups that have none, so that the next round has their CPU."""
        for group in self._with_cpu:
            if group.last_ns < 0:
                try:
                    group.last_ns = group.parse_cpu(group.read_cpu())
                except (OSError, ValueError):
                    continue  # the next round tells
                group.last_s = self._monotonic()
                self._use_kept(group)

    def read(self, round_: Round, *, all_memory: bool = False) -> Sums:
        """Samples of all groups. A group that cannot be read is left out; the first look at a
        group gives its memory, and its CPU from the second on. The memory of those whose turn
        it is not counts in the sum as it was last. ``all_memory``: it is everybody's turn."""
        cpu_cores = self._read_cpu(round_)
        self._turn = (self._turn + 1) % self._memory_rounds
        unread = [group for group in self._with_memory if group.memory_bytes < 0]
        rounds = 1 if all_memory else self._memory_rounds
        for group in self._with_memory[self._turn % rounds :: rounds]:
            if group.memory_bytes >= 0:
                (self._read_memory if all_memory else self._take_memory)(group, round_)
        for group in unread:
            self._read_memory(group, round_)
        return Sums(cpu_cores, sum(max(group.memory_bytes, 0) for group in self._counted))

    def _read_cpu(self, round_: Round) -> float:
        """Adds the cores each group used, and returns the sum of the counted ones."""
        cores_sum = 0.0
        monotonic = self._monotonic
        add_id, add_value = round_.ids.append, round_.values.append
        pods_cpu_ns = round_.pods_cpu_ns
        for group in self._with_cpu:
            pod_ns = pods_cpu_ns.get(group.wanted.pod, -1)
            if pod_ns >= 0 and pod_ns == group.pod_ns and group.last_ns >= 0:
                add_id(group.cpu_id)
                add_value(0.0)
                group.last_s = monotonic()
                continue
            try:
                usage_ns = group.parse_cpu(group.read_cpu())
            except (OSError, ValueError) as error:
                group.pod_ns = -1
                read_again = self._read_cpu_again(group, error, round_)
                if read_again is None:
                    continue
                usage_ns = read_again
            now_s = monotonic()
            last_ns = group.last_ns
            elapsed_s = now_s - group.last_s
            # Less than before: the cgroup was made anew. Start again, guess nothing.
            if 0 <= last_ns <= usage_ns and elapsed_s > 0:
                cores = (usage_ns - last_ns) / elapsed_s / 1e9
                add_id(group.cpu_id)
                add_value(cores)
                if group.counted:
                    cores_sum += cores
            else:
                self._use_kept(group)
            group.last_ns = usage_ns
            group.last_s = now_s
            group.pod_ns = pod_ns
        return cores_sum

    def counters(self) -> dict[str, int]:
        """CPU counters (ns) of the groups that were read, by label."""
        return {group.wanted.label: group.last_ns for group in self._with_cpu if group.last_ns >= 0}

    def _take_memory(self, group: _Group, round_: Round) -> None:
        """As it was, where the group has not run since; else as it is."""
        moved = group.last_ns < 0 or group.last_ns != group.memory_at_ns
        if moved or group.still_turns >= STILL_TURNS:
            self._read_memory(group, round_)
            return
        group.still_turns += 1
        round_.ids += (group.memory_id, group.cache_id)
        round_.values += (group.memory_bytes, group.cache_bytes)

    def _read_memory(self, group: _Group, round_: Round) -> None:
        read = self._files.read_once
        try:
            used, with_cache = group.parse_memory(read(group.memory_path), group.memory_path)
            if self._raw_page_cache:
                with_cache = integer(read(group.cache_path), group.cache_path)
        except (OSError, ValueError) as error:
            group.memory_bytes = -1
            round_.skip(group.memory_path, error)
            return
        group.memory_bytes, group.cache_bytes = used, with_cache
        group.memory_at_ns = group.last_ns
        group.still_turns = 0
        round_.ids += (group.memory_id, group.cache_id)
        round_.values += (used, with_cache)

    def _read_cpu_again(self, group: _Group, error: Exception, round_: Round) -> int | None:
        """Once more with a new descriptor, where the old one was closed by another collector of
        the same cgroup (EBADF) or belongs to a cgroup that was made anew since (ENODEV)."""
        group.read_cpu = partial(self._files.read, group.cpu_path)
        code = error.errno if isinstance(error, OSError) else None
        if code != errno.EBADF:
            self._files.forget(group.cpu_path)
            group.last_ns = -1
        if code in (errno.EBADF, errno.ENODEV):
            try:
                usage_ns = group.parse_cpu(group.read_cpu())
            except (OSError, ValueError) as again:
                error = again
            else:
                self._use_kept(group)
                return usage_ns
        round_.skip(group.cpu_path, error)
        return None

    def _use_kept(self, group: _Group) -> None:
        kept = self._files.kept(group.cpu_path)
        if kept is not None:
            group.read_cpu = kept.read

    def close(self) -> None:
        for group in self._groups.values():
            self._close(group, release=True)
        self._groups = {}
        self._with_cpu = []
        self._with_memory = []
        self._counted = []

    def _new(self, wanted: Wanted) -> _Group:
        group = _Group(wanted)
        labels = (wanted.label,)
        group.cpu_path = self._path(wanted.cgroup, Resource.CPUACCT_USAGE)
        self._choose_memory(group)
        if group.cpu_path:
            group.read_cpu = partial(self._files.read, group.cpu_path)
            if group.cpu_path.endswith(Resource.CPUACCT_USAGE):
                group.parse_cpu = int  # v1: a lone number
            group.cpu_id = series_of(self._store, self._kinds.cpu, labels)
        if group.memory_path:
            group.cache_path = self._path(wanted.cgroup, Resource.MEMORY_USAGE)
            group.memory_id = series_of(self._store, self._kinds.memory, labels)
            group.cache_id = series_of(self._store, self._kinds.memory_with_page_cache, labels)
        return group

    def _choose_memory(self, group: _Group) -> None:
        """On v1 ``memory.numa_stat`` has the same figures at half the kernel's cost; a kernel
        without NUMA lacks it, and on v2 it has no sums."""
        group.memory_path = self._path(group.wanted.cgroup, Resource.MEMORY_STAT)
        cheap = self._path(group.wanted.cgroup, Resource.MEMORY_NUMA_STAT)
        try:
            numa_in_use(self._host.read(cheap), cheap)
        except (OSError, ValueError):
            return
        group.memory_path = cheap
        group.parse_memory = numa_in_use

    def _path(self, cgroup: str, resource: Resource) -> str:
        try:
            return self._cgroups.path(cgroup, resource)
        except Unsupported:
            return ""

    def _close(self, group: _Group, *, release: bool) -> None:
        for path in (group.cpu_path, group.memory_path, group.cache_path):
            self._files.forget(path)
        if release:
            for series in (group.cpu_id, group.memory_id, group.cache_id):
                if series >= 0:
                    self._store.release(series)
