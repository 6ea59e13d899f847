"""Monitoring of resctrl as fs/resctrl/monitor.c has it: RMIDs with their limbo, what each of them
has counted, and the groups below ``mon_groups``."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from koordlet_fakefs.machine import NS, Machine, Resctrl
from koordlet_fakefs.parse import number_in, refuse, strip
from koordlet_fakefs.resctrl_counters import (
    UNASSIGNED,
    CounterPool,
    add_counter_info,
    assignments,
)
from koordlet_fakefs.tree import Directory, Leaf, add_directory

if TYPE_CHECKING:
    from koordlet_fakefs.resctrl import Group, Root

UNAVAILABLE = "Unavailable"
LARGEST_THRESHOLD_BYTES = 1 << 24
ALL_TRAFFIC = 0x7F
DEFAULT_MASKS = {"mbm_total_bytes": ALL_TRAFFIC, "mbm_local_bytes": 0x15}


class Counters:
    """What one RMID has counted. ``values``: (domain, event) -> a number, or the word that the
    kernel says in its place. A domain is an L3 cache, or one of the sub-NUMA nodes that share it.
    """

    def __init__(self, domains: Sequence[int], events: Sequence[str], pool: CounterPool) -> None:
        self._pool = pool
        self.values: dict[tuple[int, str], int | str] = {
            (domain, event): UNAVAILABLE for domain in domains for event in events
        }
        self._cleared: set[tuple[int, str]] = set()

    def see(self, domain: int | None = None, **traffic: int | str) -> None:
        """Traffic of the group, in one domain or in all. ``llc_occupancy`` is what it holds from
        now on; bytes (``mbm_...``) are added: the file only grows. A word is said instead."""
        for key, before in self.values.items():
            now = traffic.get(key[1])
            if now is None or domain not in (None, key[0]) or not self._pool.counts(self, key):
                continue
            grows = key[1].startswith("mbm") and isinstance(before, int) and isinstance(now, int)
            self.values[key] = before + now if grows else now  # type: ignore[operator]

    def clear(self, domain: int) -> None:
        """AMD's events were set anew: bytes are counted from 0, and the first reading of each is
        none."""
        for key in self.values:
            if key[0] == domain and key[1].startswith("mbm"):
                self.values[key] = 0
                self._cleared.add(key)

    def read(self, domain: int, event: str) -> int | str:
        if not self._pool.counts(self, (domain, event)):
            return UNASSIGNED
        if (domain, event) in self._cleared:
            self._cleared.discard((domain, event))
            return UNAVAILABLE
        return self.values[domain, event]

    def occupancy_bytes(self, domain: int) -> int:
        """Who has seen no traffic holds nothing."""
        found = self.values.get((domain, "llc_occupancy"))
        return found if isinstance(found, int) else 0


def sum_of(several: Sequence[Counters], domains: Sequence[int], event: str) -> str:
    """Of those that can be read; the word of the first where none can."""
    found = [each.read(domain, event) for each in several for domain in domains]
    numbers = [each for each in found if isinstance(each, int)]
    return f"{sum(numbers) if numbers else found[0]}\n"


class _Limbo(NamedTuple):
    closid: int
    counters: Counters
    since_ns: int


class Rmids:
    """The pool. On x86 any RMID serves any group; with ``rmids_per_closid`` (the PMGs of Arm's
    MPAM) each control group has that many for itself and its monitor groups."""

    def __init__(self, machine: Machine, options: Resctrl, domains: Sequence[int]) -> None:
        self._machine = machine
        self._options = options
        self.domains = domains
        self._used: Counter[int] = Counter()
        self._limbo: list[_Limbo] = []
        self.closids = 1
        self.pool = CounterPool(options.mbm_counters, domains, options.events)
        self.failed = ""
        """What the last new group did not get."""
        self.threshold_bytes = options.threshold_bytes

    def take(self, closid: int) -> Counters:
        """EBUSY while there are none but some are in limbo, else ENOSPC."""
        self._check()
        number, pools = self._options.rmids, 1
        if self._options.rmids_per_closid:
            pools = self.closids
        in_limbo = len(self._limbo)
        if number * pools - self._used.total() - in_limbo <= 0:
            raise refuse(errno.EBUSY if in_limbo else errno.ENOSPC)
        pool = self._pool(closid)
        if number - self._used[pool] - self.dirty(closid) <= 0:
            raise refuse(errno.ENOSPC)
        self._used[pool] += 1
        counters = Counters(self.domains, self._options.events, self.pool)
        self.failed = self.pool.begin(counters)
        return counters

    def free(self, closid: int, counters: Counters) -> None:
        """Into limbo, where caches tell what is left in them."""
        pool = self._pool(closid)
        self._used[pool] -= 1
        self.pool.end(counters)
        if "llc_occupancy" in self._options.events:
            self._limbo.append(_Limbo(pool, counters, self._machine.now_ns))

    def dirty(self, closid: int) -> int:
        """How many of a control group's are in limbo."""
        return sum(each.closid == self._pool(closid) for each in self._limbo)

    @property
    def in_limbo(self) -> int:
        self._check()
        return len(self._limbo)

    def _pool(self, closid: int) -> int:
        return closid if self._options.rmids_per_closid else 0

    def _check(self) -> None:
        self._limbo = [each for each in self._limbo if self._is_dirty(each)]

    def _is_dirty(self, each: _Limbo) -> bool:
        """The kernel looks each second. Others' lines take the place of those left in a cache."""
        seconds = (self._machine.now_ns - each.since_ns) // NS
        evicted = seconds * self._options.evicted_bytes_per_s
        most = max(each.counters.occupancy_bytes(domain) for domain in self.domains)
        return seconds < 1 or max(most - evicted, 0) >= self.threshold_bytes


