"""Monitor groups of the resctrl file system: what the tasks of one occupy of the L3 cache, and
their memory traffic (Linux ``Documentation/arch/x86/resctrl.rst``, ``fs/resctrl/monitor.c``).

Each group takes an RMID, control groups as well. That of a removed group is in limbo until the
caches have forgotten it.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from koordlet.decision.resctrl import (
    GROUP_PREFIX,
    MONITORS,
    PRESENT,
    control_group,
    monitor_group,
)
from koordlet.decision.resource import ABSENT, Resource, Value
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.host import Host, read_lines
from koordlet.kernel.parse import ParseError
from koordlet.kernel.proc.members import vanished
from koordlet.kernel.resctrl import (
    OTHER_DIRECTORIES,
    Inside,
    control_groups,
    explained,
    is_ours,
    monitor_groups,
    mount_point,
    require_mounted,
)
from koordlet.kernel.resctrl_info import assigns_counters

OCCUPANCY = "llc_occupancy"
TRAFFIC = ("mbm_local_bytes", "mbm_total_bytes")

NO_RMID = "every RMID has a group, so its tasks are counted with their control group"
IN_LIMBO = "RMIDs of removed groups are in limbo until the caches have forgotten them"

INDEX_S = 1.0
"""How long the list of who is in which monitor group is used again for threads that are not where
they were: each ``tasks`` file makes the kernel walk all threads."""

_EVENTS = (OCCUPANCY, *TRAFFIC)
_DEFAULTS = {"mbm_total_bytes": "0x7f", "mbm_local_bytes": "0x15"}
"""Masks of the kinds of traffic that an event counts, where AMD's can be set."""
_LOCAL = {"local_reads", "local_non_temporal_writes"}
_REMOTE = {"remote_reads", "remote_non_temporal_writes", "dirty_victim_writes_all"}
_KINDS = {"mbm_total_bytes": _LOCAL | _REMOTE, "mbm_local_bytes": _LOCAL}
"""The same by name, where counters are assigned."""
_NOT_NOW = (b"Unavailable", b"Error", b"Unassigned")
"""What a counter reads as while there is none for the group."""


class Counting(NamedTuple):
    """What every group counts: files ``mon_data/mon_L3_<cache>/<event>``. With sub-NUMA clusters
    each is the sum of the nodes that share the cache. ``changed``: events of memory traffic that
    do not count what their names say, each with what it was set to. ``assigned``: groups share
    counters of memory traffic, see ``assigns_counters``."""

    caches: tuple[int, ...] = ()
    events: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    assigned: bool = False


def counting(host: Host, sys_root: str = "/sys") -> Counting:
    """Nothing where resctrl is not mounted or the processor counts nothing. Raises OSError."""
    root = mount_point(sys_root)
    try:
        features = host.read(f"{root}/info/L3_MON/mon_features").decode().split()
        domains = host.subdirs(f"{root}/mon_data")
    except OSError as error:
        if vanished(error):
            return Counting()
        raise
    numbers = (domain.removeprefix("mon_L3_") for domain in domains)
    caches = sorted(int(number) for number in numbers if number.isdigit())
    events = tuple(each for each in _EVENTS if each in features)
    about, assigned = f"{root}/info/L3_MON", assigns_counters(host, root)
    traffic = [each for each in TRAFFIC if each in events]
    changed = (
        _filtered(host, f"{about}/event_configs/{each}/event_filter", each)
        if assigned
        else _masked(host, f"{about}/{each}_config", each)
        for each in traffic
        if assigned or f"{each}_config" in features
    )
    return Counting(tuple(caches), events, tuple(filter(None, changed)), assigned)


def _masked(host: Host, path: str, event: str) -> str:
    """Empty where the event counts what it does after boot. ``path`` holds a mask of kinds of
    traffic for each cache, such as ``0=0x7f;1=0x7f``."""
    text = _setting(host, path)
    masks = [each.partition("=")[2] for each in text.split(";")]
    is_usual = not text or all(each == _DEFAULTS[event] for each in masks)
    return "" if is_usual else f"{event} is set to {text[:80]}"


def _filtered(host: Host, path: str, event: str) -> str:
    """The same where ``path`` lists kinds of traffic for all caches, such as
    ``local_reads,remote_reads``: all there are, or the local ones. Those of slow memory are left
    out, because not every machine has them, and nothing is told on Arm."""
    text = _setting(host, path)
    kinds = {each for each in text.split(",") if each and not each.endswith("_slow_memory")}
    is_usual = kinds in (set(), _KINDS[event])
    return "" if is_usual else f"{event} is set to {text[:160]}"


