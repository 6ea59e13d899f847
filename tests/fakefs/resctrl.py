"""/sys/fs/resctrl as fs/resctrl has it: groups, schemata that are checked, last_cmd_status."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

from koordlet_fakefs.machine import Machine, Process, Resctrl, Thread
from koordlet_fakefs.parse import number_in, refuse, strip
from koordlet_fakefs.resctrl_counters import assignments
from koordlet_fakefs.resctrl_monitor import (
    Counters,
    Monitor,
    Monitors,
    Rmids,
    add_info,
    add_mon_data,
    domains_of,
)
from koordlet_fakefs.tree import Directory, Leaf, add_directory

WAYS = 11
FULL_MASK = (1 << WAYS) - 1
CLOSIDS = 8
"""Groups at most, the default one counted; half of it with code and data apart."""


class Group(Directory):
    """A control group. ``lines``: name of a line of the L3 cache -> cache id -> ways, ``masks``
    the first of them; ``percents``: cache id -> memory bandwidth. ``counters``: of its own RMID,
    None where nothing counts."""

    mkdir_errno = errno.EPERM

    def __init__(
        self,
        root: Root | None,
        machine: Machine,
        caches: list[int],
        closid: int,
        counters: Counters | None,
    ) -> None:
        super().__init__()
        self.machine = machine
        self.root = root or self
        self.closid = closid
        self.counters = counters
        options = self.top().options
        names = ("L3CODE", "L3DATA") if options.cdp else ("L3",)
        self.lines = {name: dict.fromkeys(caches, FULL_MASK) for name in names}
        self.masks = self.lines[names[0]]
        self.percents = dict.fromkeys(caches, options.most)
        self.entries["schemata"] = Leaf(self._schemata, self._write_schemata)
        self.entries["tasks"] = Leaf(self._tasks, self._write_task)
        self.entries["mode"] = Leaf(lambda: "shareable\n")
        if counters is not None:
            self.entries["mon_groups"] = Monitors(self)
            add_mon_data(self, self.top().domains, options.events, self.counted)
            if options.mbm_counters:
                pool = self.top().rmids.pool
                self.entries["mbm_L3_assignments"] = assignments(counters, pool, self.top())

    def monitors(self) -> Iterator[Monitor]:
        found = self.entries.get("mon_groups")
        return found.groups() if isinstance(found, Monitors) else iter(())

    def counted(self) -> list[Counters]:
        """Its own, and those of its monitor groups: the files of a control group are sums."""
        own = [] if self.counters is None else [self.counters]
        return [*own, *(each.counters for each in self.monitors())]

    def end(self) -> None:
        """Its tasks are in the default group again, with those of its monitor groups."""
        top = self.top()
        top.moved = {thread: each for thread, each in top.moved.items() if each is not self}
        if self.counters is not None:
            top.rmids.free(self.closid, self.counters)
        for monitor in tuple(self.monitors()):
            monitor.end()
        self.removed = True

    def _schemata(self) -> str:
        if not self.top().options.allocates:
            return ""
        width = len(f"{FULL_MASK:x}")
        percents = ";".join(f"{cache}={each:>3}" for cache, each in self.percents.items())
        text = f"{'MB':>6}:{percents}\n"
        for name, line in self.lines.items():
            masks = ";".join(f"{cache}={mask:0{width}x}" for cache, mask in line.items())
            text += f"{name:>6}:{masks}\n"
        return text

    def _write_schemata(self, text: str) -> None:
        top = self.top()
        if not text.endswith("\n"):
            raise refuse(errno.EINVAL)
        top.status = ""
        staged: dict[str, dict[int, int]] = {name: {} for name in (*self.lines, "MB")}
        for line in text[:-1].split("\n"):
            name, colon, domains = line.partition(":")
            name = strip(name)
            if not colon:
                top.fail("Missing ':'")
            if not strip(domains):
                top.fail(f"Missing '{name}' value")
            if name not in staged:
                top.fail(f"Unknown or unsupported resource name '{name}'")
            self._stage(name, domains, staged[name])
        for line, masks in self.lines.items():
            masks |= staged[line]
        self.percents |= staged["MB"]

    def _stage(self, name: str, domains: str, staged: dict[int, int]) -> None:
        top = self.top()
        while domains:
            domain, _, domains = domains.partition(";")
            number, equals, value = domain.partition("=")
            if not equals or not strip(number).isdigit():
                top.fail("Missing '=' or non-numeric domain")
            cache = int(number)
            if cache not in self.masks:
                raise refuse(errno.EINVAL)
            if cache in staged:
                top.fail(f"Duplicate domain {cache}")
            check = top.check_percent if name == "MB" else top.check_mask
            staged[cache] = check(strip(value))

    def _tasks(self) -> str:
        """Those of its monitor groups too; nobody where nothing is allocated."""
        if not self.top().options.allocates:
            return ""
        mine = [t.tid for t in self.machine.threads() if self.top().group_of(t) is self]
        return "".join(f"{tid}\n" for tid in sorted(mine))

    def _write_task(self, text: str) -> None:
        """It leaves its monitor group, one of this group as well."""
        top = self.top()
        thread = top.thread(text)
        top.moved[thread] = self
        top.watched.pop(thread, None)

    def top(self) -> Root:
        assert isinstance(self.root, Root)
        return self.root


class Root(Group):
    """The default group, and the others below it."""

    def __init__(self, machine: Machine) -> None:
        self.status = ""
        self.moved: dict[Thread, Group] = {}
        self.watched: dict[Thread, Monitor] = {}
        found = machine.options.resctrl
        self.options = options = found if isinstance(found, Resctrl) else Resctrl()
        self.closids = CLOSIDS // 2 if options.cdp else CLOSIDS
        topology = {cpu.l3 for cpu in machine.options.topology.cpus}
        self.caches = list(options.cache_ids) or sorted(topology)
        self.domains = domains_of(self.caches, options.nodes_per_cache)
        self.rmids = Rmids(machine, options, [each for d in self.domains.values() for each in d])
        self.rmids.closids = self.closids
        own = self.rmids.take(0) if options.events else None
        super().__init__(None, machine, self.caches, 0, own)
        info = {}
        if options.allocates:
            info = {
                "MB/min_bandwidth": str(options.least),
                "MB/bandwidth_gran": str(options.step),
                "MB/num_closids": str(CLOSIDS),
            }
        for name in self.lines if options.allocates else ():
            info[f"{name}/cbm_mask"] = f"{FULL_MASK:x}"
            info[f"{name}/min_cbm_bits"] = str(options.min_ways)
            info[f"{name}/num_closids"] = str(self.closids)
        for path, text in info.items():
            directory, _, name = f"info/{path}".rpartition("/")
            add_directory(self, directory).entries[name] = _constant(text)
        about = add_directory(self, "info")
        about.entries["last_cmd_status"] = Leaf(lambda: self.status or "ok\n")
        if options.events:
            add_info(about, self, self.counters_of)

    def groups(self) -> Iterator[Group]:
        """Control groups, the default one first."""
        yield self
        yield from (each for each in self.entries.values() if isinstance(each, Group))

    def counters_of(self) -> Iterator[Counters]:
        """Of every group there is."""
        for group in self.groups():
            yield from group.counted()

    def group_of(self, thread: Thread) -> Group:
        return self.moved.get(thread, self)

    def thread(self, text: str) -> Thread:
        """Whom a write to a ``tasks`` file names."""
        self.status = ""
        tid = number_in(strip(text), 0, (1 << 31) - 1, errno.EINVAL)
        try:
            return self.machine.thread(tid)
        except OSError:
            self.status = f"No task {tid}\n"
            raise

    def rmid_for(self, closid: int) -> Counters:
        """What a new group counts with. A new one has counted nothing."""
        try:
            found = self.rmids.take(closid)
        except OSError:
            self.status = "Out of RMIDs\n"
            raise
        self.status = self.rmids.failed
        return found

    def mkdir(self, name: str) -> None:
        if "\n" in name:
            raise refuse(errno.EINVAL)
        self.status = ""
        if not self.options.allocates:
            raise refuse(errno.EPERM)
        if name in self.entries:
            self.fail("kernfs create error", errno.EEXIST)
        taken = {group.closid for group in self.groups()}
        closids = [each for each in range(self.closids) if each not in taken]
        if not closids:
            self.fail("Out of CLOSIDs", errno.ENOSPC)
        closid = min(closids, key=self.rmids.dirty)
        counters = self.rmid_for(closid) if self.options.events else None
        self.entries[name] = Group(self, self.machine, self.caches, closid, counters)

    def rmdir(self, name: str) -> None:
        group = self.entries.get(name)
        if group is None:
            raise refuse(errno.ENOENT)
        if not isinstance(group, Group):
            raise refuse(errno.EPERM)
        del self.entries[name]
        group.end()

    # --- The test's side

    def fork(self, parent: Process, child: Process) -> None:
        """The threads of ``child`` are where the first of ``parent`` is."""
        first = parent.threads[parent.pid]
        for thread in child.threads.values():
            if first in self.moved:
                self.moved[thread] = self.moved[first]
            if first in self.watched:
                self.watched[thread] = self.watched[first]

    def remount(self) -> None:
        """Unmounted and mounted again: the default group alone is left, and counts from 0."""
        for name in [name for name, each in self.entries.items() if isinstance(each, Group)]:
            self.rmdir(name)
        monitors = self.entries.get("mon_groups")
        for name in monitors.names() if isinstance(monitors, Monitors) else ():
            monitors.rmdir(name)
        self.moved.clear()
        if self.counters is not None:
            for key in self.counters.values:
                if key[1].startswith("mbm"):
                    self.counters.values[key] = 0

    def fail(self, text: str, code: int = errno.EINVAL) -> None:
        self.status = f"{text}\n"
        raise refuse(code)

    def check_mask(self, text: str) -> int:
        try:
            mask = int(text, 16)
        except ValueError:
            mask = -1
        if mask < 0:
            self.fail(f"Non-hex character in the mask {text}")
        if not 0 < mask <= FULL_MASK:
            self.fail("Mask out of range")
        lowest = mask & -mask
        if mask + lowest & mask:
            self.fail(f"The mask {mask:x} has non-consecutive 1-bits")
        if mask.bit_count() < self.options.min_ways:
            self.fail(f"Need at least {self.options.min_ways} bits in the mask")
        return mask

    def check_percent(self, text: str) -> int:
        """Rounded up to the step of the hardware, then to the nearest band where it has some."""
        if not text.isdigit():
            self.fail(f"Invalid MB value {text}")
        percent = int(text)
        options = self.options
        if not options.least <= percent <= options.most:
            self.fail(f"MB value {percent} out of range [{options.least},{options.most}]")
        percent = -(-percent // options.step) * options.step
        if options.bands:
            band = min(max((percent * options.bands + 50) // 100, 1), options.bands)
            percent = (200 * band // options.bands + 1) // 2
        return percent


def mount(machine: Machine, sys: Directory) -> Root:
    root = Root(machine)
    add_directory(sys, "fs").entries["resctrl"] = root
    return root


def _constant(text: str) -> Leaf:
    read: Callable[[], str] = lambda: f"{text}\n"  # noqa: E731
    return Leaf(read, open_errno=errno.EACCES)
