"""The CPUs that this process may run on (sched_setaffinity(2), which knows threads only)."""

from __future__ import annotations

import contextlib
import os

from koordlet.protocol.cpuset import CPUSet


def own_cpus() -> CPUSet:
    """Those of the calling thread."""
    return frozenset(os.sched_getaffinity(0))


def move_threads(cpus: CPUSet) -> None:
    """Every thread of this process; those it starts later inherit it. Raises OSError (EINVAL) where
    none of ``cpus`` is allowed by the cpuset of the process."""
    for name in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(name), cpus)
