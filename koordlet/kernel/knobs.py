"""All that may be set on a host behind one set of calls: files of cgroups, values of their
processes, resctrl groups, switches and files of the whole machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup import Cgroups
from koordlet.kernel.cgroup_table import TABLE
from koordlet.kernel.core_sched import CoreSched
from koordlet.kernel.host import Host
from koordlet.kernel.host_files import TERWAY_DIR, HostFiles
from koordlet.kernel.layout import Layout
from koordlet.kernel.members import Members
from koordlet.kernel.oom_score import OomScoreAdj
from koordlet.kernel.resctrl import ResctrlGroups, ResctrlTasks


class Backend(Protocol):
    """What serves some resources. All methods raise Unsupported where the host, or the cgroup,
    has no such thing, ValueError for a value or a cgroup that cannot be, FileNotFoundError or
    OSError ENODEV when the cgroup is gone, and any other OSError as the kernel gave it."""

    def path(self, cgroup: str, resource: Resource) -> str:
        """The file, or the words for what has none of its own."""
        ...

    def id(self, cgroup: str, resource: Resource) -> int:
        """Another number once the cgroup has been made anew."""
        ...

    def encode(self, resource: Resource, value: Value) -> bytes:
        """What ``write_raw`` takes for ``value``."""
        ...

    def equal(self, resource: Resource, wanted: Value, found: Value) -> bool: ...

    def read(self, cgroup: str, resource: Resource) -> Value: ...

    def read_raw(self, cgroup: str, resource: Resource) -> bytes:
        """What ``write_raw`` puts back."""
        ...

    def write(self, cgroup: str, resource: Resource, value: Value) -> None: ...

    def write_raw(self, cgroup: str, resource: Resource, data: bytes) -> None: ...

    def holds(self, cgroup: str, resource: Resource, data: bytes) -> bool:
        """Whether there is nothing that ``write_raw(data)`` would change."""
        ...


class Knobs:
    """A ``Backend`` for every resource, and the children of cgroups beside it."""

    def __init__(
        self,
        host: Host,
        cgroups: Cgroups,
        *,
        proc_root: str = "/proc",
        sys_root: str = "/sys",
        terway_dir: str = TERWAY_DIR,
    ) -> None:
        self._cgroups = cgroups
        self._cookies = CoreSched(host, cgroups)
        files = HostFiles(host, proc_root=proc_root, sys_root=sys_root, terway_dir=terway_dir)
        self._backends: dict[Resource, Backend] = {
            **dict.fromkeys(TABLE, cgroups),
            **dict.fromkeys(files.resources, files),
            Resource.RESCTRL_SCHEMATA: ResctrlGroups(host, sys_root),
        }
        for trait in (OomScoreAdj(host, proc_root), ResctrlTasks(host, sys_root)):
            self._backends[trait.resource] = Members(host, cgroups, trait, proc_root)
        self._backends[Resource.CORE_SCHED_GROUP] = Members(
            host, cgroups, self._cookies, proc_root, self._cookies.ids
        )

    @property
    def cookies(self) -> Mapping[str, int]:
        """Core-scheduling group -> its cookie."""
        return self._cookies.cookies

    @property
    def layout(self) -> Layout:
        return self._cgroups.layout

    def children(self, cgroup: str) -> tuple[str, ...]:
        return self._cgroups.children(cgroup)

    def adopt(self, written: Iterable[tuple[str, Resource, Sequence[Value]]]) -> None:
        """Learn from the journal what cannot be seen in the kernel: (cgroup, resource, values
        that it may hold)."""
        groups: Mapping[str, Sequence[str]] = {
            cgroup: [str(value) for value in values]
            for cgroup, resource, values in written
            if resource is Resource.CORE_SCHED_GROUP
        }
        if groups:
            self._cookies.adopt(groups)

    def path(self, cgroup: str, resource: Resource) -> str:
        return self._backends[resource].path(cgroup, resource)

    def id(self, cgroup: str, resource: Resource) -> int:
        return self._backends[resource].id(cgroup, resource)

    def encode(self, resource: Resource, value: Value) -> bytes:
        return self._backends[resource].encode(resource, value)

    def equal(self, resource: Resource, wanted: Value, found: Value) -> bool:
        return self._backends[resource].equal(resource, wanted, found)

    def read(self, cgroup: str, resource: Resource) -> Value:
        return self._backends[resource].read(cgroup, resource)

    def read_raw(self, cgroup: str, resource: Resource) -> bytes:
        return self._backends[resource].read_raw(cgroup, resource)

    def write(self, cgroup: str, resource: Resource, value: Value) -> None:
        self._backends[resource].write(cgroup, resource, value)

    def write_raw(self, cgroup: str, resource: Resource, data: bytes) -> None:
        self._backends[resource].write_raw(cgroup, resource, data)

    def holds(self, cgroup: str, resource: Resource, data: bytes) -> bool:
        return self._backends[resource].holds(cgroup, resource, data)
