"""Limits of pods and applications that the kernel has in force now."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from koordlet.decision.cgroups import parent
from koordlet.decision.names import meant
from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import ParseError
from koordlet.protocol.cpuset import parse_cpulist


class Limit(NamedTuple):
    """None: there is no limit, or it cannot be read. ``cpu_cores``: the least of its
    quota, those above it, and the CPUs that it may run on."""

    cpu_cores: float | None = None
    memory_bytes: int | None = None


NO_LIMIT = Limit()


class Limits:
    def __init__(self, cgroup_root: str = "/sys/fs/cgroup", proc_root: str = "/proc") -> None:
        host = LinuxHost()
        try:
            layout = detect(host, cgroup_root=cgroup_root, proc_root=proc_root)
        except (OSError, ParseError):
            self._cgroups = None
        else:
            self._cgroups = Cgroups(host, layout)
        self._cpus = os.cpu_count() or 0

    def of(self, cgroups: Iterable[str]) -> Mapping[str, Limit]:
        """By cgroup, as the daemon shows its path."""
        return {each: self._limit(meant(each)) for each in cgroups}

    def _limit(self, cgroup: str) -> Limit:
        found = [self._quota_cores(each) for each in (cgroup, *_above(cgroup))]
        found.append(self._listed_cores(cgroup))
        cores = min((each for each in found if each is not None), default=None)
        return Limit(cores, self._read(cgroup, Resource.MEMORY_LIMIT))

    def _quota_cores(self, cgroup: str) -> float | None:
        quota_us = self._read(cgroup, Resource.CPU_QUOTA_US)
        period_us = self._read(cgroup, Resource.CPU_PERIOD_US)
        return quota_us / period_us if quota_us is not None and period_us else None

    def _listed_cores(self, cgroup: str) -> float | None:
        """Return None where it may run on every CPU."""
        if self._cgroups is None:
            return None
        try:
            value = self._cgroups.read(cgroup, Resource.CPUSET_CPUS_EFFECTIVE)
            cpus = parse_cpulist(str(value))
        except (OSError, ValueError, Unsupported):
            return None
        return float(len(cpus)) if 0 < len(cpus) < self._cpus else None

    def _read(self, cgroup: str, resource: Resource) -> int | None:
        if self._cgroups is None:
            return None
        try:
            value: Value = self._cgroups.read(cgroup, resource)
        except (OSError, ValueError, Unsupported):
            return None
        return value if isinstance(value, int) and value != UNLIMITED else None


def _above(cgroup: str) -> Iterator[str]:
    while cgroup := parent(cgroup):
        yield cgroup
