"""Cold memory, by the cheapest way that the kernel has, and refaults
(docs/reference/metrics.md 2.12).

Finding cold memory walks through page tables or lists of pages, so a thread does it, on a slow
rhythm (``worker.py``). What it found last is in the store each ten seconds, less what koordlet had
reclaimed since, beside the refaults.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from msgspec import Meta

from koordlet.collectors.base import (
    CollectorOptions,
    CollectorPart,
    Machine,
    Round,
)
from koordlet.collectors.cold.families import FAMILIES
from koordlet.collectors.cold.groups import METRICS, Group, Subject, subjects
from koordlet.collectors.cold.worker import Worker
from koordlet.decision import memory_figures as m
from koordlet.decision.metrics import Metric
from koordlet.decision.options import about
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Capability, Pod
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.cold import methods
from koordlet.kernel.cold.cold import NODE, Cold, upwards
from koordlet.kernel.parse import MemInfo, meminfo

SAMPLE_S = 10.0
KEEP_S = 600.0
"""What was found counts that long at least, where nothing newer is."""
KEEP_INTERVALS = 2.5

NODE_COLD_METHOD = Metric(
    "node_cold_method", ("cold_method",), "bool", "1 for the way in which cold memory is found"
)
KOORDLET_COLD_CPU_USAGE = Metric(
    "koordlet_cold_cpu_usage", (), "cores", "CPU that finding cold memory takes"
)
FEATURE = "cold-memory"
_COST = "cold memory is not measured; refaults are counted"


class ColdOptions(CollectorOptions, frozen=True):
    interval_seconds: Annotated[
        Annotated[float, Meta(ge=10, le=3600)],
        about("Time between two measurements of cold memory. Refaults are counted every 10 s."),
    ] = 120.0
    method: Annotated[
        Literal["off", "auto", "kidled", "mglru", "page-idle", "clear-refs"],
        about(
            "How cold memory is found. auto: the first of kidled, mglru and page-idle that this "
            "kernel has; not the default, since mglru ages the kernel's lists and page-idle clears "
            "accessed bits, by which the kernel reclaims. kidled, the default, costs nothing where "
            "the kernel has it. clear-refs looks at one pod a minute and flushes its TLB. off: "
            "only refaults are counted."
        ),
    ] = "kidled"


class ColdCollector:
    name = "cold"
    optional = True

    def __init__(
        self, machine: Machine, options: ColdOptions, worker: Worker | None = None
    ) -> None:
        least_s = methods.CLEAR_REFS_LEAST_S if options.method == methods.CLEAR_REFS else 0.0
        self._scan_s = max(options.interval_seconds, least_s)
        self.interval_s = min(SAMPLE_S, options.interval_seconds)
        self._cgroups = machine.cgroups
        self._files = machine.files
        self._store = machine.store
        self._meminfo = f"{machine.proc_root}/meminfo"
        self._machine = methods.Machine(
            machine.host, machine.cgroups, self._scan_s, machine.proc_root, machine.sys_root
        )
        self._wanted = options.method
        self._names = methods.AUTO if options.method == "auto" else (options.method,)
        self._worker = worker or Worker()
        self._forget()

    def _forget(self) -> None:
        self._search = methods.Search(self._names, self._machine)
        self._found_by = ""
        self._missing = ""
        self.capabilities: tuple[Capability, ...] = ()
        self._due_s = -math.inf
        self._began_s = math.nan
        self._cpu_cores: float | None = None
        self._found: dict[str, tuple[float, Cold]] = {}
        self._groups: dict[Subject, Group] = {}
        self._seen: tuple[tuple[Pod, ...], tuple[Application, ...]] | None = None

    def collect(self, round_: Round) -> None:
        """Raises OSError or ParseError where the memory of the node cannot be read."""
        self._follow(round_)
        self._finish(round_)
        if self._wanted != "off" and not self._worker.is_busy and round_.now_s >= self._due_s:
            self._begin(round_.now_s)
        for group in self._groups.values():
            self._add_group(group, round_)
        self._add_node(round_, meminfo(self._files.read_once(self._meminfo), self._meminfo))

    def reclaimed(self, cgroup: str, size_bytes: int) -> None:
        """koordlet had so much taken back from it: what was cold goes first."""
        above = frozenset(upwards(cgroup))
        for each in above & self._found.keys():
            at_s, cold = self._found[each]
            self._found[each] = at_s, without(cold, size_bytes)
        for group in self._groups.values():
            if group.subject.cgroup in above:
                group.taken_bytes += size_bytes

    def about(self) -> str:
        """Which way it took, and its cost; or why there is none."""
        if self._wanted == "off":
            return "counts refaults; collectors.cold.method is off"
        if self._missing:
            hint = self._remedy()
            return f"counts refaults; cold memory is not measured: {self._missing}" + (
                f"; {hint}" if hint else ""
            )
        if self._cpu_cores is None:
            return "counts refaults; the first search for cold memory has not ended yet"
        known = "" if self._found else ", which knows nothing yet"
        return (
            f"counts refaults; finds cold memory by {self._search.name}{known}, every "
            f"{self._scan_s:g} s at {self._cpu_cores:.2%} of a core"
        )

    def close(self) -> None:
        self._worker.stop()
        for group in self._groups.values():
            group.close()
        self._forget()

    def _follow(self, round_: Round) -> None:
        seen = (round_.pods, round_.applications)
        if self._seen is not None and seen[0] is self._seen[0] and seen[1] is self._seen[1]:
            return
        wanted = dict.fromkeys(subjects(*seen))
        for subject in self._groups.keys() - wanted.keys():
            self._groups.pop(subject).close()
        self._groups = {
            each: self._groups.get(each) or Group(each, number, self._store)
            for number, each in enumerate(wanted)
        }
        there = {NODE, *(subject.cgroup for subject in wanted)}
        self._found = {each: found for each, found in self._found.items() if each in there}
        self._seen = seen

    def _finish(self, round_: Round) -> None:
        """Take what a scan found, if it has ended. What another way found before is forgotten."""
        finished = self._worker.take()
        if finished is None:
            return
        self._missing = str(finished.error) if finished.error is not None else ""
        if self._missing:
            self._cpu_cores = None
            found = Capability(FEATURE, False, self._missing, _COST, self._remedy())
        else:
            took_s = max(round_.now_s - self._began_s, self._scan_s)
            self._cpu_cores = finished.cpu_s / took_s
            found = Capability(FEATURE, True, f"found by {self._search.name}")
        self.capabilities = (found,)
        if finished.found and self._found_by != self._search.name:
            self._found_by, self._found = self._search.name, {}
        there = {NODE, *(group.subject.cgroup for group in self._groups.values())}
        self._found |= {
            each: (round_.now_s, cold) for each, cold in finished.found.items() if each in there
        }

    def _begin(self, now_s: float) -> None:
        self._due_s = now_s + self._scan_s
        self._began_s = now_s
        cgroups = frozenset(group.subject.cgroup for group in self._groups.values())
        self._worker.begin(self._search.scan(cgroups))

    def _remedy(self) -> str:
        other = self._search.instead
        return f'{other} would work: set collectors.cold.method = "auto"' if other else ""

    def _known(self, cgroup: str, now_s: float) -> Cold | None:
        at_s, cold = self._found.get(cgroup, (-math.inf, Cold()))
        return cold if self._is_fresh(at_s, now_s) else None

    def _is_fresh(self, at_s: float, now_s: float) -> bool:
        return now_s - at_s < max(KEEP_S, KEEP_INTERVALS * self._scan_s)

    def _add_group(self, group: Group, round_: Round) -> None:
        cgroup = group.subject.cgroup
        cold = self._known(cgroup, round_.now_s)
        if cold is None and not group.counts_refaults:
            return

        def read() -> bytes:
            return self._files.read_once(self._cgroups.path(cgroup, Resource.MEMORY_STAT))

        try:
            group.add_samples(round_, cold, read)
        except Unsupported:
            return
        except (OSError, ValueError) as error:
            round_.skip(cgroup, error)

    def _add_node(self, round_: Round, info: MemInfo) -> None:
        if info.swap_free_bytes is not None:
            round_.add(m.NODE_SWAP_FREE, (), info.swap_free_bytes)
        if any(self._is_fresh(at_s, round_.now_s) for at_s, _ in self._found.values()):
            round_.add(NODE_COLD_METHOD, (self._found_by,), 1.0)
        if self._cpu_cores is not None:
            round_.add(KOORDLET_COLD_CPU_USAGE, (), self._cpu_cores)
        cold = self._known(NODE, round_.now_s)
        if cold is None or cold.file_bytes is None or cold.anon_bytes is None:
            return
        file_bytes = min(cold.file_bytes, info.active_file_bytes + info.inactive_file_bytes)
        with_hot = info.total_bytes - info.free_bytes - file_bytes
        round_.add(m.NODE_MEMORY_COLD_PAGE_SIZE, (), file_bytes)
        round_.add(m.NODE_MEMORY_WITH_HOT_PAGE_USAGE, (), with_hot)
        round_.add(m.NODE_MEMORY_COLD_ANON, (), cold.anon_bytes)


def without(cold: Cold, taken_bytes: int) -> Cold:
    """After so much was reclaimed: page cache first, as the kernel does where there is any."""
    file_bytes = anon_bytes = mapped_bytes = None
    left = taken_bytes
    if cold.file_bytes is not None:
        file_bytes = max(cold.file_bytes - left, 0)
        left -= cold.file_bytes - file_bytes
    if cold.anon_bytes is not None:
        anon_bytes = max(cold.anon_bytes - left, 0)
    if cold.mapped_bytes is not None:
        mapped_bytes = max(cold.mapped_bytes - taken_bytes, 0)
    return Cold(anon_bytes, file_bytes, mapped_bytes)


COLLECTOR = CollectorPart(
    name=ColdCollector.name,
    help="Memory that nobody has used for a while, and refaults.",
    options=ColdOptions(),
    make=lambda machine, options: ColdCollector(machine, options),
    metrics=(
        *METRICS,
        m.NODE_SWAP_FREE,
        NODE_COLD_METHOD,
        KOORDLET_COLD_CPU_USAGE,
    ),
    families=FAMILIES,
)
