"""The node's memory, looked at between two ticks: no kernel trigger tells of memory in use.

Pressure (PSI) comes when memory has run out; evictions begin while there is some left.
"""

from __future__ import annotations

import math

from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.parse_hot import memory_available_bytes

NEWS_S = 1.0
"""How long after memory was last above the limit the alarm counts as over. Longer than the gap
between two alarms, as the first may come too early after a tick for new figures; afterwards the
ticks see to it, for hours if need be."""


class MemoryAlarm:
    """``limit_bytes``: an alarm where no more than this is available; None: nothing is looked at
    and no file is open. ``error``: why the file cannot be read, else empty."""

    def __init__(self, files: Descriptors, path: str, gap_s: float) -> None:
        self._files = files
        self._path = path
        self._gap_s = gap_s
        self._ample_s = -math.inf
        self._raised_s = -math.inf
        self.limit_bytes: int | None = None
        self.error = ""

    def watch(self, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        if limit_bytes is None:
            self._files.forget(self._path)
            self.error = ""

    def sounds(self, now_s: float) -> bool:
        """One look, at ``now_s`` of the monotonic clock."""
        if self.limit_bytes is None:
            return False
        try:
            available = memory_available_bytes(self._files.read(self._path), self._path)
        except (OSError, ValueError) as error:
            self.error = str(error)
            return False
        self.error = ""
        if available > self.limit_bytes:
            self._ample_s = now_s
            return False
        if now_s - self._ample_s > NEWS_S or now_s - self._raised_s < self._gap_s:
            return False
        self._raised_s = now_s
        return True
