"""Limits of pods and applications that the kernel has in force now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from koordlet.decision.names import meant
from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import ParseError


class Limit(NamedTuple):
    """None: there is no limit, or it cannot be read."""

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

    def of(self, cgroups: Iterable[str]) -> Mapping[str, Limit]:
        """By cgroup, as the daemon shows its path."""
        return {each: self._limit(meant(each)) for each in cgroups}

    def _limit(self, cgroup: str) -> Limit:
        quota_us = self._read(cgroup, Resource.CPU_QUOTA_US)
        period_us = self._read(cgroup, Resource.CPU_PERIOD_US)
        memory = self._read(cgroup, Resource.MEMORY_LIMIT)
        return Limit(quota_us / period_us if quota_us is not None and period_us else None, memory)

    def _read(self, cgroup: str, resource: Resource) -> int | None:
        if self._cgroups is None:
            return None
        try:
            value: Value = self._cgroups.read(cgroup, resource)
        except (OSError, ValueError, Unsupported):
            return None
        return value if isinstance(value, int) and value != UNLIMITED else None
