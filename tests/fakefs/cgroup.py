"""Cgroups and hierarchies: what v1 and v2 share. Controllers plug in by tables of files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from koordlet_fakefs.machine import Machine, Options, Process, Thread
from koordlet_fakefs.parse import number_in, refuse, strip
from koordlet_fakefs.tree import MAX_NAME_BYTES, Directory, Leaf

if TYPE_CHECKING:
    from koordlet_fakefs.resources.account import Account
    from koordlet_fakefs.resources.cpu import CpuState
    from koordlet_fakefs.resources.cpuset import CpusetState
    from koordlet_fakefs.resources.io import IoState
    from koordlet_fakefs.resources.limits import NetClsState, PidsState
    from koordlet_fakefs.resources.memory import MemoryState
    from koordlet_fakefs.resources.psi import Pressure

INT_MAX = (1 << 31) - 1


class Spec(NamedTuple):
    """One control file. ``when`` says on which machines it exists."""

    name: str
    read: Callable[[Cgroup], str] | None = None
    write: Callable[[Cgroup, str], None] | None = None
    on_root: bool = True
    on_child: bool = True
    when: Callable[[Options], bool] = lambda options: True


class Controller(NamedTuple):
    """A resource controller. ``attach`` makes the state of a new group; ``threaded``: v2 allows it
    beside processes (cgroup-v2.rst, no internal process constraint)."""

    name: str
    attach: Callable[[Cgroup], None]
    detach: Callable[[Cgroup], None]
    v1: tuple[Spec, ...]
    v2: tuple[Spec, ...]
    threaded: bool = False


class Hierarchy:
    """One mounted cgroup tree. ``controllers`` keeps the kernel's order."""

    def __init__(
        self,
        machine: Machine,
        number: int,
        version: int,
        mount: str,
        controllers: Iterable[Controller],
        core: tuple[Spec, ...],
        name: str = "",
        on_create: Callable[[Cgroup], None] | None = None,
    ) -> None:
        self.machine = machine
        self.number = number
        self.version = version
        self.mount = mount
        self.controllers = {controller.name: controller for controller in controllers}
        self.core = core
        self.name = name
        self.on_create = on_create
        self.inodes = count(1)
        self.root = Cgroup(self, None, "")

    @property
    def label(self) -> str:
        """Second field of /proc/PID/cgroup."""
        return f"name={self.name}" if self.name else ",".join(self.controllers)


