"""Files of ours in kubelet's tree, looked at again as soon as somebody writes one.

kubelet, systemd and the runtimes write there at any time (``actuator.rewrites``), and a file in
order has its turn every ten seconds only.
"""

from __future__ import annotations

from collections.abc import Iterable

from koordlet.actuator.journal.journal import Journal
from koordlet.actuator.merge import Key
from koordlet.actuator.rewrites import NEW
from koordlet.decision.snapshot import Fault
from koordlet.engine.parts import Parts
from koordlet.kernel.cgroup.kubepods import is_below_root
from koordlet.state.watching import Watching

MOST_AT_ONCE = 128
"""Files in one look, which is some milliseconds; the others follow in the next one."""


class Rewritten:
    """Asks by ``Callbacks.on_written`` that ``look`` be called before long."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._soon = parts.callbacks.on_written
        self._watch = Watching("rewritten files", parts.host, self._event, writes=True)
        self._files: dict[str, dict[str, set[Key]]] = {}
        """Directory -> name of a file -> what we hold in it."""
        self._inode_of: dict[str, int] = {}
        """Directories as they are watched: one that is made anew by its old name is not."""
        self._place_of: dict[Key, tuple[str, int]] = {}
        """Path of each file, and inode of its directory."""
        self._written: dict[Key, None] = {}
        self._journal: object = None

    def follow(self) -> None:
        """Follow the files that became ours or cease to be; called after each turn."""
        journal = self._parts.journal
        if journal is not self._journal:
            self._journal = journal
            self._take_up(tuple(self._place_of))
            if isinstance(journal, Journal):
                self._take_up(journal.entries)
        if isinstance(journal, Journal) and journal.moved:
            self._take_up(journal.moved)
            journal.moved.clear()

    def look(self) -> None:
        """Write again what others have written over by right."""
        due = tuple(self._written)[:MOST_AT_ONCE]
        for key in due:
            del self._written[key]
        host = self._parts.host
        self._parts.actuator.look_again(due, now=host.monotonic(), time=host.time())
        self.follow()
        if self._written:
            self._soon()

    def rescan(self) -> None:
        """Try again to watch what could not be watched."""
        self._watch.retry()

    def faults(self) -> tuple[Fault, ...]:
        return self._watch.faults()

    def close(self) -> None:
        self._watch.close()

    def _take_up(self, keys: Iterable[Key]) -> None:
        entries = self._parts.journal.entries
        for key in keys:
            entry = entries.get(key)
            place = (entry.original.path, entry.original.inode) if entry is not None else None
            before = self._place_of.get(key)
            if place == before or key.resource not in NEW or not is_below_root(key.cgroup):
                continue
            if before is not None:
                self._leave(key, before[0])
            if place is not None:
                self._enter(key, *place)

    def _enter(self, key: Key, path: str, inode: int) -> None:
        directory, _, name = path.rpartition("/")
        if self._inode_of.get(directory) != inode:
            try:
                self._watch.add(directory)
            except FileNotFoundError:
                return  # gone meanwhile, and the actuator will say so
            self._inode_of[directory] = inode
        self._place_of[key] = path, inode
        self._files.setdefault(directory, {}).setdefault(name, set()).add(key)

    def _leave(self, key: Key, path: str) -> None:
        directory, _, name = path.rpartition("/")
        del self._place_of[key]
        self._written.pop(key, None)
        names = self._files[directory]
        names[name].discard(key)
        if not names[name]:
            del names[name]
        if not names:
            del self._files[directory], self._inode_of[directory]
            self._watch.remove(directory)

    def _event(self, directory: str, name: str) -> None:
        names = self._files.get(directory, {})
        keys = names.get(name, set()) if name else set().union(*names.values())
        if keys and not self._written:
            self._soon()
        self._written.update(dict.fromkeys(sorted(keys)))
