"""What the demo reads from the kernel while an arm runs."""

from __future__ import annotations

from dataclasses import dataclass

from koordlet.decision.resource import Resource
from koordlet.demo import stage
from koordlet.demo.model import Sample
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.host import Host
from koordlet.kernel.parse import cpu_stat, proc_stat

_NS = 1e9
_PROC_STAT = "/proc/stat"


@dataclass(frozen=True)
class CpuClock:
    """CPU seconds so far, by class; ``t`` monotonic seconds."""

    t: float
    ls: float
    be: float
    node: float


@dataclass(frozen=True)
class Periods:
    """CFS periods so far, and how many of them ended throttled."""

    total: int
    throttled: int

    def ratio_since(self, before: Periods) -> float:
        total = self.total - before.total
        return (self.throttled - before.throttled) / total if total > 0 else 0.0


class Probe:
    """Reads the demo's groups through the same kernel room as the daemon does."""

    def __init__(self, host: Host, cgroups: Cgroups, ticks_per_s: int) -> None:
        self._host = host
        self.cgroups = cgroups
        self._ticks_per_s = ticks_per_s

    def cpu(self) -> CpuClock:
        return CpuClock(
            t=self._host.monotonic(),
            ls=self._used_s(stage.LS),
            be=self._used_s(stage.BE),
            node=proc_stat(self._host.read(_PROC_STAT), _PROC_STAT).node / self._ticks_per_s,
        )

    def periods(self, group: str) -> Periods:
        stat = cpu_stat(
            self.cgroups.read_raw(group, Resource.CPU_STAT),
            self.cgroups.path(group, Resource.CPU_STAT),
        )
        return Periods(stat.nr_periods, stat.nr_throttled)

    def _used_s(self, group: str) -> float:
        return int(self.cgroups.read(group, Resource.CPUACCT_USAGE)) / _NS


def sample(before: CpuClock, after: CpuClock, start: float) -> Sample:
    """Cores used between two clocks; ``start`` is the monotonic start of the arm."""
    elapsed = after.t - before.t
    return Sample(
        t=after.t - start,
        ls=(after.ls - before.ls) / elapsed,
        be=(after.be - before.be) / elapsed,
        node=(after.node - before.node) / elapsed,
    )
