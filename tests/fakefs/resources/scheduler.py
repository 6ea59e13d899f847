"""The scheduling model: CPU time in small steps, answered by what the cgroups say.

A step is fluid: inside it everybody runs at a constant rate (``waterfill``). Quotas are budgets
that are refilled at period boundaries, so a group that burns its budget early is throttled until
the next one. Not modelled: SMT, migration cost, real-time classes. What a waking thread waits for
a CPU is estimated (``wake_delay_s``), since a fluid has no slices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from koordlet_fakefs.cgroup import Cgroup
from koordlet_fakefs.machine import NS, Machine, Process
from koordlet_fakefs.resources.account import Account, Spread
from koordlet_fakefs.resources.cpu import CpuState
from koordlet_fakefs.resources.cpuset import cpus_allowed
from koordlet_fakefs.resources.limits import is_frozen
from koordlet_fakefs.resources.placement import place
from koordlet_fakefs.resources.psi import AVERAGE_PERIOD_NS, RESOURCES, Pressure
from koordlet_fakefs.resources.waterfill import EPSILON, Branch, Leaf, Mask, allocate

THREAD_WEIGHT = 1024.0
_GRANTS_KEPT = 256
WAKE_DELAY_S = 0.0015
"""Mean rest of the slice of a normal task that a waking thread finds on its CPU: half of EEVDF's
3 ms base slice. An idle-class task (cpu.idle) is preempted at once."""


@dataclass(eq=False)
class Part:
    """Threads of one process with the same groups: what the scheduler hands time to."""

    process: Process
    threads: int
    mask: Mask
    branch: int
    idle: bool
    groups: tuple[Cgroup, ...]
    """The groups whose CPU time and pressure it counts for, with those above them."""


@dataclass(eq=False)
class Scene:
    """Everything that stays until a group, a process or a setting changes."""

    generation: int
    parts: list[Part] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    bandwidth: list[tuple[int, CpuState]] = field(default_factory=list)
    """Branch index and state of each group with a quota, parents first."""
    grants: dict[tuple[object, ...], Grant] = field(default_factory=dict)
    system_cpu: Pressure = field(default_factory=Pressure)
    pressures: list[Pressure] = field(default_factory=list)
    watched: list[Pressure] = field(default_factory=list)
    """Those with a trigger or a stall set by a test: they need a look at every step."""


@dataclass(eq=False)
class Grant:
    """Rates during a step, in cores (seconds per second)."""

    parts: list[tuple[Part, float, float, float]]
    """Part, wanted, granted, waiting."""
    accounts: list[tuple[Account, float, Spread]]
    """Account, cores, where: all that one account gets through one mask."""
    cpus: list[tuple[int, float]]
    bandwidth: list[tuple[CpuState, float, float]]
    """State, used, withheld."""
    pressures: list[tuple[Pressure, float, float]]
    wake_delays: list[float]
    running: float


class Scheduler:
    """Owns time: ``step`` moves the clock and everything that follows from it."""

    def __init__(self, machine: Machine, step_s: float) -> None:
        self.machine = machine
        self.step_ns = round(step_s * NS)
        self.busy_ns = [0.0] * machine.options.topology.possible_count
        self.pressure = {resource: Pressure() for resource in RESOURCES}
        self.load = [0.0, 0.0, 0.0]
        self.running = 0.0
        self._scene = Scene(generation=-1)

    def step(self, duration_ns: int) -> None:
        """Advance by at most one step; fires PSI triggers into the event queue."""
        machine = self.machine
        if self._scene.generation != machine.generation:
            self._scene = build_scene(machine, self.pressure)
        scene = self._scene
        start = machine.now_ns
        for _, cpu in scene.bandwidth:
            period_ns = cpu.period_us * 1000
            boundaries = (start + duration_ns - 1) // period_ns - (start - 1) // period_ns
            if boundaries:
                cpu.refill(boundaries)
        key, wants, limits = self._demand(scene, duration_ns)
        grant = scene.grants.get(key)
        if grant is None:
            grant = _grant(scene, wants, limits)
            if len(scene.grants) >= _GRANTS_KEPT:
                scene.grants.clear()
            scene.grants[key] = grant
        self._integrate(grant, duration_ns)
        machine.now_ns = start + duration_ns
        self._pressure(scene, grant, start, duration_ns)

    def _demand(
        self, scene: Scene, duration_ns: int
    ) -> tuple[tuple[object, ...], list[float], list[float]]:
        """Cache key, wanted cores by part, limit in cores by entry of ``scene.bandwidth``."""
        wants = []
        for part in scene.parts:
            process = part.process
            share = part.threads / len(process.threads)
            want = process.demand_cores * share
            if process.backlog_ns > 0:
                want += process.backlog_ns * share / duration_ns
            wants.append(min(want, part.threads))
        limits = [max(0.0, round(cpu.tokens_ns)) / duration_ns for _, cpu in scene.bandwidth]
        total = sum(wants)
        # A limit that cannot bind must not split the cache.
        shown = tuple(limit if limit < total else inf for limit in limits)
        return (tuple(wants), shown), wants, limits

    def _integrate(self, grant: Grant, duration_ns: int) -> None:
        for part, _want, given, waiting in grant.parts:
            process = part.process
            process.granted_ns += given * duration_ns
            process.wait_ns += waiting * duration_ns
            if process.open_loop:
                share = part.threads / len(process.threads)
                arrived = process.demand_cores * share * duration_ns
                process.backlog_ns = max(0.0, process.backlog_ns + arrived - given * duration_ns)
        for (part, *_), delay in zip(grant.parts, grant.wake_delays, strict=True):
            part.process.wake_delay_s = delay
        for account, rate, spread in grant.accounts:
            account.add(rate * duration_ns, spread)
        for cpu, rate in grant.cpus:
            self.busy_ns[cpu] += rate * duration_ns
        for state, used, withheld in grant.bandwidth:
            state.tokens_ns -= used * duration_ns
            state.used_ns += used * duration_ns
            state.wanted = state.wanted or used > EPSILON or withheld > EPSILON
            if withheld > EPSILON:
                state.throttled = True
                state.throttled_ns += withheld * duration_ns
        self.running = grant.running

    def _pressure(self, scene: Scene, grant: Grant, start: int, duration_ns: int) -> None:
        now = start + duration_ns
        for pressure, some, full in grant.pressures:
            pressure.total_ns["some"] += some * duration_ns
            pressure.total_ns["full"] += full * duration_ns
        for pressure in scene.watched:
            for kind, share in pressure.stall.items():
                pressure.total_ns[kind] += share * duration_ns
        averages = now // AVERAGE_PERIOD_NS - start // AVERAGE_PERIOD_NS
        for _ in range(averages):
            for pressure in scene.pressures:
                pressure.update_averages()
        for pressure in scene.watched:
            self._fire(pressure, bool(averages), now)
        self._load_average(duration_ns)

    def _fire(self, pressure: Pressure, averaged: bool, now: int) -> None:
        # Triggers of unprivileged processes are looked at when averages are computed.
        if not (averaged or self.machine.options.cap_sys_resource):
            return
        for trigger in pressure.triggers:
            if trigger.check(now, pressure.total_ns[trigger.kind]):
                self.machine.events.append(trigger.on_fire)

    def _load_average(self, duration_ns: int) -> None:
        for index, minutes in enumerate((1, 5, 15)):
            part = min(1.0, duration_ns / NS / (60.0 * minutes))
            self.load[index] += (self.running - self.load[index]) * part


def build_scene(machine: Machine, system: dict[str, Pressure]) -> Scene:
    """Group threads, and number the groups they compete in, parents first."""
    scene = Scene(machine.generation)
    bound = (machine.hierarchy_of(name) for name in ("cpu", "cpuset", "cpuacct"))
    trees = (*bound, machine.unified)
    index: dict[Cgroup | None, int] = {}
    counts: dict[tuple[Process, Cgroup | None, Cgroup | None, Cgroup | None, Cgroup | None], int]
    counts = {}
    for thread in machine.threads():
        wants = thread.process.demand_cores > 0 or thread.process.backlog_ns > 0
        if wants and not any(is_frozen(group) for group in thread.cgroups.values()):
            cpu, cpuset, cpuacct, dfl = (
                None if tree is None else thread.cgroups[tree] for tree in trees
            )
            key = (thread.process, cpu, cpuset, cpuacct, dfl)
            counts[key] = counts.get(key, 0) + 1
    for (process, cpu, cpuset, cpuacct, dfl), threads in counts.items():
        branch, idle = _branch(scene, index, cpu)
        allowed = cpus_allowed(cpuset) if cpuset else machine.options.topology.online
        tops = dict.fromkeys(top for top in (cpuacct, dfl) if top is not None)
        groups = tuple(group for top in tops for group in top.ancestors())
        mask = sum(1 << c for c in allowed)
        scene.parts.append(Part(process, threads, mask, branch, idle, groups))
    scene.system_cpu = system["cpu"]
    scene.pressures = list(system.values())
    for hierarchy in machine.hierarchies:
        for group in hierarchy.root.subtree():
            scene.pressures.extend(group.pressure.values())
    scene.watched = [p for p in scene.pressures if p.triggers or p.stall]
    return scene


def _branch(
    scene: Scene, index: dict[Cgroup | None, int], group: Cgroup | None
) -> tuple[int, bool]:
    """The branch of the nearest group with a cpu state, and whether it or one above is idle."""
    while group is not None and group.parent is not None and group.cpu is None:
        group = group.parent
    if group is None or group.parent is None:
        if None not in index:
            index[None] = len(scene.branches)
            scene.branches.append(Branch(-1, THREAD_WEIGHT))
        return index[None], False
    parent, idle = _branch(scene, index, group.parent)
    cpu = group.cpu
    assert cpu is not None
    if group not in index:
        index[group] = len(scene.branches)
        scene.branches.append(Branch(parent, float(cpu.shares)))
        if cpu.quota_us is not None:
            scene.bandwidth.append((index[group], cpu))
    return index[group], idle or bool(cpu.idle) or cpu.bvt_warp_ns < 0


def _grant(scene: Scene, wants: list[float], limits: list[float]) -> Grant:
    branches = list(scene.branches)
    for (branch, _), limit in zip(scene.bandwidth, limits, strict=True):
        branches[branch] = Branch(branches[branch].parent, branches[branch].weight, limit)
    leaves = [
        Leaf(part.branch, THREAD_WEIGHT * part.threads, want, part.mask)
        for part, want in zip(scene.parts, wants, strict=True)
    ]
    given = allocate(branches, leaves)
    by_mask: dict[Mask, float] = {}
    accounts: dict[tuple[Account, Mask], float] = {}
    for part, cores in zip(scene.parts, given, strict=True):
        by_mask[part.mask] = by_mask.get(part.mask, 0.0) + cores
        for group in part.groups:
            if group.account is not None:
                key = (group.account, part.mask)
                accounts[key] = accounts.get(key, 0.0) + cores
    placed = place(by_mask)
    cpus: dict[int, float] = {}
    spreads: dict[Mask, Spread] = {}
    for mask, spots in placed.items():
        parts = ((cpu, cores / by_mask[mask]) for cpu, cores in spots.items())
        spreads[mask] = Spread(tuple(parts))
        for cpu, cores in spots.items():
            cpus[cpu] = cpus.get(cpu, 0.0) + cores
    delays = _wake_delays(scene.parts, given)
    waiting = [
        _waiting(part, want, cores, delay)
        for part, want, cores, delay in zip(scene.parts, wants, given, delays, strict=True)
    ]
    return Grant(
        parts=list(zip(scene.parts, wants, given, waiting, strict=True)),
        accounts=[(a, cores, spreads[mask]) for (a, mask), cores in accounts.items()],
        cpus=list(cpus.items()),
        bandwidth=_bandwidth(scene, branches, wants, given),
        pressures=_cpu_pressures(scene, given, waiting),
        wake_delays=delays,
        running=sum(given) + sum(waiting),
    )


def _bandwidth(
    scene: Scene, branches: list[Branch], wants: list[float], given: list[float]
) -> list[tuple[CpuState, float, float]]:
    """Use of each budget, and the cores its limit withheld in this step."""
    asked = [0.0] * len(branches)
    used = [0.0] * len(branches)
    for part, want, cores in zip(scene.parts, wants, given, strict=True):
        asked[part.branch] += min(want, part.mask.bit_count())
        used[part.branch] += cores
    withheld = [0.0] * len(branches)
    for branch in range(len(branches) - 1, -1, -1):
        limit = branches[branch].limit
        if asked[branch] > limit + EPSILON and used[branch] >= limit - EPSILON:
            withheld[branch] = asked[branch] - limit
        parent = branches[branch].parent
        if parent >= 0:
            asked[parent] += min(asked[branch], limit)
            used[parent] += used[branch]
    return [(cpu, used[branch], withheld[branch]) for branch, cpu in scene.bandwidth]


def _wake_delays(parts: list[Part], given: list[float]) -> list[float]:
    """Mean time a wake-up waits, in seconds.

    It waits when every CPU it may use runs a normal task of somebody else; the chance is taken as
    the busy share of one CPU to the power of their number.
    """
    load: dict[tuple[Mask, bool], float] = {}
    own: dict[tuple[Process, Mask, bool], float] = {}
    for part, cores in zip(parts, given, strict=True):
        kind = (part.mask, part.idle)
        load[kind] = load.get(kind, 0.0) + cores
        mine = (part.process, *kind)
        own[mine] = own.get(mine, 0.0) + cores
    delays = []
    for part in parts:
        width = part.mask.bit_count()
        others = sum(
            (cores - own.get((part.process, mask, idle), 0.0))
            * ((mask & part.mask).bit_count() / mask.bit_count())
            for (mask, idle), cores in load.items()
            if part.idle or not idle
        )
        delays.append(min(1.0, max(0.0, others) / width) ** width * WAKE_DELAY_S)
    return delays


def _waiting(part: Part, want: float, cores: float, delay_s: float) -> float:
    """Threads waiting for a CPU on average."""
    if want - cores > EPSILON:
        return want - cores
    return min(cores / part.process.service_s * delay_s, part.threads - cores)


def _cpu_pressures(
    scene: Scene, given: list[float], waiting: list[float]
) -> list[tuple[Pressure, float, float]]:
    """some: somebody waits. full: somebody waits and nobody of the group runs."""
    groups: dict[Cgroup, tuple[float, float]] = {}
    for part, cores, wait in zip(scene.parts, given, waiting, strict=True):
        for group in part.groups:
            run, stalled = groups.get(group, (0.0, 0.0))
            groups[group] = (run + cores, stalled + wait)
    rates = [(scene.system_cpu, min(1.0, sum(waiting)), 0.0)]
    for group, (run, stalled) in groups.items():
        pressure = group.pressure.get("cpu")
        if pressure is not None and group.parent is not None:
            some = min(1.0, stalled)
            rates.append((pressure, some, max(0.0, some - min(1.0, run))))
    return rates
