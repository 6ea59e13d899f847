"""What our programs cost. The kernel measures them for one second in ten, because measuring adds
20 ns to each run. Asking it to needs CAP_SYS_ADMIN, which the unit does not give; without it they
are measured where the administrator has set ``kernel.bpf_stats_enabled``."""

from __future__ import annotations

import errno
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

    @property
    def unknown(self) -> str:
        """Why the costs are not known, and what to do; empty where they are."""
        ...

    def begin(self, now_s: float) -> None: ...

    def end(self, now_s: float) -> Mapping[str, Cost]:
        """By program; empty where the kernel does not measure."""
        ...


class CostMeter:
    """``begin``, then ``end`` some time later. Where the kernel does not measure, ``end`` gives
    nothing and ``unknown`` says why."""

    def __init__(self, read: Callable[[], Mapping[str, RunTime]]) -> None:
        self._read = read
        self._fd = -1
        self._before: Mapping[str, RunTime] = {}
        self._began_s = 0.0
        self._refusal = ""
        self.measuring = False
        self.unknown = ""

    def begin(self, now_s: float) -> None:
        try:
            self._before = self._read()
        except OSError as error:
            self.unknown = _why(error)
            return
        self._began_s = now_s
        self.measuring = True
        try:
            self._fd = enable_stats()
        except OSError as error:
            self._refusal = _why(error)

    def end(self, now_s: float) -> dict[str, Cost]:
        if not self.measuring or now_s <= self._began_s:
            return {}
        span_s = now_s - self._began_s
        measured = self._fd >= 0
        try:
            after = self._read()
        except OSError as error:
            self.unknown = _why(error)
            return {}
        finally:
            self.close()
        if not measured and after == self._before:
            self.unknown = self._refusal
            return {}
        self.unknown = ""
        return {
            name: _cost(after[name].ns - before.ns, after[name].runs - before.runs, span_s)
            for name, before in self._before.items()
            if name in after
        }

    def close(self) -> None:
        self.measuring = False
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _why(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    if error.errno == errno.EPERM:
        return f"{name}: needs CAP_SYS_ADMIN, or sysctl kernel.bpf_stats_enabled=1"
    return f"{name} ({error.strerror})"


def _cost(ns: int, runs: int, span_s: float) -> Cost:
    return Cost(ns / 1e9 / span_s, ns / runs if runs > 0 else 0.0, runs / span_s)
