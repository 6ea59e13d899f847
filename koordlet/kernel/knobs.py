"""All that may be set on a host behind one set of calls: files of cgroups, values of their
processes, resctrl groups, switches and files of the whole machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Protocol

from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup import kept
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.kept import KeptFiles
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.cgroup.table import TABLE
from koordlet.kernel.host import Host
from koordlet.kernel.host_files import TERWAY_DIR, HostFiles
from koordlet.kernel.proc import kill
from koordlet.kernel.proc.core_sched import CoreSched
from koordlet.kernel.proc.members import Members, Trait
from koordlet.kernel.proc.oom_score import OomScoreAdj
from koordlet.kernel.proc.spread import CpuSpread
from koordlet.kernel.resctrl import ResctrlGroups, ResctrlTasks
from koordlet.kernel.resctrl_monitor import ResctrlMonitorGroups, ResctrlMonitors

if TYPE_CHECKING:
    from koordlet.kernel.unit_properties import UnitProperties


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
        self._host = host
        self._cgroups = cgroups
        self._kept = KeptFiles(host, cgroups)
        self._cookies = CoreSched(host, cgroups)
        self.spread = CpuSpread(host, cgroups, proc_root)
        files = HostFiles(host, proc_root=proc_root, sys_root=sys_root, terway_dir=terway_dir)
        self._backends: dict[Resource, Backend] = {
            **dict.fromkeys(TABLE, cgroups),
            **dict.fromkeys(files.resources, files),
            Resource.CPU_SPREAD: self.spread,
            Resource.RESCTRL_SCHEMATA: ResctrlGroups(host, sys_root),
            Resource.RESCTRL_MONITOR_GROUP: ResctrlMonitorGroups(host, sys_root),
        }
        traits: tuple[Trait, ...] = (
            OomScoreAdj(host, proc_root),
            ResctrlTasks(host, sys_root),
            ResctrlMonitors(host, sys_root, proc_root),
        )
        for trait in traits:
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

    def children(self, cgroup: str, of: Resource | None = None) -> tuple[str, ...]:
        return self._cgroups.children(cgroup, of)

    def child_ids(self, cgroup: str, resource: Resource) -> dict[str, int]:
        """Of a resource that is a file of cgroups."""
        return self._cgroups.child_ids(cgroup, resource)

    def adopt(self, written: Iterable[tuple[str, Resource, Sequence[Value]]]) -> None:
        """Learn from the journal what cannot be seen in the kernel: (cgroup, resource, values
        that it may hold)."""
        held: dict[Resource, dict[str, list[str]]] = {}
        for cgroup, resource, values in written:
            held.setdefault(resource, {})[cgroup] = [str(value) for value in values]
        if groups := held.get(Resource.CORE_SCHED_GROUP):
            self._cookies.adopt(groups)
        if spread := held.get(Resource.CPU_SPREAD):
            self.spread.adopt(spread)

    def unit_properties(self) -> UnitProperties:
        """See ``Host.unit_properties``."""
        return self._host.unit_properties()

    def thaw(self, directory: str, inode: int) -> bool:
        """See ``kill.thaw``."""
        return kill.thaw(self._host, directory, inode)

    def stay_with(self, file_of_ours: Callable[[str, Resource], str]) -> None:
        """See ``Cgroups.file_of_ours``."""
        self._cgroups.file_of_ours = file_of_ours

    def path(self, cgroup: str, resource: Resource) -> str:
        return self._backends[resource].path(cgroup, resource)

    def id(self, cgroup: str, resource: Resource) -> int:
        return self._backends[resource].id(cgroup, resource)

    def encode(self, resource: Resource, value: Value) -> bytes:
        return self._backends[resource].encode(resource, value)

    def equal(self, resource: Resource, wanted: Value, found: Value) -> bool:
        return self._backends[resource].equal(resource, wanted, found)

    def made(self, resource: Resource, written: Value, found: Value) -> bool:
        """Whether a write of ``written`` left ``found``: as ``equal``, but a value that only means
        the same and that we would have written differently is somebody else's."""
        backend = self._backends[resource]
        compare = backend.made if isinstance(backend, Cgroups) else backend.equal
        return compare(resource, written, found)

    def has_lost(self, cgroup: str, resource: Resource) -> bool:
        """Of what cannot be read because it is not there: whether what it held is gone for good.
        False where it may come into sight again with it."""
        backend = self._backends[resource]
        if isinstance(backend, Cgroups):
            return backend.has_lost(cgroup, resource)
        if isinstance(backend, Members):
            possible = backend.is_possible()
            return not possible or self._cgroups.has_lost(cgroup, backend.listed_in)
        if isinstance(backend, HostFiles):
            return backend.has_lost(resource)
        return True  # a resctrl group goes with the mount

    def moved_to(
        self, cgroup: str, inode: int, path: str, listed: MutableMapping[str, Mapping[str, int]]
    ) -> str | None:
        """The cgroup that has this id by now, where its file was at ``path``; None: none has.
        ``listed``: see ``Cgroups.moved_to``."""
        if not cgroup or not inode:
            return None
        return self._cgroups.moved_to(cgroup, inode, path, listed)

    def read(self, cgroup: str, resource: Resource) -> Value:
        return self._backends[resource].read(cgroup, resource)

    def read_often(self, cgroup: str, resource: Resource) -> Value:
        """As ``read``, for who reads the same of many cgroups at each tick: files stay open until
        ``close_files``."""
        if resource in kept.RESOURCES:
            return self._kept.read(cgroup, resource)
        return self._backends[resource].read(cgroup, resource)

    def close_files(self) -> None:
        """Cgroups have come, gone or moved, so what stays open may be another one's."""
        self._kept.close()

    def read_raw(self, cgroup: str, resource: Resource) -> bytes:
        return self._backends[resource].read_raw(cgroup, resource)

    def write(self, cgroup: str, resource: Resource, value: Value) -> None:
        self._backends[resource].write(cgroup, resource, value)

    def write_raw(self, cgroup: str, resource: Resource, data: bytes) -> None:
        self._backends[resource].write_raw(cgroup, resource, data)

    def holds(self, cgroup: str, resource: Resource, data: bytes) -> bool:
        return self._backends[resource].holds(cgroup, resource, data)
