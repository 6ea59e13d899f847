"""Runs one script of operations on a host and notes what each operation answered."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from koordlet.kernel.host import File, Host

Op = Literal[
    "mkdir", "rmdir", "write", "read", "exists", "hold", "read_held", "write_held", "spawn",
    "spawn_memory", "kill", "rename", "remember", "is_it",
]  # fmt: skip


# Lines of cpu.stat that a kernel has by its configuration (CONFIG_SCHED_CORE) or from Linux 6.11.
_OPTIONAL_LINES = ("core_sched.force_idle_usec", "nice_usec")


@dataclass(frozen=True)
class Step:
    """``path`` starts with a place in braces (``{cpu}/a/cpu.shares``).

    ``data`` may name processes in braces (``{p}``) that ``spawn`` made, and disks. For ``read``,
    ``data`` is the first word of the lines that count (empty: all). For ``spawn`` and ``kill``,
    ``path`` is the name of the process; ``spawn_memory`` starts it in the group ``data`` with
    30 MiB of touched memory. ``rename`` gives the directory ``path`` the name ``data`` (with a
    place, if it holds a ``/``); ``is_it`` tells whether ``path`` is what ``remember`` saw.
    """

    op: Op
    path: str
    data: str = ""


@dataclass(frozen=True)
class Script:
    """``needs``: places it uses; it runs where all of them exist."""

    name: str
    needs: tuple[str, ...]
    steps: tuple[Step, ...]


class Spawner(Protocol):
    """Makes processes that do nothing but exist."""

    def spawn(self) -> int: ...

    def spawn_memory(self, directory: str) -> int: ...

    def kill(self, pid: int) -> None: ...

    def rename(self, path: str, new: str) -> None: ...


@dataclass(frozen=True)
class Site:
    """A host with a scratch group in every hierarchy. ``places``: name of a place -> directory
    of the scratch group there."""

    host: Host
    places: Mapping[str, str]
    spawner: Spawner
    words: Mapping[str, str]
    """More words for braces in data: the numbers of disks."""


def run(site: Site, steps: tuple[Step, ...]) -> list[str]:
    """One outcome per step: ``ok``, the name of the errno, or what was read."""
    return _Run(site).all(steps)


class _Run:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.held: dict[str, File] = {}
        self.pids: dict[str, int] = {}
        self.remembered = 0
        self.actions: dict[str, Callable[[str, str], str | None]] = {
            "mkdir": lambda path, data: site.host.mkdir(path),
            "rmdir": lambda path, data: site.host.rmdir(path),
            "write": lambda path, data: site.host.write(path, data.encode("latin-1")),
            "read": self._read,
            "exists": lambda path, data: str(site.host.exists(path)),
            "hold": self._hold,
            "read_held": lambda path, data: self._shown(self.held[path].read(), data),
            "write_held": lambda path, data: self.held[path].write(data.encode("latin-1")),
            "spawn": self._spawn,
            "spawn_memory": self._spawn_memory,
            "kill": self._kill,
            "rename": self._rename,
            "remember": self._remember,
            "is_it": lambda path, data: str(site.host.inode(path) == self.remembered),
        }

    def all(self, steps: tuple[Step, ...]) -> list[str]:
        try:
            return [self._one(step) for step in steps]
        finally:
            for file in self.held.values():
                file.close()
            for pid in self.pids.values():
                self.site.spawner.kill(pid)

    def _one(self, step: Step) -> str:
        path = step.path.format_map(self.site.places) if "{" in step.path else step.path
        data = step.data
        if "{" in data:
            data = data.format_map({**self.site.places, **self.site.words, **self.pids})
        try:
            return self.actions[step.op](path, data) or "ok"
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, str(error.errno))

    def _read(self, path: str, data: str) -> str:
        return self._shown(self.site.host.read(path), data)

    def _shown(self, content: bytes, first_word: str) -> str:
        """Names instead of pids; sorted, because the kernel's order of devices and of processes
        is its own affair."""
        names = {str(pid): name for name, pid in self.pids.items()}
        rows = [row.split() for row in content.decode().splitlines()]
        kept = [row for row in rows if not first_word or row[:1] == [first_word]]
        kept = [row for row in kept if not row or row[0] not in _OPTIONAL_LINES]
        return repr(sorted(" ".join(names.get(word, word) for word in row) for row in kept))

    def _hold(self, path: str, data: str) -> None:
        self.held[path] = self.site.host.open(path, write=data == "w")

    def _rename(self, path: str, data: str) -> None:
        new = data if "/" in data else f"{path.rpartition('/')[0]}/{data}"
        self.site.spawner.rename(path, new)

    def _remember(self, path: str, data: str) -> None:
        self.remembered = self.site.host.inode(path)

    def _spawn(self, path: str, data: str) -> None:
        self.pids[path] = self.site.spawner.spawn()

    def _spawn_memory(self, path: str, data: str) -> None:
        self.pids[path] = self.site.spawner.spawn_memory(data)

    def _kill(self, path: str, data: str) -> None:
        self.site.spawner.kill(self.pids.pop(path))
