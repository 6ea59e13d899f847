"""Watches of the fake host: directories for children that come, go or are written, pressure for
triggers."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from koordlet_fakefs.cgroup import Cgroup
from koordlet_fakefs.parse import named, refuse
from koordlet_fakefs.resources.psi import Pressure
from koordlet_fakefs.tree import Directory, resolve

if TYPE_CHECKING:
    from koordlet_fakefs.host import FakeHost


class _Inotify:
    """Directories that are watched, each as it was when it was added."""

    def __init__(self, host: FakeHost, on_event: Callable[[str, str], None]) -> None:
        self._host = host
        self._on_event = on_event
        self._watched: dict[str, Directory] = {}

    def add(self, directory: str) -> None:
        self._host.faults.check("watch", directory)
        with named(directory):
            node = resolve(self._host.root, directory)
            if not isinstance(node, Directory):
                raise refuse(errno.ENOTDIR)
            self._watched[directory] = node

    def remove(self, directory: str) -> None:
        self._watched.pop(directory, None)


class DirectoryWatch(_Inotify):
    """Inotify on directories. Events are owed through the machine's queue."""

    def __init__(self, host: FakeHost, on_event: Callable[[str, str], None]) -> None:
        super().__init__(host, on_event)
        self._open = True
        host.machine.on_group.append(self._on_group)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._watched.clear()
            self._host.machine.on_group.remove(self._on_group)

    def overflow(self, directory: str) -> None:
        """Tell that events of a directory were lost."""
        self._owe(directory, "")

    def _on_group(self, group: Cgroup, came: bool) -> None:
        for directory, node in tuple(self._watched.items()):
            if node is group.parent:
                self._owe(directory, group.name)
            if node is group and not came:
                del self._watched[directory]

    def _owe(self, directory: str, name: str) -> None:
        def tell() -> None:
            if self._open:
                self._on_event(directory, name)

        self._host.machine.events.append(tell)


class WriteWatch(_Inotify):
    """Inotify on files that are written. A directory that is made anew is not watched."""

    def __init__(self, host: FakeHost, on_event: Callable[[str, str], None]) -> None:
        super().__init__(host, on_event)
        host.on_write.append(self._on_write)

    def close(self) -> None:
        self._watched.clear()

    def _on_write(self, path: str) -> None:
        directory, _, name = path.rpartition("/")
        node = self._watched.get(directory)
        if node is not None and node is resolve(self._host.root, directory):
            self._host.machine.events.append(lambda: self._tell(directory, name))

    def _tell(self, directory: str, name: str) -> None:
        if directory in self._watched:
            self._on_event(directory, name)


class TriggerWatch:
    """A PSI trigger. A fired event that is still owed dies with the watch."""

    def __init__(self, pressure: Pressure, on_fire: Callable[[], None]) -> None:
        self._pressure = pressure
        self._on_fire = on_fire
        self._open = True

    def fire(self) -> None:
        if self._open:
            self._on_fire()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._pressure.triggers = [
                trigger for trigger in self._pressure.triggers if trigger.on_fire != self.fire
            ]
