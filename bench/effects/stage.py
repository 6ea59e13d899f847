"""Where an arm plays: its cgroups, its processes and files, and the daemon that manages it.

An arm is a function that opens a ``stage``, starts services in its groups and measures. Everything
below the stage's cgroup is killed and removed with the block, also on Ctrl-C; what a killed bench
left goes when the next one begins.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.child import Daemon, daemon, restore
from bench.effects.client import Client, Latencies, Load
from bench.figures import NotMeasuredError
from bench.tree import remove_tree, scratch_root
from koordlet.decision.cpu_amounts import milli_to_shares
from koordlet.decision.resource import Resource
from koordlet.demo.meter import Meter, Used, used
from koordlet.demo.process import die_with_parent
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.qos import STRATEGIES

_NAME = re.compile(r"koordlet-bench-(\d+)(-.*)?")
# Services and daemon have started by then, and the client has faulted in what it needs.
_LEAD_S = 0.3
_LOOK_S = 0.05
_CALM_SHARE = 0.15
_TIMEOUT_S = 240.0  # an emulated CPU takes long
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_APPLICATION = """
[[applications]]
name = "bench-{name}"
cgroup = "{cgroup}"
qos = "{qos}"
"""


class ServiceFailedError(Exception):
    """A process of an arm did not start or ended; the text has its last words."""


@dataclass(frozen=True)
class Running:
    """A process that was started in a group; it may have forked others there."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def check(self) -> None:
        """Raises ServiceFailedError when it has ended."""
        code = self.process.poll()
        if code is not None:
            tail = " | ".join(self.log.read_text(errors="replace").splitlines()[-3:])
            raise ServiceFailedError(f"{self.name} ended with {code}: {tail or 'no output'}")


class Stage:
    """``groups``: name -> cgroup, relative to the hierarchies' roots; one named ``ls/on`` is below
    ``ls``, which comes before it. ``directory``: for files of the services, empty at first and
    removed at the end."""

    def __init__(self, cgroups: Cgroups, groups: Mapping[str, str], directory: Path) -> None:
        self.cgroups = cgroups
        self.groups = groups
        self.directory = directory
        self._running: list[Running] = []

    def start(
        self,
        name: str,
        group: str | None,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
    ) -> Running:
        """``command`` as a member of the group from its first instruction on; None = of no group.
        It dies with the bench. ``name``: of its log."""
        files = [f"{path}/cgroup.procs" for path in self._directories(group)]
        parent = os.getpid()

        def prepare() -> None:
            die_with_parent(parent)
            for file in files:
                descriptor = os.open(file, os.O_WRONLY)
                os.write(descriptor, b"0")
                os.close(descriptor)

        path = self.directory / f"{name}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, **(env or {})},
                preexec_fn=prepare,
            )
        self._running.append(Running(name, process, path))
        return self._running[-1]

    def _directories(self, group: str | None) -> tuple[str, ...]:
        return () if group is None else self.cgroups.directories(self.groups[group])

    def pids(self, group: str) -> list[int]:
        """Of all processes in the group."""
        with open(f"{self._directories(group)[0]}/cgroup.procs") as file:
            return [int(line) for line in file]

    def meter(self) -> Meter:
        """Return a meter of its groups, by their names, and of the node."""
        return Meter(LinuxHost(), self.cgroups, self.groups, _TICKS_PER_S)

    def check(self) -> None:
        """Raises ServiceFailedError when a process that was started here has ended."""
        for running in self._running:
            running.check()

    def end(self) -> None:
        """Kill what was started; what it forked is killed with the groups."""
        for running in self._running:
            running.process.kill()
        for running in self._running:
            running.process.wait()
        self._running.clear()

    def config(
        self, qos: Mapping[str, str], rest: str = "", more: Mapping[str, str] | None = None
    ) -> str:
        """A ``koordlet.toml`` with the groups as applications (group -> QoS class), and ``rest``,
        which must not end in an open table that they could fall into. ``more``: group -> further
        lines of its application."""
        applications = "".join(
            _APPLICATION.format(name=name.replace("/", "-"), cgroup=self.groups[name], qos=each)
            + (more or {}).get(name, "")
            for name, each in qos.items()
        )
        return f"[sources]\nkubepods = false\n{rest}\n{applications}"


