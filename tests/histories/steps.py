"""The kinds of steps that a history is made of. A step is a kind and a seed: it looks at what is
there and picks by its own dice, so that a history stays one when steps are left out of it."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from koordlet_fakefs.faults import Op

from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.decision.snapshot import Wake, WakeKind
from koordlet.protocol.cpuset import format_cpulist
from tests.histories import disturbances, policies
from tests.histories.machine import APPLICATIONS, CPUS, MIB

if TYPE_CHECKING:
    from tests.histories.history import History

Play = Callable[["History", random.Random], None]


def _pod_comes(history: History, chance: random.Random) -> None:
    if len(history.machine.pods) < 7:
        pod = history.machine.add_pod(chance)
        history.tell(pod)


def _pod_goes(history: History, chance: random.Random) -> None:
    machine = history.machine
    if machine.pods:
        ended = [pod for pod in machine.pods.values() if not any(p.alive for p in pod.processes)]
        pod = chance.choice(ended or list(machine.pods.values()))
        machine.remove_pod(pod)
        if chance.random() < 0.5:
            history.untell(pod)


def _container_restarts(history: History, chance: random.Random) -> None:
    if history.machine.pods:
        pod = chance.choice(list(history.machine.pods.values()))
        history.watch.gone(history.machine.restart_container(pod, chance))


def _application(history: History, chance: random.Random) -> None:
    name = chance.choice(list(APPLICATIONS))
    if name in history.machine.apps:
        history.machine.remove_app(name)
        history.watch.gone(name)
    else:
        history.machine.add_app(name, chance)
    history.changed()


def _load(history: History, chance: random.Random) -> None:
    for process in list(history.machine.processes()):
        if process.alive and chance.random() < 0.5:
            history.machine.real.set_demand(process, chance.choice((0.0, 0.1, 0.8, 2.0, CPUS)))


def _memory(history: History, chance: random.Random) -> None:
    alive = [process for process in history.machine.processes() if process.alive]
    for process in chance.sample(alive, min(len(alive), 2)):
        if process.alive:
            with suppress(OSError):
                size = chance.choice((20, 200, 800, 2000)) * MIB
                history.machine.set_memory(process, size)
                if process.alive and chance.random() < 0.3:
                    history.machine.real.read_files(process, size)


def _squeeze(history: History, chance: random.Random) -> None:
    """Memory or CPU becomes so scarce that somebody has to go."""
    history.take(policies.squeezing(history.policy, chance))
    for processes in history.machine.apps.values():
        for process in processes:
            if process.alive:
                history.machine.set_memory(process, 1500 * MIB)
    for pod in history.machine.pods.values():
        for process in pod.processes:
            if process.alive and chance.random() < 0.7:
                size = min(pod.memory_limit_bytes // 2, chance.choice((700, 1800)) * MIB)
                history.machine.set_memory(process, size)
                history.machine.real.set_demand(process, CPUS)
    for _ in range(3):
        history.second()


def _slo(history: History, chance: random.Random) -> None:
    history.take(policies.another(history.policy, chance))


def _bad_configuration(history: History, chance: random.Random) -> None:
    policies.refused()


def _switch(history: History, chance: random.Random) -> None:
    history.take(policies.switched(history.policy, chance))


def _rival(history: History, chance: random.Random) -> None:
    """Somebody else in koordlet wants files that it sets already, something else, or no more."""
    seed = chance.choice((0, chance.getrandbits(16)))
    history.take(msgspec.structs.replace(history.policy, rival=seed))


def _mode(history: History, chance: random.Random) -> None:
    policy = msgspec.structs.replace(history.policy, observe=not history.policy.observe)
    history.take(policy)


def _applications_evict(history: History, chance: random.Random) -> None:
    evict = chance.choice(("never", "stop", "freeze"))
    history.take(msgspec.structs.replace(history.policy, evict=evict))


# Not ENOENT and ENODEV of what is there: Linux has them for what is gone, see ``_vanishes``.
_REFUSALS: tuple[tuple[Op, str, int], ...] = (
    ("write", "*/cpu.*", errno.EINVAL),
    ("write", "*/cpuset.*", errno.EBUSY),
    ("write", "*/memory.*", errno.EIO),
    ("write", "*/memory.*", errno.EBUSY),
    ("write", "*/cpuset.cpus", errno.EACCES),
    ("write", "*", errno.EIO),
    ("write", "*", errno.EPERM),
    ("read", "*/cpu.*", errno.EIO),
    ("read", "*/cpuset.*", errno.EIO),
    ("read", "*/memory.*", errno.EPERM),
    ("read", "/proc/*", errno.EIO),
    ("read", "*/memory.stat", errno.ENODEV),
    ("open", "*", errno.EMFILE),
    ("open", "*/kubepods*", errno.EACCES),
    ("open", "*/resctrl/*", errno.EIO),
    ("mkdir", "*", errno.ENOSPC),
    ("rmdir", "*", errno.EBUSY),
    ("listdir", "*kubepods*", errno.EIO),
    ("watch", "*", errno.ENOSPC),
    ("inode", "*", errno.EIO),
    ("signal", "*", errno.EPERM),
    ("prctl", "*", errno.EPERM),
    ("replace", "*", errno.ENOSPC),
    ("netlink", "tc/*", errno.EPERM),
    ("netlink", "tc/*_*", errno.EBUSY),
    ("netlink", "tc/*link*", errno.EOPNOTSUPP),
)


def _refusal(history: History, chance: random.Random) -> None:
    op, glob, code = chance.choice(_REFUSALS)
    may_narrow = glob != "*" and code != errno.ENODEV
    if may_narrow and chance.random() < 0.3 and history.machine.pods:
        pod = chance.choice(list(history.machine.pods.values()))
        glob = f"*{pod.groups.pod}*"
    times = chance.choice((1, 2, 5, None))
    faults = history.machine.real.faults
    history.faults.append(
        faults.add(glob, op=op, errno=code, times=times, after=chance.randrange(4))
    )


def _short_read(history: History, chance: random.Random) -> None:
    glob = chance.choice(("/proc/stat", "/proc/meminfo", "*/memory.stat", "*/cpu.stat", "*/cpu.*"))
    faults = history.machine.real.faults
    history.faults.append(faults.short_read(glob, chance.randrange(5), times=chance.choice((1, 3))))


def _mended(history: History, chance: random.Random) -> None:
    history.mend()


def _vanishes(history: History, chance: random.Random) -> None:
    """A pod goes between two calls of the daemon."""
    if not history.machine.pods:
        return
    pod = chance.choice(list(history.machine.pods.values()))

    def vanish() -> None:
        if pod.uid in history.machine.pods:
            history.watch.count("vanished")
            with history.hand():
                history.machine.remove_pod(pod)

    op: Op = chance.choice(("read", "write", "open", "inode"))
    faults = history.machine.real.faults
    glob = f"*{pod.groups.pod}*"
    history.faults.append(faults.before(glob, vanish, op=op, after=chance.randrange(30)))


_VALUES: dict[Resource, tuple[Value, ...]] = {
    Resource.CPU_QUOTA_US: (UNLIMITED, 31_337, 77_777, 131_313, 333_333),
    Resource.CPU_PERIOD_US: (50_000, 99_991),
    Resource.CPU_BURST_US: (0, 1_237, 31_007),
    Resource.CPU_SHARES: (7, 733, 4_111),
    Resource.CPU_IDLE: (0, 1),
    Resource.CPUSET_CPUS: tuple(
        format_cpulist(frozenset(cpus)) for cpus in ((0,), (0, 1), (1, 3), range(CPUS))
    ),
    Resource.MEMORY_LIMIT: (UNLIMITED, 4096 * 300_007, 4096 * 900_001),
    Resource.MEMORY_HIGH: (UNLIMITED, 4096 * 250_007),
    Resource.MEMORY_MIN: (0, 4096 * 7_001),
    Resource.MEMORY_LOW: (0, 4096 * 9_001),
    Resource.MEMORY_OOM_GROUP: (0, 1),
}


def _another_writes(history: History, chance: random.Random) -> None:
    """An administrator, or another agent: rather a file of ours than any."""
    owned = history.owned()
    if owned and chance.random() < 0.8:
        cgroup, resource = chance.choice(owned)
    else:
        cgroup = chance.choice(history.machine.known_cgroups())
        resource = chance.choice(list(_VALUES))
    values = _VALUES.get(resource)
    if values is not None and history.machine.poke(cgroup, resource, chance.choice(values)):
        history.watch.count("poked")


def _agent(history: History, chance: random.Random) -> None:
    """Another agent that wants a file of ours for itself, until it is stopped."""
    owned = [key for key in history.owned() if key[1] in _VALUES]
    if history.agent is None and owned:
        cgroup, resource = chance.choice(owned)
        history.agent = (cgroup, resource, _VALUES[resource])
    else:
        history.agent = None


def _resize(history: History, chance: random.Random) -> None:
    if history.machine.pods:
        pod = chance.choice(list(history.machine.pods.values()))
        history.machine.resize_pod(pod, chance)
        history.tell(pod)


def _network(history: History, chance: random.Random) -> None:
    """Somebody else works on the network: devices, routes, and what he puts on them."""
    network = history.machine.network
    name, names = chance.choice(("eth1", "eth2")), network.names()
    any_name = chance.choice(names)
    work = chance.choice(
        (
            *(lambda: network.go(name) if name in names else network.come(name, chance),) * 2,
            *(lambda: network.route(any_name),) * 2,
            lambda: network.put_root(any_name),
            lambda: network.delete_root(any_name),
            lambda: network.put_lead(any_name, chance.choice(("ingress", "clsact"))),
            network.drop_ifb,
        )
    )
    work()
    network.worked_s = history.machine.real.monotonic()


def _alarm(history: History, chance: random.Random) -> None:
    source = chance.choice(("node", *history.machine.known_cgroups()))
    kind = chance.choice((WakeKind.PSI, WakeKind.THROTTLED))
    if history.daemon.alive:
        history.act(lambda: history.daemon.sound(Wake(kind, source)))


def _stall(history: History, chance: random.Random) -> None:
    some = chance.choice((0.0, 0.3, 0.8))
    for resource in ("cpu", "memory"):
        history.machine.real.stall(f"/proc/pressure/{resource}", some=some, full=some / 2)


def _stubborn(history: History, chance: random.Random) -> None:
    """Processes that end late, when they are killed, or not at all."""
    for process in history.machine.processes():
        if chance.random() < 0.5:
            history.machine.real.deaf.add(process.pid)
        process.stuck = chance.random() < 0.3


def _let_go(history: History, chance: random.Random) -> None:
    for process in history.machine.processes():
        process.stuck = False
    history.machine.real.deaf.clear()


def _restart(history: History, chance: random.Random) -> None:
    if history.daemon.alive:
        history.act(history.daemon.stop)
    history.start()


def _stop_restoring(history: History, chance: random.Random) -> None:
    if history.daemon.alive:
        history.mend()
        was_observing = history.daemon.parts.observing
        history.act(lambda: history.daemon.stop(restoring=True))
        if not was_observing:
            history.compare()
    history.start()


def _kill(history: History, chance: random.Random) -> None:
    """kill -9 at some write within the next seconds, or between two ticks; then it is started
    again at once, or a while later."""
    ops: tuple[Op, ...] = ("write", "write", "netlink", "replace", "mkdir", "prctl", "signal")
    op = chance.choice(ops)
    history.bomb(op, chance.randrange(12), chance.choice((None, None, 0, 1, 3)))
    if chance.random() < 0.4:
        history.take(policies.another(history.policy, chance))
    for _ in range(2):
        history.second()
    history.kill()
    for _ in range(chance.choice((0, 0, 3))):
        history.second()
    history.start()


def _kill_in_start(history: History, chance: random.Random) -> None:
    history.kill()
    op: Op = chance.choice(("write", "write", "netlink"))
    history.bomb(op, chance.randrange(6), chance.choice((None, 0, 1)))
    history.start()
    history.kill()
    history.start()


def _disk(history: History, chance: random.Random) -> None:
    history.disk.full = not history.disk.full


def _restore(history: History, chance: random.Random) -> None:
    """`koordlet restore` without a daemon."""
    if history.daemon.alive:
        if chance.random() < 0.5:
            history.act(history.daemon.stop)
        else:
            history.kill()
    history.mend()
    op: Op = chance.choice(("write", "netlink"))
    history.restore_offline(killed_after=chance.choice((None, None, 0, 2, 5)), op=op)
    history.start()


def _restore_by_daemon(history: History, chance: random.Random) -> None:
    """`koordlet restore` with a daemon there, which then writes nothing until it is told to."""
    if not history.daemon.alive:
        return
    history.mend()
    history.restore_by_daemon()
    if chance.random() < 0.5:
        written = history.watch.counts.get("writes", 0)
        for _ in range(3):
            history.second()
        history.check_silent(written, "after a restore")
    pausing = history.daemon.engine.pausing
    history.daemon.engine.resume([each.scope for each in pausing.pauses.current], "the history")
    history.take(history.policy)


def _dry_run(history: History, chance: random.Random) -> None:
    written = history.watch.counts.get("writes", 0)
    if history.daemon.alive:
        with suppress(OSError):  # a scripted fault: the caller is told
            history.act(lambda: history.daemon.engine.restore(dry_run=True))
    else:
        history.daemon.restore_offline(dry_run=True)
    history.check_silent(written, "by a dry run")


def _later(history: History, chance: random.Random) -> None:
    """The machine sleeps, or the loop stalls: much time passes at once."""
    history.machine.advance(chance.choice((5.0, 40.0, 90.0, 301.0)))


def _settle(history: History, chance: random.Random) -> None:
    history.settle()


KINDS: dict[str, tuple[Play, int]] = {
    "pod comes": (_pod_comes, 12),
    "pod goes": (_pod_goes, 5),
    "container restarts": (_container_restarts, 3),
    "application": (_application, 4),
    "load": (_load, 8),
    "memory": (_memory, 6),
    "squeeze": (_squeeze, 4),
    "slo": (_slo, 8),
    "bad configuration": (_bad_configuration, 1),
    "switch": (_switch, 4),
    "mode": (_mode, 1),
    "rival": (_rival, 4),
    "applications evict": (_applications_evict, 1),
    "refusal": (_refusal, 5),
    "short read": (_short_read, 1),
    "mended": (_mended, 3),
    "vanishes": (_vanishes, 3),
    "another writes": (_another_writes, 6),
    "agent": (_agent, 2),
    "resize": (_resize, 3),
    "network": (_network, 4),
    "alarm": (_alarm, 3),
    "stall": (_stall, 1),
    "stubborn": (_stubborn, 2),
    "let go": (_let_go, 1),
    "restart": (_restart, 3),
    "stop restoring": (_stop_restoring, 1),
    "kill": (_kill, 4),
    "kill in start": (_kill_in_start, 1),
    "disk": (_disk, 2),
    "restore": (_restore, 1),
    "restore by daemon": (_restore_by_daemon, 1),
    "dry run": (_dry_run, 1),
    "later": (_later, 2),
    "settle": (_settle, 1),
    **disturbances.KINDS,
}
"""Kind -> what it does, and how often it comes beside the others."""
