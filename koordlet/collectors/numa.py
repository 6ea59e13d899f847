"""Memory by NUMA node (docs/reference/metrics.md 2.3, 2.6; D-8: units and hierarchy mended)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from koordlet.collectors.applications import disjoint
from koordlet.collectors.base import CollectorPart, NothingToReadError, Round, SlowCollectorOptions
from koordlet.decision import metrics
from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.host import Host
from koordlet.kernel.node_info import huge_bytes
from koordlet.kernel.parse import NumaMemory, meminfo, numa_stat

STILL_ROUNDS = 6
"""The memory of a pod that does not run is read each so many rounds: the kernel may have reclaimed
some."""


class _Known(NamedTuple):
    """Figures of a pod, its CPU counter then (-1: not known), and for how many rounds they have
    been taken as they were."""

    cpu_ns: int
    rounds: int
    stat: Mapping[int, NumaMemory]


class NumaCollector:
    """Node ids may have gaps, and a node may have CPUs but no memory."""

    name = "numa"
    optional = True

    def __init__(
        self,
        host: Host,
        cgroups: Cgroups,
        files: Descriptors,
        interval_s: float = 10.0,
        sys_root: str = "/sys",
    ) -> None:
        self.interval_s = interval_s
        self._host = host
        self._cgroups = cgroups
        self._files = files
        self._known: dict[str, _Known] = {}
        self._nodes = f"{sys_root}/devices/system/node"

    def collect(self, round_: Round) -> None:
        """Raises NothingToReadError where the kernel shows no NUMA nodes."""
        try:
            names = self._host.subdirs(self._nodes)
        except FileNotFoundError as error:
            why = f"{self._nodes}: {error.strerror}: a kernel with CONFIG_NUMA has it"
            raise NothingToReadError(why) from error
        for name in names:
            number = name.removeprefix("node")
            if name == number or not number.isdigit():
                continue
            path = f"{self._nodes}/{name}/meminfo"
            try:
                info = meminfo(self._files.read(path), path)
                huge = sum(huge_bytes(self._host, f"{self._nodes}/{name}").values())
            except (OSError, ValueError) as error:
                round_.skip(path, error)
                continue
            if info.total_bytes == 0:
                continue
            used = max(info.used_without_cache_bytes - huge, 0)
            round_.totals.numa_memory_bytes[int(number)] = used
            round_.add(metrics.NODE_NUMA_MEMORY_USAGE, (number,), used)
        round_.totals.groups_numa_memory_bytes = self._groups(round_)

    def close(self) -> None:
        self._files.drop(self._nodes)
        self._known = {}

    def _groups(self, round_: Round) -> dict[int, float]:
        counted = disjoint(round_.applications, round_.pods)
        cgroups = [pod.cgroup for pod in round_.pods]
        cgroups += [a.cgroup for a in round_.applications if a.present and a.name in counted]
        cpu_ns = round_.pods_cpu_ns
        counters = {pod.cgroup: cpu_ns.get(pod.uid, -1) for pod in round_.pods}
        before, self._known = self._known, {}
        used: defaultdict[int, float] = defaultdict(float)
        for cgroup in cgroups:
            try:
                path = self._cgroups.path(cgroup, Resource.MEMORY_NUMA_STAT)
            except Unsupported:
                break
            try:
                known = self._stat(path, counters.get(cgroup, -1), before.get(path))
            except (OSError, ValueError) as error:
                round_.skip(path, error)
                continue
            self._known[path] = known
            for numa, memory in known.stat.items():
                used[numa] += memory.without_cache_bytes
        return dict(used)

    def _stat(self, path: str, cpu_ns: int, known: _Known | None) -> _Known:
        """Read anew, unless nothing in the pod has run since."""
        if known is not None and 0 <= cpu_ns == known.cpu_ns and known.rounds < STILL_ROUNDS:
            return known._replace(rounds=known.rounds + 1)
        return _Known(cpu_ns, 0, numa_stat(self._host.read(path), path))


COLLECTOR = CollectorPart(
    name=NumaCollector.name,
    help="Memory by NUMA node.",
    options=SlowCollectorOptions(),
    make=lambda machine, options: NumaCollector(
        machine.host, machine.cgroups, machine.files, options.interval_seconds, machine.sys_root
    ),
    metrics=(metrics.NODE_NUMA_MEMORY_USAGE,),
)
