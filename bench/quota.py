"""The best-effort quota as the kernel has it, read from outside the daemon."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from bench.figures import NotMeasuredError

_LOOK_S = 0.001
_TIMEOUT_S = 30.0


class Quota:
    """Reads through one kept descriptor."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __call__(self) -> float:
        """us a period; infinite without a limit."""
        first = os.pread(self._descriptor, 64, 0).split()[0]
        return float("inf") if first in (b"max", b"-1") else int(first)

    def wait(self, holds: Callable[[float], bool], what: str) -> float:
        """Unix time of the first look at which it holds. Raises NotMeasuredError."""
        end = time.monotonic() + _TIMEOUT_S
        while not holds(self()):
            if time.monotonic() > end:
                raise NotMeasuredError(f"{what} within {_TIMEOUT_S:.0f} s: {self():.0f} us")
            time.sleep(_LOOK_S)
        return time.time()

    def close(self) -> None:
        os.close(self._descriptor)


class FirstLimit:
    """Waits in a thread of its own for the first limit after ``__init__``."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._at = float("nan")
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        try:
            self._at = self._quota.wait(lambda us: us < float("inf"), "there was no quota")
        except NotMeasuredError:
            return

    def time(self) -> float:
        """Unix time; not a number when there was none."""
        self._thread.join()
        return self._at
