"""The state of the fake machine: options, clock, processes, hierarchies, pending events."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from koordlet_fakefs.parse import refuse
from koordlet_fakefs.topology import FakeTopology, shape

if TYPE_CHECKING:
    from koordlet_fakefs.cgroup import Cgroup, Hierarchy

NS = 1_000_000_000


@dataclass(frozen=True)
class Resctrl:
    """How the processor divides cache and memory bandwidth, and how resctrl was mounted.

    ``cdp``: code and data of the L3 cache apart. ``cache_ids``: instead of those of the topology,
    in their order.
    """

    cdp: bool = False
    min_ways: int = 1
    least: int = 10
    step: int = 10
    most: int = 100
    """100 percent, 2048 eighths of a GB/s on AMD, 2^32 - 1 MB/s with ``-o mba_MBps``."""
    cache_ids: tuple[int, ...] = ()
    allocates: bool = True
    """False: a processor that only counts."""
    events: tuple[str, ...] = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
    """What it counts; none: it only allocates."""
    configurable: bool = False
    """AMD: what an event of memory traffic counts can be set."""
    rmids: int = 32
    rmids_per_closid: bool = False
    """Arm's MPAM: ``rmids`` are those of each control group, ``num_rmids`` says those of all."""
    bands: int = 0
    """Arm's MPAM: bandwidth is one of so many equal bands, and what is read is the upper bound of
    the nearest; then ``step`` and ``least`` are those of a band."""
    mbm_counters: int = 0
    """Counters of memory traffic in each domain, which are given to groups (``mbm_event``)."""
    nodes_per_cache: int = 1
    """More with sub-NUMA clusters."""
    threshold_bytes: int = 64 << 10
    """Of a cache: with less in it an RMID is used again."""
    evicted_bytes_per_s: int = 1 << 20
    """How fast what an ended group has left in a cache goes."""


