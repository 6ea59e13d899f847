"""The best-effort tier: what it may use, asks for and uses (spec/metrics.md 2.8).

The tier is the BestEffort directory of the kubepods tree and the applications of class BE
outside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from koordlet.collectors.applications import disjoint
from koordlet.collectors.base import CollectorOptions, CollectorPart, Round
from koordlet.decision import metrics
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Pod
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.host import Host
from koordlet.kernel.parse import cpu_usage_ns
from koordlet.kernel.proc.kill import is_populated
from koordlet.protocol.cpuset import CPUSet, parse_cpulist
from koordlet.protocol.qos import QoSClass

# Rounds until the lists of all containers have been read again. That of the tier itself, which
# suppression changes, is read in each.
TURN_ROUNDS = 10
_ENDED = frozenset({"Succeeded", "Failed"})


class Limit(NamedTuple):
    """What one root of the tier may use: its CPUs, and its quota in milli-cores if any."""

    cpus: CPUSet
    quota_milli: int | None


def real_limit_milli(limits: Iterable[Limit]) -> int:
    """What the whole tier may use: each root at most its quota and its CPUs, together at most
    the CPUs that any of them may run on."""
    total = 0
    cpus: set[int] = set()
    for limit in limits:
        own = 1000 * len(limit.cpus)
        total += own if limit.quota_milli is None else min(own, limit.quota_milli)
        cpus |= limit.cpus
    return min(total, 1000 * len(cpus))


def request_milli(pods: Iterable[Pod], applications: Iterable[Application]) -> int:
    """Batch CPU asked for by pods labelled BE that have not ended, and by BE ``applications`` of
    those given that are there."""
    total = 0
    for pod in pods:
        if pod.raw_qos is QoSClass.BE and pod.phase not in _ENDED:
            total += pod.resources.request_batch_cpu_milli or 0
    for application in applications:
        if application.qos is QoSClass.BE and application.present:
            asked = application.resources
            total += asked.request_batch_cpu_milli or asked.request_cpu_milli or 0
    return total


class _List(NamedTuple):
    """A CPU list as last read; it seldom changes, so its text is compared before it is parsed."""

    path: str
    text: bytes
    cpus: CPUSet


class BestEffortCollector:
    name = "be"
    optional = False

    def __init__(
        self, host: Host, cgroups: Cgroups, files: Descriptors, interval_s: float = 1.0
    ) -> None:
        self.interval_s = interval_s
        self._host = host
        self._cgroups = cgroups
        self._files = files
        self._usage: dict[str, tuple[int, float]] = {}
        """Root of the tier -> last counter (ns), and when."""
        self._lists: dict[str, _List] = {}
        self._turn = 0

    def collect(self, round_: Round) -> None:
        """Raises OSError or ValueError when the CPUs or the quota of a root are there and cannot
        be read: half a limit would be a wrong one."""
        roots = list(self._roots(round_))
        if not roots:
            self.close()
            return
        self._turn = (self._turn + 1) % TURN_ROUNDS
        before, self._lists = self._lists, {}
        limits = [self._limit(root, round_, before) for root in roots]
        for cgroup in before.keys() - self._lists.keys():
            self._files.forget(before[cgroup].path)
        self._add(round_, "real-limit", real_limit_milli(limits))
        counted = self._usage
        cores = self._used_cores(roots, round_)
        working = (app for app in round_.applications if self._works(app, counted))
        self._add(round_, "request", request_milli(round_.pods, working))
        if cores is not None:
            self._add(round_, "usage", int(cores * 1000))

    def close(self) -> None:
        for known in self._lists.values():
            self._files.forget(known.path)
        for root in self._usage:
            self._files.forget(self._cgroups.path(root, Resource.CPUACCT_USAGE))
        self._lists = {}
        self._usage = {}

    def _works(self, application: Application, counted: dict[str, tuple[int, float]]) -> bool:
        """False where its counter stands still and no process is there: one that was evicted, or
        has not begun, and keeps its cgroup. It needs nothing of what it has asked for.
        ``counted``: the counters of the round before."""
        now, before = (known.get(application.cgroup) for known in (self._usage, counted))
        if now is None or before is None or now[0] != before[0]:
            return True
        return is_populated(self._host, self._cgroups, application.cgroup)

    def _add(self, round_: Round, allocation: str, milli: int) -> None:
        round_.add(metrics.NODE_BE, ("cpu", allocation), milli)

    def _roots(self, round_: Round) -> Iterator[str]:
        besteffort = round_.node.tree.besteffort
        if besteffort and self._cgroups.exists(besteffort):
            yield besteffort
        counted = disjoint(round_.applications, ())
        for application in round_.applications:
            inside = besteffort and application.cgroup.startswith(besteffort + "/")
            if (
                application.qos is QoSClass.BE
                and application.present
                and application.name in counted
                and not inside
            ):
                yield application.cgroup

    def _limit(self, root: str, round_: Round, before: dict[str, _List]) -> Limit:
        """The smallest CPU list of the root and, for the kubepods tier, of its containers: work
        cannot use more than the innermost list allows."""
        cpus = self._cpus_of(root, before)
        if cpus is None:  # no cpuset of its own: it may run everywhere
            cpus = round_.node.topology.ids
        if root == round_.node.tree.besteffort:
            inside = [pod for pod in round_.pods if pod.cgroup.startswith(root + "/")]
            containers = [container for pod in inside for container in pod.containers]
            for index, container in enumerate(containers):
                look = index % TURN_ROUNDS == self._turn
                inner = self._cpus_of(container.cgroup, before, look=look, keep=False)
                if inner and len(inner) < len(cpus):
                    cpus = inner
        try:
            quota = self._cgroups.read(root, Resource.CPU_QUOTA_US)
            period = self._cgroups.read(root, Resource.CPU_PERIOD_US)
        except (Unsupported, FileNotFoundError):
            return Limit(cpus, None)
        if not isinstance(quota, int) or not isinstance(period, int) or quota < 0 or period <= 0:
            return Limit(cpus, None)
        return Limit(cpus, quota * 1000 // period)

    def _cpus_of(
        self, cgroup: str, before: dict[str, _List], *, look: bool = True, keep: bool = True
    ) -> CPUSet | None:
        """None where the cgroup has no list of its own. Without ``look`` a known one will do.
        ``keep``: the file is read in each round, so it stays open."""
        known = before.get(cgroup)
        if known is not None and not look:
            self._lists[cgroup] = known
            return known.cpus
        try:
            if known is None:
                path = self._cgroups.path(cgroup, Resource.CPUSET_CPUS_EFFECTIVE)
                known = _List(path, b"", frozenset())
            text = (self._files.read if keep else self._files.read_once)(known.path)
        except (Unsupported, FileNotFoundError):
            return None
        if text != known.text:
            known = _List(known.path, text, parse_cpulist(text.decode()))
        self._lists[cgroup] = known
        return known.cpus

    def _used_cores(self, roots: list[str], round_: Round) -> float | None:
        """None until every readable root was seen twice. A counter that ran backwards starts
        again."""
        total = 0.0
        complete = True
        before, self._usage = self._usage, {}
        for root in roots:
            path = self._cgroups.path(root, Resource.CPUACCT_USAGE)
            try:
                usage_ns = cpu_usage_ns(self._files.read(path), path)
            except (OSError, ValueError) as error:
                round_.skip(path, error)
                continue
            now_s = self._host.monotonic()
            last = before.get(root)
            self._usage[root] = (usage_ns, now_s)
            if last is None or last[0] > usage_ns or now_s <= last[1]:
                complete = False
            else:
                total += (usage_ns - last[0]) / (now_s - last[1]) / 1e9
        return total if complete and self._usage else None


COLLECTOR = CollectorPart(
    name=BestEffortCollector.name,
    help="Request, limit and use of the best-effort tier.",
    options=CollectorOptions(),
    make=lambda machine, options: BestEffortCollector(
        machine.host, machine.cgroups, machine.files, options.interval_seconds
    ),
    metrics=(metrics.NODE_BE,),
)
