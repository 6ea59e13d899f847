"""A socket of somebody else: when it is made, and made anew.

A runtime that restarts makes its socket anew, in a directory that it may make anew as well. So all
directories above are watched by inotify, and those who wait for the runtime begin at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os

import structlog

from koordlet.kernel.inotify import Inotify

WATCHED_LOOK_S = 10.0
"""Between two looks while inotify tells: a safety net."""
UNWATCHED_LOOK_S = 0.25
"""Where inotify is used up (fs.inotify.max_user_instances, max_user_watches)."""

Identity = tuple[int, int]

log = structlog.get_logger()


def identity(path: str) -> Identity | None:
    """Differs when the file was made anew; None when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


class SocketWatch:
    """For one waiter, on the running loop. ``close`` gives the descriptor back."""

    def __init__(self, path: str) -> None:
        self._path = path
        parts = path.strip("/").split("/")
        self._above = ["/", *("/" + "/".join(parts[:end]) for end in range(1, len(parts)))]
        self._concerned = {*self._above, path}
        self._news = asyncio.Event()
        self._inotify: Inotify | None = None
        self._refused = False

    async def wait(self, known: Identity | None, seconds: float = math.inf) -> Identity | None:
        """The socket as soon as there is one other than ``known``; None when ``seconds`` have
        passed."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            self._news.clear()
            look_s = WATCHED_LOOK_S if self._watches() else UNWATCHED_LOOK_S
            found = identity(self._path)
            if found not in (None, known):
                return found
            left_s = end - loop.time()
            if left_s <= 0:
                return None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(look_s, left_s)):
                    await self._news.wait()

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def _watches(self) -> bool:
        """Watch all that there is of the directories above. Comes before each look, so that what
        happens between the two is seen by one of them."""
        try:
            if self._inotify is None:
                loop = asyncio.get_running_loop()
                self._inotify = Inotify(loop, self._event, every=True)
            for directory in self._above:
                self._inotify.add(directory)
        except (FileNotFoundError, NotADirectoryError):
            pass  # the directory above it is watched
        except OSError as error:
            if not self._refused:
                log.warning("socket cannot be watched", socket=self._path, error=str(error))
            self._refused = True
            return False
        self._refused = False
        return True

    def _event(self, directory: str, child: str) -> None:
        if not child or os.path.join(directory, child) in self._concerned:
            self._news.set()
