"""The files of the log: written by a worker, bounded in bytes and age.

The loop hands minutes over; what a worker does not fetch for long is dropped. After anything that
was not written a new file begins, since a file makes sense only without gaps.
"""

from __future__ import annotations

import re
from collections import deque
from contextlib import suppress

from koordlet.inputs import frame as frames
from koordlet.inputs.model import Minute
from koordlet.tsdb.files import Files

NAME = re.compile(r"inputs-(\d{8})\.kin")
MOST_WAITING = 10
LONGEST_PAUSE = 16
"""Minutes that are not recorded after a failure: 1, 2, 4 ..."""


def number_of(name: str) -> int:
    """Of a file of the log; 0 for another name."""
    match = NAME.fullmatch(name)
    return int(match[1]) if match else 0


class Log:
    """``take``, ``ready`` and ``wants_new_file`` are for the loop, ``write`` for one worker at a
    time. ``problem``: why the last write failed, empty while the log works; ``lost``: minutes that
    are not in it for that."""

    def __init__(self, files: Files, where: str, *, max_bytes: int, retention_s: float) -> None:
        """``where``: the directory, for messages."""
        self.where = where
        self.problem = ""
        self.lost = 0
        self.bytes = 0
        self._files = files
        self._max_bytes = max_bytes
        self._retention_ms = int(retention_s * 1000)
        self._waiting: deque[tuple[Minute, int, int]] = deque()
        self._sizes: dict[str, int] = {}
        self._last_ms: dict[str, int] = {}
        self._current = ""
        self._is_prepared = False
        self._broken = False
        """The file that was being written has a gap; what continues it is dropped."""
        self._pause = self._pauses = 0

    def ready(self) -> bool:
        """Whether a new frame makes sense now. Asked once a minute."""
        if self._pauses:
            self._pauses -= 1
            self.lost += 1
            return False
        return True

    def wants_new_file(self) -> bool:
        return self._broken or self._sizes.get(self._current, 0) > self._max_bytes // 4

    def take(self, minute: Minute, first_ms: int, last_ms: int) -> None:
        """``first_ms``, ``last_ms``: unix time of its turns."""
        self._waiting.append((minute, first_ms, last_ms))
        if len(self._waiting) > MOST_WAITING:
            self._waiting.popleft()
            self.lost += 1
            self._broken = True

    def write(self, now_ms: int) -> None:
        """What was handed over, packed; and what is too old or too much goes. Never raises for a
        disk: ``problem`` tells."""
        while self._waiting:
            minute, first_ms, last_ms = self._waiting.popleft()
            if self._broken and minute.begin is None:
                self.lost += 1
                continue
            try:
                self._append(minute, first_ms, last_ms)
            except (OSError, ValueError) as error:
                self._fail(error)
            else:
                self._pause, self.problem = 0, ""
        with suppress(OSError):
            self._retain(now_ms)

    def _append(self, minute: Minute, first_ms: int, last_ms: int) -> None:
        if not self._is_prepared:
            self._prepare()
        data = frames.pack(minute, first_ms, last_ms)
        if minute.begin is not None:
            number = max(map(number_of, self._sizes), default=0) + 1
            self._current = f"inputs-{number:08d}.kin"
            self._broken = False
        # Counted first: after an error a part of it may be there.
        self._sizes[self._current] = self._sizes.get(self._current, 0) + len(data)
        self._last_ms[self._current] = last_ms
        self._files.append(self._current, data)

    def _fail(self, error: Exception) -> None:
        text = str(error.strerror or error) if isinstance(error, OSError) else str(error)
        self.problem = f"{self.where}: the inputs log was not written: {text}"
        self.lost += 1
        self._broken = True
        self._pause = min(max(2 * self._pause, 1), LONGEST_PAUSE)
        self._pauses = self._pause

    def _prepare(self) -> None:
        """Take in the files that are there. Raises OSError."""
        self._files.prepare()
        for name, size in self._files.list():
            if number_of(name):
                self._sizes[name] = size
                with self._files.reader(name) as read, suppress(frames.DamagedError):
                    for each in frames.scan(read, name):
                        self._last_ms[name] = each.last_ms
        self._is_prepared = True

    def _retain(self, now_ms: int) -> None:
        """The oldest go first. A file whose time lies ahead was written by a clock that was wrong;
        it goes with the bytes."""
        for name in sorted(self._sizes):
            if name == self._current:
                break
            too_old = self._last_ms.get(name, 0) < now_ms - self._retention_ms
            if too_old or sum(self._sizes.values()) > self._max_bytes:
                with suppress(FileNotFoundError):
                    self._files.unlink(name)
                del self._sizes[name]
                self._last_ms.pop(name, None)
        self.bytes = sum(self._sizes.values())
