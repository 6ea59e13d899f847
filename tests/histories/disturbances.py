"""Steps in which the ground moves: files out of sight, cgroups that are renamed or made anew,
clocks that jump, pauses."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from koordlet_fakefs.faults import Fault

from koordlet.decision.resource import Resource
from koordlet.engine.parts import CannotStartError
from koordlet.hooks import HOOKS
from koordlet.pause.model import Pause, Scope, ScopeKind
from tests.histories.machine import unhindered

if TYPE_CHECKING:
    from tests.histories.history import History

Play = Callable[["History", random.Random], None]
_HOUR_S = 3600.0
_VALUES = {
    Resource.CPU_SHARES: (11, 801, 5_003),
    Resource.CPU_QUOTA_US: (41_003, 201_007),
    Resource.MEMORY_LIMIT: (4096 * 400_009,),
}


def _hide(history: History, chance: random.Random) -> None:
    """A hierarchy that is not mounted for a while, or a file that something else was mounted over;
    it comes back within this step, or when all is mended."""
    machine = history.machine
    roots = machine.cgroups.layout.roots
    with unhindered(machine.real):
        paths = [machine.knobs.path(*key) for key in history.owned()]
    files = [path for path in paths if path.startswith(roots)]  # what is replaced is never hidden
    if files and chance.random() < 0.5:
        _out_of_sight(history, chance, chance.choice(files))
    else:
        _out_of_sight(history, chance, f"{chance.choice(roots)}/*")


def _out_of_sight(history: History, chance: random.Random, glob: str) -> None:
    fault = history.machine.real.faults.hide(glob)
    history.faults.append(fault)
    history.watch.count("hidden")
    if chance.random() < 0.3:
        if history.daemon.alive and chance.random() < 0.5:
            history.act(history.daemon.stop)
        history.kill()
        history.start()
    for _ in range(chance.choice((1, 3, 12))):
        history.second()
    if chance.random() < 0.7:
        _reveal(history, fault)


def _reveal(history: History, fault: Fault) -> None:
    faults = history.machine.real.faults
    faults.active = [each for each in faults.active if each is not fault]
    history.faults = [each for each in history.faults if each is not fault]


def _away(history: History, chance: random.Random) -> bool:
    """Whether the daemon was stopped for what follows."""
    if not history.daemon.alive or chance.random() < 0.6:
        return False
    if chance.random() < 0.5:
        history.act(history.daemon.stop)
    history.kill()
    return True


def _rename(history: History, chance: random.Random) -> None:
    """Somebody gives the cgroup of an application another name, or its old one back, or ends it
    under the new one."""
    machine = history.machine
    was_away = _away(history, chance)
    moved = list(machine.moved_apps)
    if moved and chance.random() < 0.7:
        name = chance.choice(moved)
        if chance.random() < 0.3:
            machine.remove_moved(name)
        elif machine.rename_back(name):
            history.watch.renamed(machine.moved_name(name), name)
    elif machine.apps:
        name = chance.choice(list(machine.apps))
        if machine.rename_app(name):
            history.watch.count("renamed")
            history.watch.renamed(name, machine.moved_name(name))
    history.changed()
    if was_away:
        history.start()


def _made_anew(history: History, chance: random.Random) -> None:
    """A unit that is started again: its cgroup has the same name, another inode, and values of its
    own."""
    machine = history.machine
    was_away = _away(history, chance)
    if machine.apps:
        name = chance.choice(list(machine.apps))
        machine.remove_app(name)
        history.watch.gone(name)
        machine.add_app(name, chance)
        history.watch.count("made anew")
        for resource, values in _VALUES.items():
            if chance.random() < 0.5:
                machine.poke(name, resource, chance.choice(values))
    history.changed()
    if was_away:
        history.start()


def _clock(history: History, chance: random.Random) -> None:
    """Somebody sets the wall clock; the monotonic one goes on."""
    hours = chance.choice((-30.0, -5.0, -0.1, 0.1, 5.0, 30.0))
    history.machine.real.clock_ahead_s += hours * _HOUR_S


def _suspend(history: History, chance: random.Random) -> None:
    """The machine sleeps: both clocks go on, and nothing runs."""
    history.suspend(chance.choice((20.0, 600.0, 5 * _HOUR_S)))


def _pause(history: History, chance: random.Random) -> None:
    """An administrator pauses something, or ends a pause; some end by themselves."""
    daemon = history.daemon
    if not daemon.alive:
        return
    engine, machine = daemon.engine, history.machine
    current = engine.pausing.pauses.current
    if current and chance.random() < 0.6:
        ended = chance.choice(current).scope
        history.act(lambda: engine.resume([ended], "the history"))
    else:
        cgroups = [*machine.apps, *(pod.groups.pod for pod in machine.pods.values())]
        kind = chance.choice(list(ScopeKind))
        name = {
            ScopeKind.ALL: "",
            ScopeKind.OWNER: chance.choice((*engine.runs, *HOOKS)),
            ScopeKind.CGROUP: chance.choice(cgroups or ["elsewhere"]),
        }[kind]
        now = machine.real.time()
        until = chance.choice((None, now + 3, now + 60))
        pause = Pause(Scope(kind, name), now, "the history", until)
        with suppress(OSError, CannotStartError):  # a scripted fault: the caller is told
            history.act(lambda: engine.pause([pause]))
        history.watch.count("paused")
    history.changed()


def _monitors(history: History, chance: random.Random) -> None:
    """Groups fill the caches, so that their RMIDs stay in limbo for a while; and somebody else
    counts processes, or no longer."""
    machine = history.machine
    real, twin = machine.real.resctrl, machine.twin.resctrl
    if real is None or twin is None:
        return
    for counters in real.counters_of():
        size = chance.choice((0, 1 << 16, 5 << 20))
        counters.see(llc_occupancy=size, mbm_total_bytes=size, mbm_local_bytes=size)
    theirs = "/sys/fs/resctrl/mon_groups/theirs"
    pairs = list(machine.alive_pairs())
    with unhindered(machine.real), suppress(OSError):  # no RMID, or one of another control group
        if not machine.real.exists(theirs):
            machine.real.mkdir(theirs)
            machine.twin.mkdir(theirs)
            history.watch.count("counted by others")
        elif chance.random() < 0.5:
            for host in (machine.real, machine.twin):
                host.rmdir(theirs)
        for here, there in chance.sample(pairs, min(len(pairs), 2)):
            for host, process in ((machine.real, here), (machine.twin, there)):
                host.write(f"{theirs}/tasks", b"%d" % process.pid)


KINDS: dict[str, tuple[Play, int]] = {
    "monitors": (_monitors, 3),
    "pause": (_pause, 3),
    "out of sight": (_hide, 3),
    "rename": (_rename, 3),
    "made anew": (_made_anew, 2),
    "clock": (_clock, 2),
    "suspend": (_suspend, 1),
}
"""Kind -> what it does, and how often it comes beside the others."""
