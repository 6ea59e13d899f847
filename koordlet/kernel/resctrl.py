"""Groups of the resctrl file system: how much cache and memory bandwidth their tasks may use
(Linux ``Documentation/arch/x86/resctrl.rst``).

Only groups whose name begins with ``koordlet-`` are ever made, changed or removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from koordlet.decision.resctrl import (
    GROUP_PREFIX,
    MONITORS,
    control_group,
    monitor_group,
)
from koordlet.decision.resource import ABSENT, Resource, Value
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.host import Host, read_lines
from koordlet.kernel.parse import ParseError
from koordlet.kernel.proc.members import vanished

SEEN_S = 0.05
"""How long what a ``tasks`` file said is used again. Nobody but us moves tasks between groups that
often; a thread that starts meanwhile is in the group of its parent."""

MADE = ""
"""Schemata of a group of which only matters that it exists."""

L3_LINES = ("L3", "L3CODE", "L3DATA")
"""The last two stand in the place of the first on a mount with ``-o cdp``."""

_BASES = dict.fromkeys(L3_LINES, 16) | {"MB": 10}
"""The lines we write, with the base of their numbers."""

OTHER_DIRECTORIES = frozenset({"info", MONITORS, "mon_data"})
"""Beside control groups."""

Allocation = Mapping[tuple[str, int], int]
"""(line, cache id) -> mask of ways, or memory bandwidth."""


def mount_point(sys_root: str) -> str:
    return f"{sys_root}/fs/resctrl"


def require_mounted(host: Host, root: str, resource: Resource) -> None:
    if not host.exists(f"{root}/schemata"):
        remedy = f"where the processor has it: mount -t resctrl resctrl {root}"
        raise Unsupported(resource, f"{root}/schemata does not exist", remedy)


def in_mbps(allocation: Allocation) -> bool:
    """Mounted with ``-o mba_MBps`` a line MB is in MB/s, and all of it is 2^32 - 1."""
    return any(line == "MB" and value >= 1 << 31 for (line, _), value in allocation.items())


def control_groups(host: Host, root: str) -> list[str]:
    """Without the default one. Raises OSError."""
    return [name for name in host.subdirs(root) if name not in OTHER_DIRECTORIES]


def monitor_groups(host: Host, root: str, control: str) -> list[str]:
    """Paths of those in a control group; none where nothing counts. Raises OSError."""
    try:
        names = host.subdirs(f"{root}/{monitor_group(control, '')}".rstrip("/"))
    except OSError as error:
        if vanished(error):
            return []
        raise
    return [monitor_group(control, name) for name in names]


def is_ours(group: str) -> bool:
    return group.rpartition("/")[2].startswith(GROUP_PREFIX)


def parse(data: bytes, path: str) -> dict[tuple[str, int], int]:
    """The lines of ``_BASES`` in a schemata file; others (L2, SMBA ...) are left out."""
    found = {}
    for number, line in enumerate(data.decode(errors="replace").splitlines(), start=1):
        name, _, domains = line.partition(":")
        if (base := _BASES.get(name.strip())) is None:
            continue
        for domain in filter(None, domains.strip().split(";")):
            cache, _, value = domain.partition("=")
            try:
                found[name.strip(), int(cache)] = int(value, base)
            except ValueError as error:
                raise ParseError(path, number, f"{domain!r} is not ID=VALUE") from error
    return found


def format_schemata(allocation: Allocation) -> str:
    """One line for each name, cache ids ascending, as the file takes it."""
    lines: dict[str, list[str]] = {}
    for (name, cache), value in sorted(allocation.items()):
        lines.setdefault(name, []).append(f"{cache}={value:{'x' if _BASES[name] == 16 else 'd'}}")
    return "".join(f"{name}:{';'.join(each)}\n" for name, each in lines.items())


class ResctrlGroups:
    """``RESCTRL_SCHEMATA``: a group's name stands in the place of the cgroup. Raises as
    ``Cgroups`` does; ``ABSENT`` is a group that does not exist.

    What a value does not list is as in the default group.
    """

    def __init__(self, host: Host, sys_root: str) -> None:
        self._host = host
        self._root = mount_point(sys_root)

    def path(self, cgroup: str, resource: Resource) -> str:
        check_name(cgroup)
        require_mounted(self._host, self._root, resource)
        return f"{self._root}/{cgroup}/schemata"

    def id(self, cgroup: str, resource: Resource) -> int:
        """Always 0: a name is ours, whoever made its group."""
        return 0

    def encode(self, resource: Resource, value: Value) -> bytes:
        if value in (ABSENT, MADE):
            return str(value).encode()
        if not isinstance(value, str):
            raise ValueError(f"{resource}: {value!r} is not the text of a schemata file")
        for line in value.splitlines():
            name, _, domains = line.partition(":")
            if name not in _BASES or not domains.strip():
                raise ValueError(f"{resource}: {line!r} is no line of {' or '.join(_BASES)}")
        return format_schemata(parse(value.encode(), resource)).encode()

    def equal(self, resource: Resource, wanted: Value, found: Value) -> bool:
        if ABSENT in (wanted, found) or wanted == MADE:
            return (wanted == ABSENT) == (found == ABSENT)
        default = self._read(f"{self._root}/schemata")
        return {**default, **parse(str(wanted).encode(), resource)} == {
            **default,
            **parse(str(found).encode(), resource),
        }

    def read(self, cgroup: str, resource: Resource) -> Value:
        path = self.path(cgroup, resource)
        if not self._host.exists(path):
            return ABSENT
        return format_schemata(self._read(path))

    def read_raw(self, cgroup: str, resource: Resource) -> bytes:
        return str(self.read(cgroup, resource)).encode()

    def write(self, cgroup: str, resource: Resource, value: Value) -> None:
        self.write_raw(cgroup, resource, self.encode(resource, value))

    def write_raw(self, cgroup: str, resource: Resource, data: bytes) -> None:
        path = self.path(cgroup, resource)
        directory = path.rpartition("/")[0]
        there = self._host.exists(directory)
        try:
            if data == ABSENT.encode():
                if there:
                    self._host.rmdir(directory)
                return
            if not there:
                self._host.mkdir(directory)
            if data:
                wanted = {**self._read(f"{self._root}/schemata"), **parse(data, resource)}
                found = self._read(path)
                listed = {key for key in wanted if key in parse(data, resource)}
                changed = {k: v for k, v in wanted.items() if k in listed or found.get(k) != v}
                self._host.write(path, format_schemata(changed).encode())
        except OSError as error:
            raise self._explained(error) from error

    def holds(self, cgroup: str, resource: Resource, data: bytes) -> bool:
        return self.read_raw(cgroup, resource) == data

    def _read(self, path: str) -> dict[tuple[str, int], int]:
        return parse(read_lines(self._host, path), path)

    def _explained(self, error: OSError) -> OSError:
        return explained(self._host, self._root, error)


class Inside:
    """Who is in a group, of a moment ago: who came or went since is seen the next time."""

    def __init__(self, host: Host, root: str) -> None:
        self._host = host
        self._root = root
        self._seen: dict[tuple[str, int], tuple[float, frozenset[int]]] = {}
        """Group and inode -> when it was read, and who was in it: the cgroups of a class are asked
        about one after the other, and are all in one group. A group made anew has another inode."""

    def threads(self, group: str) -> frozenset[int]:
        now = self._host.monotonic()
        try:
            made = group, self._host.inode(f"{self._root}/{group}")
        except OSError as error:
            if vanished(error):
                return frozenset()
            raise
        seen = self._seen.get(made)
        if seen is None or not 0 <= now - seen[0] < SEEN_S:
            self._seen = {key: old for key, old in self._seen.items() if key[0] != group}
            seen = self._seen[made] = now, self.read(group)
        return seen[1]

    def read(self, group: str) -> frozenset[int]:
        """As of now."""
        try:
            data = read_lines(self._host, f"{self._root}/{group}/tasks")
        except OSError as error:
            if vanished(error):
                return frozenset()
            raise
        return frozenset(map(int, data.split()))

    def forget(self) -> None:
        self._seen.clear()


class ResctrlTasks:
    """``RESCTRL_GROUP``: the group that holds the threads of a cgroup; ``""`` is the default
    one. A ``members.Trait``.

    ``GROUP/mon_groups/NAME`` is a monitor group of somebody. Who is moved to another control group
    leaves it, and is put back into both. For ours see ``ResctrlMonitors``.
    """

    resource = Resource.RESCTRL_GROUP
    listed_in = Resource.TASKS

    def __init__(self, host: Host, sys_root: str) -> None:
        self._host = host
        self._root = mount_point(sys_root)
        self._last: dict[str, str] = {}
        """Cgroup -> the group where its threads were: looked at first."""
        self._inside = Inside(host, self._root)

    def require(self) -> None:
        require_mounted(self._host, self._root, self.resource)

    def check(self, value: Value) -> str:
        if value != "":
            check_name(str(value))
        return str(value)

    def value(self, text: str) -> Value:
        return text

    def held(self, cgroup: str, ids: Sequence[int]) -> Mapping[int, str]:
        last = self._last.pop(cgroup, "")
        groups = control_groups(self._host, self._root)
        missing, found = set(ids), {}
        for group in sorted(groups, key=lambda name: name != last):
            inside = missing & self._inside.threads(group)
            found.update(dict.fromkeys(inside, group))
            missing -= inside
            if not missing:
                break
        if found:
            self._last[cgroup] = next(iter(found.values()))
        # The rest is in the default group, or has vanished, which nobody minds.
        found |= dict.fromkeys(missing, "")
        for group in {name for name in found.values() if not name.startswith(GROUP_PREFIX)}:
            for monitor in monitor_groups(self._host, self._root, group):
                if not is_ours(monitor):
                    inside = found.keys() & self._inside.threads(monitor)
                    found |= dict.fromkeys(inside, monitor)
        return found

    def back(self, text: str) -> str:
        """The kernel gives those of a group that is removed to the one around it."""
        for group in (text, control_group(text)):
            if group and self._host.exists(f"{self._root}/{group}"):
                return group
        return ""

    def give(self, cgroup: str, ids: Sequence[int], text: str) -> None:
        # A monitor group takes nobody but those of its control group.
        groups = [*dict.fromkeys((control_group(text), text))]
        directories = [f"{self._root}/{group}" if group else self._root for group in groups]
        for directory in directories:
            if not self._host.exists(directory):
                raise Unsupported(self.resource, f"group {directory} does not exist")
        self._inside.forget()
        for each in ids:
            try:
                for directory in directories:
                    self._host.write(f"{directory}/tasks", b"%d" % each)
            except OSError as error:
                if not vanished(error):
                    raise explained(self._host, self._root, error) from error


def check_name(group: str) -> None:
    """Raises ValueError for a group that is not ours to write."""
    if not group.startswith(GROUP_PREFIX) or "/" in group or "\n" in group or "\0" in group:
        raise ValueError(f"resctrl group {group!r}: its name must begin with {GROUP_PREFIX}")


def explained(host: Host, root: str, error: OSError) -> OSError:
    """With what the kernel says about its last refusal."""
    try:
        status = host.read(f"{root}/info/last_cmd_status").decode(errors="replace").strip()
    except OSError:
        return error
    if status in ("", "ok"):
        return error
    return OSError(error.errno, f"{error.strerror}; the kernel says: {status}", error.filename)
