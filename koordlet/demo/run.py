"""The demo on this machine: check, clean, arms in turn, clean again."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path

from koordlet.demo.arms import Arms, Progress
from koordlet.demo.ls_server import calibrate
from koordlet.demo.managed import ManagedDaemon
from koordlet.demo.model import ARMS, DemoResult
from koordlet.demo.plan import Wish, plan, service_ms
from koordlet.demo.process import interruptible
from koordlet.demo.sampling import Probe
from koordlet.demo.stage import Stage
from koordlet.demo.workdir import DIRECTORY, Workdir
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.probe.scratch import scratch

Announce = Callable[[str], None]


class NotRootError(Exception):
    """Cgroups cannot be made by this user."""


def run_demo(
    wish: Wish, progress: Progress, announce: Announce, directory: Path = DIRECTORY
) -> DemoResult:
    """Raises NotRootError, BusyError, ArmFailedError, OSError, KeyboardInterrupt (also on SIGTERM
    and SIGHUP); in every case nothing of the demo is left when it returns."""
    if os.geteuid() != 0:
        raise NotRootError
    host = LinuxHost()
    layout = detect(host)
    cgroups = Cgroups(host, layout)
    workdir = Workdir(directory)
    stage = Stage(host, layout, workdir.remember)
    with interruptible():
        workdir.acquire()
        runner: Arms | None = None
        try:
            _clean_up_after_a_killed_run(workdir, stage, announce)
            cpus = len(os.sched_getaffinity(0))
            settings = plan(
                wish,
                cpus=cpus,
                layout=layout.kind,
                kernel=platform.release(),
                rounds=calibrate(service_ms(cpus)),
                simulated=False,
            )
            probe = Probe(host, cgroups, os.sysconf("SC_CLK_TCK"))
            runner = Arms(probe, stage, workdir.fresh(), settings)
            results = [
                runner.run(ARMS[name], turn, progress)
                for turn in range(1, wish.repeat + 1)
                for name in wish.arms
            ]
            return DemoResult(settings, tuple(results))
        finally:
            if runner is not None:
                runner.stop()
            # A daemon that was killed while it probed leaves its scratch cgroup; making one of
            # our own removes those of the dead.
            with scratch(host, cgroups):
                pass
            workdir.release()


def _clean_up_after_a_killed_run(workdir: Workdir, stage: Stage, announce: Announce) -> None:
    for journal in workdir.path.glob("arms/*/daemon"):
        ManagedDaemon(journal).restore()
    ended = stage.sweep(workdir.remembered())
    if ended:
        announce(f"ended {ended} processes that a killed demo had left behind")
