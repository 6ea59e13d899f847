"""/sys/fs/resctrl as fs/resctrl has it: groups, schemata that are checked, last_cmd_status."""

from __future__ import annotations

import errno
from collections.abc import Callable

from koordlet_fakefs.machine import Machine, Resctrl, Thread
from koordlet_fakefs.parse import number_in, refuse, strip
from koordlet_fakefs.tree import Directory, Leaf, add_directory

WAYS = 11
FULL_MASK = (1 << WAYS) - 1
CLOSIDS = 8
"""Groups at most, the default one counted; half of it with code and data apart."""
MONITORED = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")


class Group(Directory):
    """A control group. ``lines``: name of a line of the L3 cache -> cache id -> ways, ``masks``
    the first of them; ``percents``: cache id -> memory bandwidth. ``monitored``: counter -> its
    value."""

    mkdir_errno = errno.EPERM

    def __init__(self, root: Root | None, machine: Machine, caches: list[int]) -> None:
        super().__init__()
        self.machine = machine
        self.root = root or self
        options = self.top().options
        names = ("L3CODE", "L3DATA") if options.cdp else ("L3",)
        self.lines = {name: dict.fromkeys(caches, FULL_MASK) for name in names}
        self.masks = self.lines[names[0]]
        self.percents = dict.fromkeys(caches, options.most)
        self.entries["schemata"] = Leaf(self._schemata, self._write_schemata)
        self.entries["tasks"] = Leaf(self._tasks, self._write_task)
        self.entries["mode"] = Leaf(lambda: "shareable\n")
        self.monitored: dict[str, int] = dict.fromkeys(MONITORED, 0)
        self.entries["mon_groups"] = Monitors(self)
        for cache in caches:
            counters = add_directory(self, f"mon_data/mon_L3_{cache:02}")
            for name in MONITORED:
                counters.entries[name] = _counter(self.monitored, name)

    def _schemata(self) -> str:
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
        mine = [t.tid for t in self.machine.threads() if self.top().group_of(t) is self]
        return "".join(f"{tid}\n" for tid in sorted(mine))

    def _write_task(self, text: str) -> None:
        top = self.top()
        top.status = ""
        tid = number_in(strip(text), 0, (1 << 31) - 1, errno.EINVAL)
        try:
            thread = self.machine.thread(tid)
        except OSError:
            top.status = f"No task {tid}\n"
            raise
        top.moved[thread] = self
        top.watched.pop(thread, None)

    def top(self) -> Root:
        assert isinstance(self.root, Root)
        return self.root


class Monitors(Directory):
    """``mon_groups`` of a control group."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group

    def mkdir(self, name: str) -> None:
        if name in self.entries:
            raise refuse(errno.EEXIST)
        self.entries[name] = Monitor(self.group)

    def rmdir(self, name: str) -> None:
        top = self.group.top()
        gone = self.entries.pop(name)
        top.watched = {thread: each for thread, each in top.watched.items() if each is not gone}


class Monitor(Directory):
    """A group whose tasks are counted apart, all of one control group."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.group = group
        self.entries["tasks"] = Leaf(self._tasks, self._write_task)

    def _tasks(self) -> str:
        watched = self.group.top().watched
        mine = [t.tid for t in self.group.machine.threads() if watched.get(t) is self]
        return "".join(f"{tid}\n" for tid in sorted(mine))

    def _write_task(self, text: str) -> None:
        top = self.group.top()
        top.status = ""
        thread = self.group.machine.thread(int(text))
        if top.group_of(thread) is not self.group:
            top.fail("Can't move task to different control group")
        top.watched[thread] = self


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
        super().__init__(None, machine, self.caches)
        info = {
            "MB/min_bandwidth": str(options.least),
            "MB/bandwidth_gran": str(options.step),
            "MB/num_closids": str(CLOSIDS),
        }
        for name in self.lines:
            info[f"{name}/cbm_mask"] = f"{FULL_MASK:x}"
            info[f"{name}/min_cbm_bits"] = str(options.min_ways)
            info[f"{name}/num_closids"] = str(self.closids)
        for path, text in info.items():
            directory, _, name = f"info/{path}".rpartition("/")
            add_directory(self, directory).entries[name] = _constant(text)
        add_directory(self, "info").entries["last_cmd_status"] = Leaf(lambda: self.status or "ok\n")

    def group_of(self, thread: Thread) -> Group:
        return self.moved.get(thread, self)

    def mkdir(self, name: str) -> None:
        self.status = ""
        if name in self.entries:
            raise refuse(errno.EEXIST)
        if "\n" in name:
            raise refuse(errno.EINVAL)
        if sum(isinstance(each, Group) for each in self.entries.values()) + 1 >= self.closids:
            self.fail("Out of CLOSIDs", errno.ENOSPC)
        self.entries[name] = Group(self, self.machine, self.caches)

    def rmdir(self, name: str) -> None:
        """Its tasks are in the default group again."""
        group = self.entries.get(name)
        if group is None:
            raise refuse(errno.ENOENT)
        if not isinstance(group, Group):
            raise refuse(errno.EPERM)
        self.moved = {thread: each for thread, each in self.moved.items() if each is not group}
        self.watched = {t: each for t, each in self.watched.items() if each.group is not group}
        del self.entries[name]
        group.removed = True

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
        """Rounded up to the step of the hardware."""
        if not text.isdigit():
            self.fail(f"Invalid MB value {text}")
        percent = int(text)
        options = self.options
        if not options.least <= percent <= options.most:
            self.fail(f"MB value {percent} out of range [{options.least},{options.most}]")
        return -(-percent // options.step) * options.step


def mount(machine: Machine, sys: Directory) -> Root:
    root = Root(machine)
    add_directory(sys, "fs").entries["resctrl"] = root
    return root


def _counter(monitored: dict[str, int], name: str) -> Leaf:
    """The same on every cache; a test sets it, -1 for what the hardware cannot tell now."""
    read: Callable[[], str] = lambda: (  # noqa: E731
        f"{monitored[name]}\n" if monitored[name] >= 0 else "Unavailable\n"
    )
    return Leaf(read, open_errno=errno.EACCES)


def _constant(text: str) -> Leaf:
    read: Callable[[], str] = lambda: f"{text}\n"  # noqa: E731
    return Leaf(read, open_errno=errno.EACCES)
