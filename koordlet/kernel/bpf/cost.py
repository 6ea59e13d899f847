"""What our programs cost. The kernel measures them for one second in ten, because measuring adds
20 ns to each run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from koordlet.kernel.bpf.syscalls import RunTime, enable_stats


class Cost(NamedTuple):
    """Of one program: CPU in cores, time of one run, runs a second."""

    cores: float
    ns_per_run: float
    runs_per_s: float


class Meter(Protocol):
    """Measures what programs cost, from ``begin`` to ``end``. Times are monotonic seconds."""

    @property
    def measuring(self) -> bool: ...

    def begin(self, now_s: float) -> None: ...

    def end(self, now_s: float) -> Mapping[str, Cost]:
        """By program; empty where the kernel does not measure."""
        ...


class CostMeter:
    """``begin``, then ``end`` some time later. Where the kernel cannot measure (before 5.8, or
    without CAP_SYS_ADMIN), ``end`` gives nothing."""

    def __init__(self, read: Callable[[], Mapping[str, RunTime]]) -> None:
        self._read = read
        self._fd = -1
        self._before: Mapping[str, RunTime] = {}
        self._began_s = 0.0

    @property
    def measuring(self) -> bool:
        return self._fd >= 0

    def begin(self, now_s: float) -> None:
        with contextlib.suppress(OSError):
            self._before = self._read()
            self._began_s = now_s
            self._fd = enable_stats()

    def end(self, now_s: float) -> dict[str, Cost]:
        if not self.measuring or now_s <= self._began_s:
            return {}
        span_s = now_s - self._began_s
        try:
            after = self._read()
        except OSError:
            return {}
        finally:
            self.close()
        return {
            name: _cost(after[name].ns - before.ns, after[name].runs - before.runs, span_s)
            for name, before in self._before.items()
            if name in after
        }

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _cost(ns: int, runs: int, span_s: float) -> Cost:
    return Cost(ns / 1e9 / span_s, ns / runs if runs > 0 else 0.0, runs / span_s)
