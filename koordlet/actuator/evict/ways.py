"""Ways to end a victim: their interface, and those that wait for no other process; the daemon has
the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from koordlet.actuator.evict.journal import Begun
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.host import Host
from koordlet.kernel.proc import kill


class Attempt(Protocol):
    """One way, under way. ``error`` counts once it is ``done``; empty: the victim has ended or
    will within its grace."""

    @property
    def done(self) -> bool: ...

    @property
    def error(self) -> str: ...

    @property
    def final(self) -> bool:
        """Whether success means that the victim has ended, whatever runs in its cgroup by then:
        kubelet may start the pod anew."""
        ...

    @property
    def kills(self) -> bool:
        """Whether the process that works on it kills at the end of the grace period itself."""
        ...

    @property
    def forbids(self) -> bool:
        """Whether its error means that the victim must not be ended in another way either."""
        ...


class Way(Protocol):
    """``begin``: an attempt, or the reason why there can be none. Never waits."""

    @property
    def name(self) -> str: ...

    def begin(self, begun: Begun) -> Attempt | str: ...


@dataclass
class Progress:
    """An attempt that another process works on, or whose end shows only in the cgroup."""

    done: bool = False
    error: str = ""
    final: bool = False
    kills: bool = True
    forbids: bool = False


class Terminate:
    """SIGTERM to every process, for what neither a runtime nor systemd manages."""

    name = "SIGTERM"

    def __init__(self, host: Host, cgroups: Cgroups, proc_root: str = "/proc") -> None:
        self._host = host
        self._cgroups = cgroups
        self._proc_root = proc_root

    def begin(self, begun: Begun) -> Attempt | str:
        """Raises OSError."""
        pids = kill.processes(self._host, self._cgroups, begun.cgroup)
        if why := kill.guarded(self._host, pids, self._proc_root):
            return why
        kill.terminate(self._host, self._cgroups, begun.cgroup)
        return Progress(kills=False)