def domains_of(caches: Sequence[int], nodes_per_cache: int) -> dict[int, tuple[int, ...]]:
    """Cache id -> what counts there: the cache, or its sub-NUMA nodes, numbered throughout."""
    if nodes_per_cache == 1:
        return {cache: (cache,) for cache in caches}
    first = {cache: index * nodes_per_cache for index, cache in enumerate(caches)}
    return {cache: tuple(range(at, at + nodes_per_cache)) for cache, at in first.items()}


def add_mon_data(
    directory: Directory,
    domains: dict[int, tuple[int, ...]],
    events: Sequence[str],
    counted: Callable[[], list[Counters]],
) -> None:
    """``mon_data`` of a group; ``counted``: what is summed for it."""
    for cache, below in domains.items():
        _add_files(add_directory(directory, f"mon_data/mon_L3_{cache:02}"), below, events, counted)
        for node in below if len(below) > 1 else ():
            path = f"mon_data/mon_L3_{cache:02}/mon_sub_L3_{node:02}"
            _add_files(add_directory(directory, path), (node,), events, counted)


def _add_files(
    directory: Directory,
    domains: tuple[int, ...],
    events: Sequence[str],
    counted: Callable[[], list[Counters]],
) -> None:
    for event in events:
        directory.entries[event] = _counter(domains, event, counted)


def _counter(domains: tuple[int, ...], event: str, counted: Callable[[], list[Counters]]) -> Leaf:
    return Leaf(lambda: sum_of(counted(), domains, event), open_errno=errno.EACCES)


def add_info(info: Directory, root: Root, every: Callable[[], Iterator[Counters]]) -> None:
    """``info/L3_MON``. ``every``: the counters of all groups."""
    rmids, options = root.rmids, root.options

    def set_threshold(text: str) -> None:
        rmids.threshold_bytes = number_in(strip(text), 0, LARGEST_THRESHOLD_BYTES, errno.EINVAL)

    about = add_directory(info, "L3_MON")
    features = []
    for event in options.events:
        features.append(event)
        if options.configurable and not options.mbm_counters and event in DEFAULT_MASKS:
            features.append(f"{event}_config")
            about.entries[f"{event}_config"] = _event_config(event, rmids.domains, every)
    number = options.rmids * (rmids.closids if options.rmids_per_closid else 1)
    about.entries["num_rmids"] = Leaf(lambda: f"{number}\n", open_errno=errno.EACCES)
    about.entries["mon_features"] = Leaf(
        lambda: "".join(f"{each}\n" for each in features), open_errno=errno.EACCES
    )
    about.entries["max_threshold_occupancy"] = Leaf(
        lambda: f"{rmids.threshold_bytes}\n", set_threshold
    )
    add_counter_info(about, rmids.pool, root)


def _event_config(
    event: str, domains: Sequence[int], every: Callable[[], Iterator[Counters]]
) -> Leaf:
    """AMD's bandwidth monitoring event configuration: which kinds of traffic an event counts."""
    masks = dict.fromkeys(domains, DEFAULT_MASKS[event])

    def show() -> str:
        return ";".join(f"{domain}=0x{mask:02x}" for domain, mask in masks.items()) + "\n"

    def set_masks(text: str) -> None:
        for each in strip(text).split(";"):
            domain, equals, mask = each.partition("=")
            if not equals or not domain.isdigit() or int(domain) not in masks:
                raise refuse(errno.EINVAL)
            new = number_in(mask, 0, ALL_TRAFFIC, errno.EINVAL)
            if masks[int(domain)] != new:
                masks[int(domain)] = new
                for counters in every():
                    counters.clear(int(domain))

    return Leaf(show, set_masks)


class Monitors(Directory):
    """``mon_groups`` of a control group."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group

    def groups(self) -> Iterator[Monitor]:
        return (each for each in self.entries.values() if isinstance(each, Monitor))

    def mkdir(self, name: str) -> None:
        top = self.group.top()
        if "\n" in name:
            raise refuse(errno.EINVAL)
        top.status = ""
        if name == "mon_groups":
            raise refuse(errno.EPERM)
        if name in self.entries:
            top.fail("kernfs create error", errno.EEXIST)
        self.entries[name] = Monitor(self.group, top.rmid_for(self.group.closid))

    def rmdir(self, name: str) -> None:
        """Its tasks are counted with the control group again."""
        gone = self.entries.get(name)
        if gone is None:
            raise refuse(errno.ENOENT)
        assert isinstance(gone, Monitor)
        del self.entries[name]
        gone.end()


class Monitor(Directory):
    """A group whose tasks are counted apart, all of one control group."""

    def __init__(self, group: Group, counters: Counters) -> None:
        super().__init__()
        self.group = group
        self.counters = counters
        self.entries["tasks"] = Leaf(self._tasks, self._write_task)
        top = group.top()
        add_mon_data(self, top.domains, top.options.events, lambda: [self.counters])
        if top.options.mbm_counters:
            self.entries["mbm_L3_assignments"] = assignments(counters, top.rmids.pool, top)

    def end(self) -> None:
        """It is removed, alone or with its control group."""
        top = self.group.top()
        top.watched = {thread: each for thread, each in top.watched.items() if each is not self}
        top.rmids.free(self.group.closid, self.counters)
        self.removed = True

    def _tasks(self) -> str:
        watched = self.group.top().watched
        mine = [t.tid for t in self.group.machine.threads() if watched.get(t) is self]
        return "".join(f"{tid}\n" for tid in sorted(mine))

    def _write_task(self, text: str) -> None:
        top = self.group.top()
        thread = top.thread(text)
        if top.group_of(thread) is not self.group:
            top.fail("Can't move task to different control group")
        top.watched[thread] = self