@contextmanager
def stage(*names: str) -> Iterator[Stage]:
    """With a group for each name, ``ls`` and ``be`` as the case may be. Together they have the
    weight that kubelet gives all pods: with the default one, a busy system task would get twice as
    much of a CPU as all of them on a machine with two. Raises PermissionError without root."""
    cgroups = Cgroups(host := LinuxHost(), detect(host))
    _remove_dead(cgroups)
    parent = f"koordlet-bench-{os.getpid()}"
    directory = Path(tempfile.mkdtemp(prefix=f"{parent}-"))
    try:
        with scratch_root(cgroups, parent) as make:
            cgroups.write(
                parent, Resource.CPU_SHARES, milli_to_shares(1000 * (os.cpu_count() or 1))
            )
            for name in names:
                make(f"{parent}/{name}")
            built = Stage(cgroups, {name: f"{parent}/{name}" for name in names}, directory)
            try:
                yield built
            finally:
                built.end()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_dead(cgroups: Cgroups) -> None:
    """What a bench that was killed has left."""
    files = tempfile.gettempdir()
    for directory in _of_the_dead(files):
        restore(Path(files, directory))
        shutil.rmtree(f"{files}/{directory}", ignore_errors=True)
    for root in cgroups.layout.roots:
        for name in _of_the_dead(root):
            remove_tree(f"{root}/{name}")


def _of_the_dead(directory: str) -> list[str]:
    found = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return [each[0] for each in found if each and not os.path.exists(f"/proc/{each[1]}")]


@contextmanager
def managed(config: str | None) -> Iterator[Daemon | None]:
    """A ``koordlet run`` on ``config`` (see ``Stage.config``) that is ready, or none for None."""
    if config is None:
        yield None
        return
    with daemon(config) as child:
        yield child


@dataclass(frozen=True)
class Window:
    """What was seen from the first to the last arrival of the loads."""

    latencies: Mapping[str, Latencies]
    used: Used


def only(strategy: str) -> str:
    """Config in which nothing but this strategy acts; its own table may follow."""
    others = "".join(
        f"[strategies.{name}]\nenable = false\n" for name in STRATEGIES if name != strategy
    )
    return (
        "[nri]\nenable = false\n[alarms]\npsi = false\nthrottled = false\n"
        f"[hooks.cpu-qos]\nenable = false\n{others}"
    )


def measure(
    on: Stage,
    loads: Mapping[str, Load],
    each: Callable[[], None] = lambda: None,
    prefix: Sequence[str] = (),
) -> Window:
    """Runs the loads at the same time. ``each`` is called some twenty times a second meanwhile.
    Raises ServiceFailedError, and whatever ``each`` raises."""
    clients: dict[str, Client] = {}
    meter = on.meter()
    try:
        for name, load in loads.items():
            clients[name] = Client(load, on.directory, name, prefix)
        begins = time.monotonic() + _LEAD_S
        for client in clients.values():
            client.begin(begins)
        time.sleep(max(0.0, begins - time.monotonic()))
        before = meter.read()
        ends = begins + max(load.seconds for load in loads.values())
        while time.monotonic() < ends:
            on.check()
            each()
            time.sleep(_LOOK_S)
        after = meter.read()
        latencies = {name: client.result() for name, client in clients.items()}
    finally:
        for client in clients.values():
            client.kill()
    for name, found in latencies.items():
        if found.failed:
            raise ServiceFailedError(
                f"{name}: {found.failed} of {len(found.ms)} requests refused or answered badly"
            )
    return Window(latencies, used(before, after))


def check_calm(seen: Window) -> None:
    """Raises NotMeasuredError where others would take part in the measurement: for a window in
    which a service and its client alone should have used CPU."""
    others_share = seen.used.other_cores / (os.cpu_count() or 1)
    if others_share > _CALM_SHARE:
        raise NotMeasuredError(
            f"something else uses {others_share:.0%} of the CPUs; run the bench when the "
            "machine is calm"
        )


def until(holds: Callable[[], bool], missing: str) -> None:
    """Raises TimeoutError."""
    end = time.monotonic() + _TIMEOUT_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"{missing} within {_TIMEOUT_S:.0f} s")
        time.sleep(_LOOK_S)