@dataclass(frozen=True)
class Options:
    """What kind of machine it is; fixed for its life."""

    topology: FakeTopology = field(default_factory=shape)
    memory_bytes: int = 24 << 30
    base_memory_bytes: int = 512 << 20
    """Used by the kernel and by what is not modelled."""
    anolis: bool = False
    """The vendor files (cpu.bvt_warp_ns, memory.wmark_ratio, v1 pressure files ...)."""
    cap_sys_resource: bool = False
    """Without it PSI windows must be multiples of 2 s."""
    resctrl: bool | Resctrl = False
    """A processor that allocates cache and memory bandwidth, with resctrl mounted."""
    cpu_vendor: str = "GenuineIntel"
    """``ARM``: /proc/cpuinfo is that of arm64."""
    core_sched: bool = False
    """Core scheduling: hyperthreads, and a kernel that has it."""
    pmu: Literal["none", "cycles", "full"] = "none"
    """What the hardware counts: nothing, cycles alone, or cycles and instructions."""
    lru_gen: bool = False
    """MGLRU, with its file in debugfs."""
    lru_gen_feedback: bool = False
    """Since Linux 6.14 an order to age a generation that is past ages the newest one."""
    lockdown: bool = False
    """The kernel is locked down: what can be written in debugfs cannot be opened."""
    page_idle: bool = False
    """Idle page tracking."""
    kdamond: bool = False
    """A DAMON thread of somebody else runs."""
    terway: bool = False
    """The directory that terway-qos watches."""
    disks: tuple[tuple[int, int, str], ...] = ((254, 0, "vda"), (7, 0, "loop0"))
    """Block devices: major, minor, name."""
    kernel_release: str = "6.18.0-fake"
    """It behaves as that version does, where a test of tests/kernel/test_versions.py says so."""
    start_time: float = 1_700_000_000.0
    """Unix time when the fake is made; it has been up for ``uptime_s`` then."""
    uptime_s: int = 1000

    @property
    def kernel(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor, *_ = self.kernel_release.partition("-")[0].split(".")
        return int(major), int(minor)


class Thread:
    """One schedulable thread; ``cgroups`` has its group in every hierarchy."""

    __slots__ = ("cgroups", "cookie", "cpus", "process", "tid")

    def __init__(self, tid: int, process: Process) -> None:
        self.tid = tid
        self.process = process
        self.cgroups: dict[Hierarchy, Cgroup] = {}
        self.cookie = 0
        """For core scheduling; 0 is none."""
        self.cpus: frozenset[int] | None = None
        """Those that it was given by sched_setaffinity(2); None: nobody has."""


class Process:
    """A process with ``threads`` and a demand for CPU, and what the scheduler gave it.

    ``demand_cores`` is CPU time wanted per second, at most one core per thread. With
    ``open_loop`` what is not granted queues up (``backlog_ns``) and is worked off later, as the
    requests of a service do; otherwise it is lost, as for a burner. ``service_s`` is the CPU time
    of one wake-up (one request): how often it has to wait for a CPU follows from it.
    """

    def __init__(self, pid: int, comm: str, start_ns: int) -> None:
        self.pid = pid
        self.comm = comm
        self.start_ns = start_ns
        self.threads: dict[int, Thread] = {}
        self.demand_cores = 0.0
        self.open_loop = False
        self.service_s = 0.001
        self.backlog_ns = 0.0
        self.granted_ns = 0.0
        self.wake_delay_s = 0.0
        """Mean time a wake-up waited for a CPU in the last step."""
        self.wait_ns = 0.0
        self.environ = ""
        """As in /proc/PID/environ: ``NAME=value``, each with a zero byte behind it."""
        self.oom_score_adj = 0
        self.oom_score_adj_min = 0
        """Nobody without CAP_SYS_RESOURCE goes below it."""
        self.cold_bytes = 0
        """Of its own memory, what it never touches again."""
        self.cleared = False
        """Whether its referenced bits have been cleared."""
        self.alive = True
        self.stuck = False
        """In the kernel, where no signal ends it for now."""

    @property
    def granted_s(self) -> float:
        """CPU time received."""
        return self.granted_ns / NS

    @property
    def backlog_s(self) -> float:
        """CPU time of the work that has arrived and is not done (``open_loop``)."""
        return self.backlog_ns / NS

    @property
    def wait_s(self) -> float:
        """Time its threads were runnable without a CPU, summed over threads."""
        return self.wait_ns / NS


@dataclass(eq=False)
class Machine:
    options: Options
    now_ns: int = 0
    """Since boot: CLOCK_MONOTONIC."""
    kidled_period_s: int = 0
    """0: it does not scan."""
    kidled_since_ns: int = 0
    hierarchies: list[Hierarchy] = field(default_factory=list)
    processes: dict[int, Process] = field(default_factory=dict)
    forks: int = 0
    next_pid: int = 1 << 22
    """No process of the real machine has such a number (PID_MAX_LIMIT of the kernel): one that has
    the number of the test itself would be taken for koordlet."""
    generation: int = 0
    """Counts every change that may alter who runs where: the scheduler's cache key."""
    events: deque[Callable[[], None]] = field(default_factory=deque)
    """Callbacks owed to watchers; run by ``FakeHost.deliver``, never inside a call."""
    on_group: list[Callable[[Cgroup, bool], None]] = field(default_factory=list)
    """Called with (group, came) when a cgroup is made or removed."""
    on_process: list[Callable[[Process, bool], None]] = field(default_factory=list)
    """Called with (process, came)."""

    def hierarchy_of(self, controller: str) -> Hierarchy | None:
        """The hierarchy a controller is bound to; None where the machine has none."""
        for hierarchy in self.hierarchies:
            if controller in hierarchy.controllers:
                return hierarchy
        return None

    @property
    def unified(self) -> Hierarchy | None:
        """The cgroup2 hierarchy, if mounted."""
        for hierarchy in self.hierarchies:
            if hierarchy.version == 2:
                return hierarchy
        return None

    def threads(self) -> Iterator[Thread]:
        for process in self.processes.values():
            yield from process.threads.values()

    def process(self, pid: int) -> Process:
        """ESRCH for an unknown pid."""
        found = self.processes.get(pid)
        if found is None:
            raise refuse(errno.ESRCH)
        return found

    def thread(self, tid: int) -> Thread:
        for process in self.processes.values():
            if tid in process.threads:
                return process.threads[tid]
        raise refuse(errno.ESRCH)

    def fork(self, comm: str, threads: int, pid: int | None = None) -> Process:
        """A new process in the root of every hierarchy."""
        leader = self.next_pid if pid is None else pid
        process = Process(leader, comm, self.now_ns)
        tids = [leader]
        if pid is None:
            tids = list(range(leader, leader + threads))
            self.next_pid += threads
        for tid in tids:
            thread = Thread(tid, process)
            process.threads[tid] = thread
            for hierarchy in self.hierarchies:
                hierarchy.root.add_thread(thread)
        self.processes[leader] = process
        self.forks += len(tids)
        self.generation += 1
        for notify in self.on_process:
            notify(process, True)
        return process

    def exit(self, process: Process) -> None:
        """The process ends: it leaves its groups and frees its memory."""
        for thread in process.threads.values():
            for group in thread.cgroups.values():
                group.threads.pop(thread.tid, None)
            thread.cgroups.clear()
        for hierarchy in self.hierarchies:
            for group in hierarchy.root.subtree():
                if group.memory is not None:
                    group.memory.anon.pop(process.pid, None)
        process.alive = False
        process.demand_cores = 0.0
        self.processes.pop(process.pid, None)
        self.generation += 1
        for notify in self.on_process:
            notify(process, False)