def _setting(host: Host, path: str) -> str:
    try:
        return host.read(path).decode(errors="replace").strip()
    except OSError as error:
        if vanished(error):
            return ""
        raise


def without_counter(host: Host, group: str) -> bool:
    """Return whether some memory traffic of a group is not counted, because an event of it has no
    counter in some cache. ``group``: its directory. Raises OSError."""
    path = f"{group}/mbm_L3_assignments"
    lines = read_lines(host, path).splitlines()
    slots = (slot for line in lines for slot in line.partition(b":")[2].split(b";"))
    return any(slot.partition(b"=")[2].strip() == b"_" for slot in slots)


def counters(host: Host, group: str, what: Counting) -> dict[tuple[int, str], int]:
    """(L3 cache id, event) -> what it counts; left out what the hardware cannot tell at the
    moment. ``group``: its directory. Raises OSError and ParseError.

    Each file makes the kernel ask a CPU that shares the cache, and waits for it.
    """
    found = {}
    for cache in what.caches:
        for event in what.events:
            path = f"{group}/mon_data/mon_L3_{cache:02}/{event}"
            text = read_lines(host, path).strip()
            if text.isdigit():
                found[cache, event] = int(text)
            elif text not in _NOT_NOW:
                raise ParseError(path, 1, f"{text[:40]!r} is no counter")
    return found


def our_groups(host: Host, sys_root: str = "/sys") -> dict[str, int]:
    """Paths below resctrl of all control and monitor groups with a name of ours -> inode, another
    one once the group was made anew. Raises OSError."""
    root = mount_point(sys_root)
    controls = _listed(host, root)
    found = {name: inode for name, inode in controls.items() if is_ours(name)}
    for control in ("", *(name for name in controls if name not in OTHER_DIRECTORIES)):
        monitors = _listed(host, f"{root}/{monitor_group(control, '')}".rstrip("/"))
        found |= {
            monitor_group(control, name): inode for name, inode in monitors.items() if is_ours(name)
        }
    return found


def _listed(host: Host, directory: str) -> dict[str, int]:
    try:
        return host.subdir_inodes(directory)
    except OSError as error:
        if vanished(error):
            return {}
        raise


def check_monitor(group: str) -> None:
    """Raises ValueError for a monitor group that is not ours to write."""
    control, name = control_group(group), group.rpartition("/")[2]
    is_monitor = group == monitor_group(control, name) and control not in OTHER_DIRECTORIES
    is_path = "/" in control or control in (".", "..") or "\n" in group or "\0" in group
    if not is_monitor or is_path or not name.startswith(GROUP_PREFIX):
        raise ValueError(
            f"resctrl group {group!r}: it must be GROUP/{MONITORS}/{GROUP_PREFIX}NAME, or "
            f"{MONITORS}/{GROUP_PREFIX}NAME in the default group"
        )


def require_monitoring(host: Host, root: str, resource: Resource) -> None:
    require_mounted(host, root, resource)
    if not host.exists(f"{root}/{MONITORS}"):
        why = f"{root}/{MONITORS} does not exist: the processor counts nothing"
        raise Unsupported(resource, why)


class ResctrlMonitorGroups:
    """``RESCTRL_MONITOR_GROUP``: a group's path below resctrl stands in the place of the cgroup.
    ``PRESENT`` or ``ABSENT``. Raises as ``Cgroups`` does."""

    def __init__(self, host: Host, sys_root: str) -> None:
        self._host = host
        self._root = mount_point(sys_root)

    def path(self, cgroup: str, resource: Resource) -> str:
        check_monitor(cgroup)
        require_monitoring(self._host, self._root, resource)
        return f"{self._root}/{cgroup}"

    def id(self, cgroup: str, resource: Resource) -> int:
        """Always 0: a name is ours, whoever made its group."""
        return 0

    def encode(self, resource: Resource, value: Value) -> bytes:
        if value not in (ABSENT, PRESENT):
            raise ValueError(f"{resource}: {value!r} is neither {ABSENT!r} nor {PRESENT!r}")
        return str(value).encode()

    def equal(self, resource: Resource, wanted: Value, found: Value) -> bool:
        return wanted == found

    def read(self, cgroup: str, resource: Resource) -> Value:
        return PRESENT if self._host.exists(self.path(cgroup, resource)) else ABSENT

    def read_raw(self, cgroup: str, resource: Resource) -> bytes:
        return str(self.read(cgroup, resource)).encode()

    def write(self, cgroup: str, resource: Resource, value: Value) -> None:
        self.write_raw(cgroup, resource, self.encode(resource, value))

    def write_raw(self, cgroup: str, resource: Resource, data: bytes) -> None:
        """Raises OSError EBUSY while RMIDs are in limbo, Unsupported where all have a group."""
        path = self.path(cgroup, resource)
        there = self._host.exists(path)
        try:
            if there and data == ABSENT.encode():
                self._host.rmdir(path)
            elif not there and data != ABSENT.encode():
                self._host.mkdir(path)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise Unsupported(resource, f"{NO_RMID}: {path}") from error
            if error.errno == errno.EBUSY and data != ABSENT.encode():
                raise OSError(errno.EBUSY, IN_LIMBO, path) from error
            raise explained(self._host, self._root, error) from error

    def holds(self, cgroup: str, resource: Resource, data: bytes) -> bool:
        return self.read_raw(cgroup, resource) == data


