"""CPU use and throttling of groups and node between two moments, from the kernel's counters."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from koordlet.decision.resource import Resource
from koordlet.demo.sampling import Periods
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.parse import cpu_stat, proc_stat

_PROC_STAT = "/proc/stat"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Reading:
    """Counters: CPU seconds, CFS periods. ``at`` is CLOCK_MONOTONIC."""

    at: float
    node_s: float
    group_s: Mapping[str, float]
    periods: Mapping[str, Periods]


@dataclass(frozen=True)
class Used:
    """Shares are of all CPUs; ``others_share`` is outside of the groups: clients, daemon, and
    whatever else runs on the machine. ``throttled``: periods of the group that ended throttled."""

    seconds: float
    node_share: float
    others_share: float
    cores: Mapping[str, float]
    throttled: Mapping[str, int]


class Meter:
    def __init__(self, cgroups: Cgroups, groups: Mapping[str, str]) -> None:
        """``groups``: name -> cgroup."""
        self._cgroups = cgroups
        self._groups = groups

    def read(self) -> Reading:
        with open(_PROC_STAT, "rb") as file:
            node = proc_stat(file.read(), _PROC_STAT).node / _TICKS_PER_S
        return Reading(
            at=time.monotonic(),
            node_s=node,
            group_s={name: self._used_s(group) for name, group in self._groups.items()},
            periods={name: self._periods(group) for name, group in self._groups.items()},
        )

    def _used_s(self, group: str) -> float:
        return int(self._cgroups.read(group, Resource.CPUACCT_USAGE)) / 1e9

    def _periods(self, group: str) -> Periods:
        path = self._cgroups.path(group, Resource.CPU_STAT)
        stat = cpu_stat(self._cgroups.read_raw(group, Resource.CPU_STAT), path)
        return Periods(stat.nr_periods, stat.nr_throttled)


def used(before: Reading, after: Reading) -> Used:
    seconds, cpus = after.at - before.at, os.cpu_count() or 1
    cores = {name: (now - before.group_s[name]) / seconds for name, now in after.group_s.items()}
    node_cores = (after.node_s - before.node_s) / seconds
    return Used(
        seconds=seconds,
        node_share=node_cores / cpus,
        others_share=max(node_cores - sum(cores.values()), 0.0) / cpus,
        cores=cores,
        throttled={
            name: now.throttled - before.periods[name].throttled
            for name, now in after.periods.items()
        },
    )
