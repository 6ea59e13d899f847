"""CPU use and throttling of groups and node between two moments, from the kernel's counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.host import Host
from koordlet.kernel.parse import cpu_stat, proc_stat

_NS = 1e9
_PROC_STAT = "/proc/stat"


@dataclass(frozen=True)
class Periods:
    """CFS periods so far, and how many of them ended throttled."""

    total: int
    throttled: int

    def ratio_since(self, before: Periods) -> float:
        total = self.total - before.total
        return (self.throttled - before.throttled) / total if total > 0 else 0.0


@dataclass(frozen=True)
class Reading:
    """Counters: CPU seconds, CFS periods. ``at`` is CLOCK_MONOTONIC."""

    at: float
    node_s: float
    group_s: Mapping[str, float]
    periods: Mapping[str, Periods]


@dataclass(frozen=True)
class Used:
    """Cores in use between two readings. ``throttled``: periods of the group that ended
    throttled."""

    seconds: float
    node_cores: float
    cores: Mapping[str, float]
    throttled: Mapping[str, int]

    @property
    def other_cores(self) -> float:
        """Use outside of the groups: clients, the daemon, and whatever else runs."""
        return max(0.0, self.node_cores - sum(self.cores.values()))


class Meter:
    def __init__(
        self, host: Host, cgroups: Cgroups, groups: Mapping[str, str], ticks_per_s: int
    ) -> None:
        """``groups``: name -> cgroup."""
        self._host = host
        self._cgroups = cgroups
        self._groups = groups
        self._ticks_per_s = ticks_per_s

    def read(self) -> Reading:
        return Reading(
            at=self._host.monotonic(),
            node_s=proc_stat(self._host.read(_PROC_STAT), _PROC_STAT).node / self._ticks_per_s,
            group_s={name: self._used_s(group) for name, group in self._groups.items()},
            periods={name: self._periods(group) for name, group in self._groups.items()},
        )

    def _used_s(self, group: str) -> float:
        return int(self._cgroups.read(group, Resource.CPUACCT_USAGE)) / _NS

    def _periods(self, group: str) -> Periods:
        path = self._cgroups.path(group, Resource.CPU_STAT)
        stat = cpu_stat(self._cgroups.read_raw(group, Resource.CPU_STAT), path)
        return Periods(stat.nr_periods, stat.nr_throttled)


def used(before: Reading, after: Reading) -> Used:
    seconds = after.at - before.at
    return Used(
        seconds=seconds,
        node_cores=(after.node_s - before.node_s) / seconds,
        cores={name: (now - before.group_s[name]) / seconds for name, now in after.group_s.items()},
        throttled={
            name: now.throttled - before.periods[name].throttled
            for name, now in after.periods.items()
        },
    )
