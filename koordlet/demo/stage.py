"""The cgroups the demo plays in, and the broom that sweeps them.

One parent ``koordlet-demo`` with children ``ls`` and ``be``, in every hierarchy that the daemon
controls or measures. Everything below that name is the demo's own, so whatever an
earlier run left behind after kill -9 can be ended and removed without asking.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence

from koordlet.decision.cpu_amounts import milli_to_shares
from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host

PARENT = "koordlet-demo"
LS = f"{PARENT}/ls"
BE = f"{PARENT}/be"
GROUPS = (PARENT, LS, BE)

_V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory")
_V2_CONTROLLERS = ("cpu", "cpuset", "memory")
# cgroup v1 has no cgroup.kill, and a dying task leaves its group a little after its SIGKILL.
_SWEEP_TIMEOUT_S = 5.0


def _roots(layout: Layout) -> tuple[str, ...]:
    """Mount points the demo uses, each once (co-mounted controllers share one)."""
    roots = {layout.v1[name]: None for name in _V1_CONTROLLERS if name in layout.v1}
    if layout.v2 is not None:
        roots[layout.v2] = None
    return tuple(roots)


class Stage:
    """Creates the groups, moves processes into them, removes everything again."""

    def __init__(
        self, host: Host, layout: Layout, remember: Callable[[list[tuple[str, str]]], None]
    ) -> None:
        """`remember` stores, before it happens, what `sweep` of a later run must undo."""
        self._host = host
        self._layout = layout
        self._remember = remember
        self._roots = _roots(layout)
        self._enabled: list[tuple[str, str]] = []

    def create(self) -> None:
        """Raises OSError where cgroups may not be made; call `sweep` first and afterwards."""
        for root in self._roots:
            if root == self._layout.v2:
                self._enable_controllers(root)
            for group in GROUPS:
                path = f"{root}/{group}"
                self._host.mkdir(path)
                if root == self._layout.v1.get("cpuset"):
                    self._inherit_cpuset(path)
                if root == self._layout.v2 and group == PARENT:
                    self._enable_controllers(path)
        self._weigh()

    def _weigh(self) -> None:
        """What kubelet gives all pods together. With the default weight a busy system task would
        get twice as much of a CPU as all of the demo on a machine with two."""
        cgroups = Cgroups(self._host, self._layout)
        shares = milli_to_shares(1000 * len(os.sched_getaffinity(0)))
        with contextlib.suppress(Unsupported):  # without the cpu controller there is no weight
            cgroups.write(PARENT, Resource.CPU_SHARES, shares)

    def enter(self, group: str) -> tuple[str, ...]:
        """The files a process writes ``0`` to in order to join `group` everywhere."""
        return tuple(f"{root}/{group}/cgroup.procs" for root in self._roots)

    def sweep(self, remembered: Sequence[tuple[str, str]] = ()) -> int:
        """End every process in the groups and remove them; switch off the controllers that this
        or the `remembered` run had switched on. Returns how many processes it ended.

        Raises TimeoutError naming the group that stays busy.
        """
        ended = 0
        self._enabled.extend(remembered)
        deadline = time.monotonic() + _SWEEP_TIMEOUT_S
        for path in self._existing():
            while pids := self._pids(path):
                for pid in pids:
                    ended += _end(pid)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path}: processes {pids} do not end")
                time.sleep(0.01)
        for path in self._existing():
            self._remove(path, deadline)
        for control, controller in reversed(self._enabled):
            self._disable(control, controller)
        if self._enabled:
            self._enabled.clear()
            self._remember(self._enabled)
        return ended

    def _existing(self) -> Iterator[str]:
        """Directories of the stage, children before parents."""
        for root in self._roots:
            top = f"{root}/{PARENT}"
            if self._host.exists(top):
                for name in self._host.subdirs(top):
                    yield f"{top}/{name}"
                yield top

    def _pids(self, path: str) -> list[int]:
        return [int(pid) for pid in self._host.read(f"{path}/cgroup.procs").split()]

    def _remove(self, path: str, deadline: float) -> None:
        while True:
            try:
                self._host.rmdir(path)
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _inherit_cpuset(self, path: str) -> None:
        parent = path.rsplit("/", 1)[0]
        for name in ("cpuset.mems", "cpuset.cpus"):
            self._host.write(f"{path}/{name}", self._host.read(f"{parent}/{name}").strip())

    def _disable(self, control: str, controller: str) -> None:
        try:
            self._host.write(control, f"-{controller}".encode())
        except OSError as error:
            # Somebody else's group has come to use it since.
            if error.errno != errno.EBUSY:
                raise

    def _enable_controllers(self, path: str) -> None:
        control = f"{path}/cgroup.subtree_control"
        there = self._host.read(f"{path}/cgroup.controllers").decode().split()
        on = self._host.read(control).decode().split()
        for controller in _V2_CONTROLLERS:
            if controller in there and controller not in on:
                # What was off before is switched off again; below PARENT it goes with the group.
                if not path.endswith(PARENT):
                    self._enabled.append((control, controller))
                    self._remember(self._enabled)
                self._host.write(control, f"+{controller}".encode())


def _end(pid: int) -> int:
    if pid == os.getpid():
        raise RuntimeError("the demo itself sits in one of its groups")
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1
