"""Files kept open between rounds. A collector reads the same hundreds of files each second."""

from __future__ import annotations

import errno
import resource

from koordlet.kernel.host import File, Host

MOST_KEPT = 1100
"""A choice: room for the CPU counters of 300 pods with 600 containers and the throttling of some.
What is read every ten seconds is not worth a descriptor."""


class Descriptors:
    """At most ``limit`` files stay open, and never more than half of RLIMIT_NOFILE. What comes
    beyond is opened and closed each time: dropping an old one instead would make every read a
    miss, since a round goes through all paths in turn."""

    def __init__(self, host: Host, limit: int = MOST_KEPT) -> None:
        self._host = host
        self._limit = min(limit, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._files: dict[str, File] = {}

    def __len__(self) -> int:
        return len(self._files)

    def read(self, path: str) -> bytes:
        """The content now. A cgroup that was removed and made again is opened anew.

        Raises FileNotFoundError, or OSError ENODEV, when it is gone.
        """
        file = self._files.get(path)
        if file is None:
            return self._open_and_read(path)
        try:
            return file.read()
        except OSError as error:
            self._close(path)
            if error.errno != errno.ENODEV:
                raise
        return self._open_and_read(path)

    def read_once(self, path: str) -> bytes:
        """The content now, of a file that is read too seldom to keep it open. One that is open is
        used. Raises like ``read``."""
        if path in self._files:
            return self.read(path)
        file = self._host.open(path)
        try:
            return file.read()
        finally:
            file.close()

    def kept(self, path: str) -> File | None:
        """The open file, for a hot loop that reads it itself. Such a reader calls ``forget``
        when a read fails."""
        return self._files.get(path)

    def forget(self, path: str) -> None:
        """Close this one file, if it is open."""
        if path in self._files:
            self._close(path)

    def drop(self, prefix: str) -> None:
        """Close every file at or under the directory ``prefix``."""
        under = prefix + "/"
        for path in [p for p in self._files if p == prefix or p.startswith(under)]:
            self._close(path)

    def close(self) -> None:
        for path in tuple(self._files):
            self._close(path)

    def _open_and_read(self, path: str) -> bytes:
        if len(self._files) >= self._limit:
            return self._host.read(path)
        file = self._host.open(path)
        try:
            data = file.read()
        except OSError:
            file.close()
            raise
        self._files[path] = file
        return data

    def _close(self, path: str) -> None:
        self._files.pop(path).close()
