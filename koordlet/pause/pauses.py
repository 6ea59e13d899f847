"""The pauses in force, and their state on disk."""

from __future__ import annotations

import os
from collections.abc import Iterable

from koordlet.kernel.host import Host
from koordlet.pause import file
from koordlet.pause.model import Pause, Scope, covering

MOST = 100
"""Each cgroup may have a pause of its own; nobody keeps an eye on more."""


class Pauses:
    """``current``: those in force; another tuple whenever something has changed. ``problem``: why
    the disk does not say the same, else empty.

    ``Pause.until`` is unix time. While this process runs, the time left goes by the monotonic
    clock, so a step of the wall clock neither ends a pause nor stretches it. At the start the wall
    clock counts, and one that is set back leaves at most the whole length of the pause.
    """

    def __init__(self, path: str, host: Host) -> None:
        self.path = path
        self._host = host
        self._ends_s: dict[Scope, float] = {}
        self._unsaved = False
        self._seen: object = None
        self.problem = ""
        self.current: tuple[Pause, ...] = ()
        self._load()

    def covering(self, owner: str, cgroup: str) -> Pause | None:
        """The pause of what ``owner`` wants of ``cgroup``."""
        return covering(self.current, owner, cgroup)

    def begin(self, pauses: Iterable[Pause]) -> None:
        """In force at once, each in place of an earlier one of the same scope; ``problem`` says
        whether the disk has taken it."""
        new = {pause.scope: pause for pause in pauses}
        self._take((*(p for p in self.current if p.scope not in new), *new.values()))
        self._save()

    def end(self, scopes: Iterable[Scope]) -> tuple[Pause, ...]:
        """Those of ``scopes`` that were in force and are no longer."""
        gone = set(scopes)
        ended = tuple(pause for pause in self.current if pause.scope in gone)
        self._take(tuple(pause for pause in self.current if pause.scope not in gone))
        self._save()
        return ended

    def expired(self) -> tuple[Pause, ...]:
        """Ends those whose time is up; also those whose time ran out while nobody was here."""
        now = self._host.monotonic()
        ended = [scope for scope, end_s in self._ends_s.items() if now >= end_s]
        return self.end(ended) if ended else ()

    def left_s(self, pause: Pause) -> float | None:
        """Seconds until it ends by itself; None: it does not."""
        end_s = self._ends_s.get(pause.scope)
        return None if end_s is None else max(0.0, end_s - self._host.monotonic())

    def look(self) -> bool:
        """Write what the disk refused before; else read the file where somebody else has written
        it (``koordlet pause`` of a daemon that nobody can ask). Whether pauses have changed."""
        if self._unsaved:
            self._save()
            return False
        if _signature(self.path) == self._seen:
            return False
        before = self.current
        self._load()
        return self.current != before

    def _load(self) -> None:
        # Looked at before it is read: what is written in between is seen next time.
        self._seen = _signature(self.path)
        try:
            found, self.problem = file.load(self.path), ""
        except file.DamagedError as error:
            self.problem = (
                f"{error}; nothing is written until `koordlet resume`, which removes the file"
            )
            found = (Pause(Scope(), self._host.time(), "koordlet", reason=str(error)),)
        self._take(found)

    def _take(self, pauses: tuple[Pause, ...]) -> None:
        now, time = self._host.monotonic(), self._host.time()
        known = {pause: self._ends_s.get(pause.scope) for pause in self.current}
        self._ends_s = {}
        for pause in pauses:
            if pause.until is not None:
                left_s = min(pause.until - time, pause.until - pause.since)
                self._ends_s[pause.scope] = known.get(pause) or now + left_s
        self.current = pauses

    def _save(self) -> None:
        try:
            file.save(self.path, self.current)
        except OSError as error:
            self._unsaved = True
            what = "the pause" if self.current else "the end of the pause"
            self.problem = (
                f"{error.filename or self.path}: {error.strerror}; {what} is in force but not on "
                "disk: a restart forgets it"
            )
        else:
            self._unsaved, self.problem = False, ""
        self._seen = _signature(self.path)


def _signature(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_mtime_ns, found.st_size
