"""Directories that a source follows by inotify, and goes on without where it is used up."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import structlog

from koordlet.decision.names import shown
from koordlet.decision.snapshot import Fault
from koordlet.kernel.host import DirectoryWatch, Host

log = structlog.get_logger()


class Watching:
    """A ``DirectoryWatch`` whose ``add`` raises for a missing directory alone. A directory that
    cannot be watched for another reason (ENOSPC, EMFILE: inotify(7) has limits per user) is a
    fault; every rescan lists it anyway and tries again. ``writes``: files that are written, instead
    of children that come and go."""

    def __init__(
        self,
        source: str,
        host: Host,
        on_event: Callable[[str, str], None],
        *,
        writes: bool = False,
    ) -> None:
        self._source = source
        self._writes = writes
        self._host = host
        self._on_event = on_event
        self._watch: DirectoryWatch | None = None
        self._refused: dict[str, str] = {}

    def add(self, directory: str) -> None:
        """Raises FileNotFoundError."""
        try:
            if self._watch is None:
                watch = self._host.watch_writes if self._writes else self._host.watch_directories
                self._watch = watch(self._on_event)
            self._watch.add(directory)
        except FileNotFoundError:
            self._refused.pop(directory, None)
            raise
        except OSError as error:
            if not self._refused:
                log.warning("directories cannot be watched", source=self._source, error=str(error))
            self._refused[directory] = os.strerror(error.errno or 0)
        else:
            self._refused.pop(directory, None)

    def retry(self) -> None:
        """Try those again that could not be watched."""
        for directory in tuple(self._refused):
            with contextlib.suppress(FileNotFoundError):
                self.add(directory)

    def remove(self, directory: str) -> None:
        self._refused.pop(directory, None)
        if self._watch is not None:
            self._watch.remove(directory)

    def close(self) -> None:
        self._refused.clear()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def faults(self) -> tuple[Fault, ...]:
        if not self._refused:
            return ()
        directory, why = next(iter(self._refused.items()))
        more = f" and {len(self._refused) - 1} more" if len(self._refused) > 1 else ""
        return (
            Fault(
                f"source {self._source}",
                shown(directory) + more,
                f"cannot be watched: {why}; changes there are seen by the rescan alone. Raise "
                "fs.inotify.max_user_watches and max_user_instances",
            ),
        )