class Cgroup(Directory):
    """A cgroup directory. A controller's state is None while it is not enabled here."""

    def __init__(self, hierarchy: Hierarchy, parent: Cgroup | None, name: str) -> None:
        super().__init__(next(hierarchy.inodes))
        self.hierarchy = hierarchy
        self.machine = hierarchy.machine
        self.parent = parent
        self.name = name
        self.children: dict[str, Cgroup] = {}
        self.threads: dict[int, Thread] = {}
        self.enabled: set[str] = set()
        self.subtree_control: set[str] = set()
        self.clone_children: int = parent.clone_children if parent else 0
        self.notify_on_release: int = parent.notify_on_release if parent else 0
        self.frozen: int = 0
        self.frozen_ns = 0.0
        self.max_depth: int | None = None
        self.max_descendants: int | None = None
        self.account: Account | None = None
        self.pressure: dict[str, Pressure] = {}
        self.pressure_on = 1
        self.cpu: CpuState | None = None
        self.cpuset: CpusetState | None = None
        self.memory: MemoryState | None = None
        self.io: IoState | None = None
        self.pids: PidsState | None = None
        self.net_cls: NetClsState | None = None
        if hierarchy.on_create is not None:
            hierarchy.on_create(self)
        self.add_files(hierarchy.core)
        for controller in hierarchy.controllers:
            if hierarchy.version == 1 or parent is None or controller in parent.subtree_control:
                self.enable(controller)

    @property
    def path(self) -> str:
        """Relative to the mount, ``""`` for the root."""
        if self.parent is None:
            return ""
        return f"{self.parent.path}/{self.name}".lstrip("/")

    def ancestors(self) -> Iterator[Cgroup]:
        """This group and those above it, up to the root."""
        group: Cgroup | None = self
        while group is not None:
            yield group
            group = group.parent

    def subtree(self) -> Iterator[Cgroup]:
        """This group and all below it, parents first."""
        yield self
        for child in self.children.values():
            yield from child.subtree()

    @property
    def descendants(self) -> int:
        return sum(1 for _ in self.subtree()) - 1

    @property
    def populated(self) -> bool:
        return any(group.threads for group in self.subtree())

    def add_files(self, specs: Iterable[Spec]) -> None:
        for spec in specs:
            here = spec.on_root if self.parent is None else spec.on_child
            if here and spec.when(self.machine.options):
                self.entries[spec.name] = self._leaf(spec)

    def remove_files(self, specs: Iterable[Spec]) -> None:
        for spec in specs:
            leaf = self.entries.pop(spec.name, None)
            if leaf is not None:
                leaf.removed = True

    def _leaf(self, spec: Spec) -> Leaf:
        read, write = spec.read, spec.write
        return Leaf(
            (lambda: read(self)) if read else None,
            (lambda text: write(self, text)) if write else None,
        )

    def _specs(self, name: str) -> tuple[Spec, ...]:
        controller = self.hierarchy.controllers[name]
        return controller.v1 if self.hierarchy.version == 1 else controller.v2

    def enable(self, name: str) -> None:
        self.enabled.add(name)
        self.hierarchy.controllers[name].attach(self)
        self.add_files(self._specs(name))

    def disable(self, name: str) -> None:
        self.enabled.discard(name)
        self.hierarchy.controllers[name].detach(self)
        self.remove_files(self._specs(name))

    def mkdir(self, name: str) -> None:
        if name in self.entries or name in (".", ".."):
            raise refuse(errno.EEXIST)
        if "\n" in name:
            raise refuse(errno.EINVAL)
        if len(os.fsencode(name)) > MAX_NAME_BYTES:
            raise refuse(errno.ENAMETOOLONG)
        for depth, group in enumerate(self.ancestors(), start=1):
            if group.max_depth is not None and depth > group.max_depth:
                raise refuse(errno.EAGAIN)
            if group.max_descendants is not None and group.descendants >= group.max_descendants:
                raise refuse(errno.EAGAIN)
        child = Cgroup(self.hierarchy, self, name)
        self.children[name] = child
        self.entries[name] = child
        self.machine.generation += 1
        for notify in self.machine.on_group:
            notify(child, True)

    def rmdir(self, name: str) -> None:
        child = self.children.get(name)
        if child is None:
            raise refuse(errno.ENOTDIR if name in self.entries else errno.ENOENT)
        if child.children or child.threads:
            raise refuse(errno.EBUSY)
        for controller in tuple(child.enabled):
            child.disable(controller)
        child.removed = True
        for node in child.entries.values():
            node.removed = True
        del self.children[name]
        del self.entries[name]
        self.machine.generation += 1
        for notify in self.machine.on_group:
            notify(child, False)

    def rename(self, name: str) -> None:
        """As rename(2) within its parent: EPERM on v2, EEXIST for a name that is taken."""
        parent = self.parent
        assert parent is not None
        if self.hierarchy.version == 2:
            raise refuse(errno.EPERM)
        if name in parent.entries:
            raise refuse(errno.EEXIST)
        for names in (parent.children, parent.entries):
            del names[self.name]
        for notify in self.machine.on_group:
            notify(self, False)
        self.name = name
        parent.children[name] = parent.entries[name] = self
        for notify in self.machine.on_group:
            notify(self, True)

    def add_thread(self, thread: Thread) -> None:
        """Put a thread here without asking anybody."""
        before = thread.cgroups.get(self.hierarchy)
        if before is not None:
            before.threads.pop(thread.tid, None)
        self.threads[thread.tid] = thread
        thread.cgroups[self.hierarchy] = self

    def attach(self, threads: Iterable[Thread]) -> None:
        """Move threads here, as a write to cgroup.procs does once the pid is known.

        ENOSPC for a v1 cpuset without CPUs or memory nodes.
        """
        moving = [thread for thread in threads if thread.cgroups.get(self.hierarchy) is not self]
        if moving and self.hierarchy.version == 1 and self.cpuset is not None:
            self.cpuset.check_attach()
        for thread in moving:
            self.add_thread(thread)
        self.machine.generation += 1


def written_pid(group: Cgroup, text: str) -> int:
    """The pid in a write to cgroup.procs or tasks; 0 is the writer itself."""
    try:
        pid = number_in(strip(text), 0, INT_MAX, errno.EINVAL)
    except OSError as error:
        raise refuse(errno.EINVAL) from error
    return pid or SELF_PID


SELF_PID = 4000
"""The process that holds the fake: the daemon itself."""


def processes_in(group: Cgroup) -> list[Process]:
    found = {thread.process.pid: thread.process for thread in group.threads.values()}
    return [found[pid] for pid in sorted(found)]


def lines(values: Iterable[object]) -> str:
    return "".join(f"{value}\n" for value in values)
