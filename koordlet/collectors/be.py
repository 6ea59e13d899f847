"""The best-effort tier: what it may use, asks for and uses (docs/reference/metrics.md 2.8).

The tier is the BestEffort directory of the kubepods tree and the applications of class BE
outside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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


_NO_LIST = _List("", b"", frozenset())


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
        """Of the roots."""
        self._inner: dict[str, _List | None] = {}
        """Of the containers in the tier; None: not read yet."""
        self._pods: tuple[Pod, ...] | None = None
        self._turn = 0

    def collect(self, round_: Round) -> None:
        """Raises OSError or ValueError when the CPUs or the quota of a root are there and cannot
        be read: half a limit would be a wrong one."""
        roots = list(self._roots(round_))
        if not roots:
            self.close()
            return
        self._turn = (self._turn + 1) % TURN_ROUNDS
        for root in self._lists.keys() - set(roots):
            self._files.forget(self._lists.pop(root).path)
        limits = [self._limit(root, round_) for root in roots]
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
        self._inner = {}
        self._pods = None
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

    def _limit(self, root: str, round_: Round) -> Limit:
        """The smallest CPU list of the root and, for the kubepods tier, of its containers: work
        cannot use more than the innermost list allows."""
        own = self._lists[root] = self._list_of(root, self._lists.get(root), self._files.read)
        # Without a cpuset of its own it may run everywhere.
        cpus = own.cpus if own.path else round_.node.topology.ids
        if root == round_.node.tree.besteffort:
            cpus = min((cpus, *self._inner_cpus(root, round_)), key=len)
        try:
            quota = self._cgroups.read(root, Resource.CPU_QUOTA_US)
            period = self._cgroups.read(root, Resource.CPU_PERIOD_US)
        except (Unsupported, FileNotFoundError):
            return Limit(cpus, None)
        if not isinstance(quota, int) or not isinstance(period, int) or quota < 0 or period <= 0:
            return Limit(cpus, None)
        return Limit(cpus, quota * 1000 // period)

    def _inner_cpus(self, root: str, round_: Round) -> list[CPUSet]:
        """The lists of the containers in the tier, as far as they have any. Newcomers are read at
        once, of the others a part in each round."""
        if round_.pods is not self._pods:
            known = self._inner
            inside = [pod for pod in round_.pods if pod.cgroup.startswith(root + "/")]
            containers = [container for pod in inside for container in pod.containers]
            self._inner = {each.cgroup: known.get(each.cgroup) for each in containers}
            self._pods = round_.pods
        found = []
        for index, (cgroup, last) in enumerate(self._inner.items()):
            if last is None or index % TURN_ROUNDS == self._turn:
                last = self._inner[cgroup] = self._list_of(cgroup, last, self._files.read_once)
            if last.cpus:
                found.append(last.cpus)
        return found

    def _list_of(self, cgroup: str, known: _List | None, read: Callable[[str], bytes]) -> _List:
        """Without a path where the cgroup has no list of its own."""
        try:
            path = self._cgroups.path(cgroup, Resource.CPUSET_CPUS_EFFECTIVE)
            text = read(path)
        except (Unsupported, FileNotFoundError):
            return _NO_LIST
        if known is not None and known.text == text and known.path == path:
            return known
        return _List(path, text, parse_cpulist(text.decode()))

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