class ResctrlMonitors:
    """``RESCTRL_MONITOR``: the monitor group that counts the threads of a cgroup; ``""``: none,
    they count with their control group alone. A ``members.Trait``.

    A thread that enters a monitor group stays in its control group, and must be in that already.
    """

    resource = Resource.RESCTRL_MONITOR
    listed_in = Resource.TASKS

    def __init__(self, host: Host, sys_root: str, proc_root: str = "/proc") -> None:
        self._host = host
        self._root = mount_point(sys_root)
        self._proc_root = proc_root
        self._inside = Inside(host, self._root)
        self._index: dict[int, str] = {}
        """Thread -> its monitor group, as of ``_indexed_s`` and of our writes since."""
        self._indexed_s = -math.inf

    def require(self) -> None:
        require_monitoring(self._host, self._root, self.resource)

    def check(self, value: Value) -> str:
        if value != "":
            check_monitor(str(value))
        return str(value)

    def value(self, text: str) -> Value:
        return text

    def held(self, cgroup: str, ids: Sequence[int]) -> Mapping[int, str]:
        """Threads that are where they were are found by the one file of that group."""
        missing, found = set(ids), {}
        for group in {group for each in ids if (group := self._index.get(each))}:
            inside = missing & self._inside.threads(group)
            found.update(dict.fromkeys(inside, group))
            missing -= inside
        # Of thousands that start and end, some always end between two readings.
        missing = {each for each in missing if self._host.exists(f"{self._proc_root}/{each}")}
        now = self._host.monotonic()
        if missing and not 0 <= now - self._indexed_s < INDEX_S:
            self._index, self._indexed_s = self._everybody(), now
            found.update((each, self._index[each]) for each in missing & self._index.keys())
        return dict.fromkeys(missing, "") | found

    def back(self, text: str) -> str:
        """Threads of a group that has been removed count with its control group."""
        return text if text and self._host.exists(f"{self._root}/{text}") else ""

    def give(self, cgroup: str, ids: Sequence[int], text: str) -> None:
        if text and not self._host.exists(f"{self._root}/{text}"):
            raise Unsupported(self.resource, f"group {self._root}/{text} does not exist")
        # The way out of a monitor group is into the control group around it. A thread that was
        # just moved to another control group has left it already, and must not be taken back. A
        # thread in a monitor group of others stays there: another program wants it there.
        self._inside.forget()
        held = {} if text else self.held(cgroup, ids)
        left = {each: monitor for each, monitor in held.items() if is_ours(monitor)}
        self._inside.forget()
        for each in ids:
            monitor = left.get(each, "")
            group = text or control_group(monitor)
            directory = f"{self._root}/{group}" if group else self._root
            try:
                if text or monitor:
                    self._host.write(f"{directory}/tasks", b"%d" % each)
            except OSError as error:
                if not vanished(error):
                    raise self._explained(error) from error
                self._index.pop(each, None)
            else:
                self._index[each] = text

    def _everybody(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for control in ("", *control_groups(self._host, self._root)):
            for monitor in monitor_groups(self._host, self._root, control):
                found.update(dict.fromkeys(self._inside.read(monitor), monitor))
        return found

    def _explained(self, error: OSError) -> Exception:
        """A thread that another program has moved to another control group cannot be counted in
        this one; whoever chose the group looks again."""
        error = explained(self._host, self._root, error)
        if error.errno == errno.EINVAL:
            return Unsupported(self.resource, f"{error.filename}: {error.strerror}")
        return error
